"""A5 on a small convex problem, softmax regression of 10,000 parameters: dense against error feedback.

Two sites accumulate 16 steps and apply a window late; only what travels differs. The loss is over all data.
A third run sends the same without a residual.
"""

from dataclasses import dataclass

import numpy as np

from geosim.policy import Integer, TopK
from geosim.policy.maths import Key, Section, compress, contribution, decompress, residual

_SITES, _FEATURES, _CLASSES = 2, 1000, 10
_SAMPLES, _BATCH, _INTERVAL, _RATE = 4096, 8, 16, 4.0
_RATIO = 0.01


@dataclass(frozen=True)
class _Data:
    """Samples [n, features], their labels, and the one-hot labels [n, classes]."""

    x: np.ndarray
    y: np.ndarray
    hot: np.ndarray

    def loss(self, theta: np.ndarray) -> float:
        """Mean cross-entropy."""
        scores = self.x @ theta
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return float(-logs[np.arange(len(self.y)), self.y].mean())

    def gradient(self, theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Of the mean over some samples, flat."""
        scores = self.x[rows] @ theta
        scores -= scores.max(axis=1, keepdims=True)
        share = np.exp(scores)
        share /= share.sum(axis=1, keepdims=True)
        made = self.x[rows].T @ (share - self.hot[rows]) / len(rows)
        return np.asarray(made, np.float32).ravel()


def make_data(seed: int) -> _Data:
    """Gaussian samples labelled by a linear map and noise."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((_SAMPLES, _FEATURES)) / np.sqrt(_FEATURES)).astype(np.float32)
    map_ = rng.standard_normal((_FEATURES, _CLASSES)).astype(np.float32)
    y = (4 * x @ map_ + rng.gumbel(size=(_SAMPLES, _CLASSES))).argmax(axis=1)
    return _Data(x, y, np.eye(_CLASSES, dtype=np.float32)[y])


def final_loss(data: _Data, windows: int, lossy: bool, feedback: bool, seed: int) -> float:
    """The loss after some windows. `lossy`: top 1 % in INT8; `feedback`: with what that left behind."""
    rng = np.random.default_rng(seed)
    section = Section(((0, _FEATURES * _CLASSES),), TopK(ratio=_RATIO), Integer(group=64))
    theta = np.zeros((_FEATURES, _CLASSES), np.float32)
    kept = [np.zeros(theta.size, np.float32) for _ in range(_SITES)]
    late = np.zeros(theta.size, np.float32)
    halves = np.array_split(np.arange(_SAMPLES), _SITES)
    for _ in range(windows):
        parts = []
        for site, own in enumerate(halves):
            total = np.zeros(theta.size, np.float32)
            for _ in range(_INTERVAL):
                total += data.gradient(theta, own[rng.integers(0, len(own), _BATCH)])
            u = contribution(total / _INTERVAL, 1 / _SITES, kept[site] if feedback else None)
            sent = decompress(compress(u, section, Key()), section) if lossy else u
            kept[site] = residual(u, sent)
            parts.append(sent)
        theta -= _RATE * late.reshape(theta.shape)
        late = np.sum(parts, axis=0, dtype=np.float32)
    return data.loss(theta)
