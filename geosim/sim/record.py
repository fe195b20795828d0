"""What a run writes down after its warm-up: times, windows, exchanges, bytes; and spans for a trace."""

from dataclasses import dataclass, field

import numpy as np

PARTS = ("compute", "site_collective", "update", "encode", "wait", "gather", "apply")


@dataclass
class Tracer:
    """Spans (row, track, name, start, end) and samples of link use (link, time, bytes per second)."""

    spans: list[tuple[str, str, str, float, float]] = field(default_factory=list)
    samples: list[tuple[str, float, float]] = field(default_factory=list)

    def span(self, row: str, track: str, name: str, start_s: float, end_s: float) -> None:
        """Something that took from `start_s` to `end_s`; nothing if that is no time at all."""
        if end_s > start_s:
            self.spans.append((row, track, name, start_s, end_s))


@dataclass(frozen=True)
class Record:
    """One seed's run after its warm-up.

    Attributes:
        step_s: seconds a step, one entry a window.
        exchange_s: seconds of every exchange of every site.
        parts_s: mean over sites of the seconds in each part.
        steps: steps measured.
        elapsed_s: seconds measured.
        link_bytes: on the wire, a link.
        sites_s: seconds that each site computed, and that it waited.
    """

    step_s: np.ndarray
    exchange_s: np.ndarray
    parts_s: dict[str, float]
    steps: int
    elapsed_s: float
    link_bytes: tuple[float, ...]
    sites_s: tuple[tuple[float, float], ...]
