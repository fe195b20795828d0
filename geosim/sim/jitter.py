"""Random numbers of a run: every site and link has its own stream, so that common random numbers line up."""

import math

import numpy as np


class SiteJitter:
    """Compute times of a site: lognormal, with the mean and variance of a sum of independent steps."""

    def __init__(self, seed: int, site: int, step_s: float, cv: float) -> None:
        self._step_s = step_s
        self._cv = cv
        self._random = np.random.default_rng([seed, 0, site])

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
    """One-way delays of a link: normal around the mean, never below zero."""

    def __init__(self, seed: int, link: int, delay_s: float, jitter_s: float) -> None:
        self._delay_s = delay_s
        self._jitter_s = jitter_s
        self._random = np.random.default_rng([seed, 1, link])

    def draw(self) -> float:
        """Seconds from one end to the other."""
        if self._jitter_s == 0:
            return self._delay_s
        return max(0.0, self._delay_s + self._jitter_s * self._random.standard_normal())
