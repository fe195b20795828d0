"""Random numbers of a run: every site and link has its own stream, so that common random numbers line up."""

import math
from functools import cached_property

import numpy as np

from geosim.scenario.varying import Jitter


class SiteJitter:
    """Compute times of a site: lognormal, with the mean and variance of a sum of independent steps."""

    def __init__(self, seed: int, site: int, step_s: float, cv: float) -> None:
        self._step_s = step_s
        self._cv = cv
        self._stream = [seed, 0, site]

    @cached_property
    def _random(self) -> "np.random.Generator":
        """Made at the first draw: numpy imports its generators then, which a steady run does without."""
        return np.random.default_rng(self._stream)

    def draw(self, steps: int) -> float:
        """Seconds that `steps` steps take together; one draw however many they are."""
        mean = steps * self._step_s
        if self._cv == 0 or steps == 0:
            return mean
        variance = math.log1p(self._cv**2 / steps)
        return mean * math.exp(math.sqrt(variance) * self._random.standard_normal() - variance / 2)

    def draw_each(self, steps: int) -> np.ndarray:
        """Seconds of each of `steps` steps."""
        if self._cv == 0:
            return np.full(steps, self._step_s)
        variance = math.log1p(self._cv**2)
        return self._step_s * np.exp(math.sqrt(variance) * self._random.standard_normal(steps) - variance / 2)


class LinkJitter:
    """One-way delays of a link: normal around the mean or fitted to samples, never below zero.

    Attributes:
        delay_s: the mean, which may change in a run.
    """

    def __init__(
        self, seed: int, link: int, delay_s: float, jitter_s: float, fitted: Jitter | None = None
    ) -> None:
        self.delay_s = delay_s
        self._fitted = fitted
        self._jitter_s = jitter_s
        self._stream = [seed, 1, link]

    @cached_property
    def _random(self) -> "np.random.Generator":
        """As of a site."""
        return np.random.default_rng(self._stream)

    def draw(self) -> float:
        """Seconds from one end to the other."""
        if self._fitted is not None:
            return max(0.0, self.delay_s + self._fitted.draw(self._random) / 2)
        if self._jitter_s == 0:
            return self.delay_s
        return max(0.0, self.delay_s + self._jitter_s * self._random.standard_normal())

    def normals(self, n: int) -> np.ndarray:
        """The next `n` standard normal numbers of the stream, those that `draw` would use one by one."""
        return self._random.standard_normal(n)
