"""The engine against the closed form over random scenarios and policies: python -m experiments.agreement.

Half of the pairs start with full TCP windows, where both must agree to 1e-6, and half ramp up, where they
must agree to 1 %. What is compared is the steady state: of the engine's run the last windows that repeat. A
run that differs, since it may not have become steady yet, is made again with more windows.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from experiments.console import console, run_app
from experiments.random_pairs import Pair, draw
from geosim.cost import build
from geosim.sim.closed_form import TEXT, Reason, batch_from, steady_state
from geosim.sim.simulate import run

BARS = {False: 1e-6, True: 0.01}
_WINDOWS = (40, 400, 4000)
_PERIOD = 12
_REPEATS = 1e-9


@dataclass(frozen=True)
class Compared:
    """One pair: why the closed form does not hold, or how far it is off.

    Attributes:
        step: difference of the step times, over the engine's. wait: of what is exposed, over a step.
        link_bytes: of the bytes on a link, mean over links, over the engine's.
    """

    reason: Reason
    step: float = 0.0
    wait: float = 0.0
    link_bytes: float = 0.0

    @property
    def worst(self) -> float:
        """The largest of the differences."""
        return max(self.step, self.wait, self.link_bytes)


def compare(pair: Pair, bar: float) -> Compared:
    """Hold both models against each other on one pair."""
    form = steady_state(batch_from(pair[0], [pair[1]]))
    reason = Reason(form.reason[0])
    found = Compared(reason)
    if reason:
        return found
    for windows in _WINDOWS:
        step, wait, sent = _engine(pair, windows)
        found = Compared(
            reason,
            abs(float(form.step_s[0]) / step - 1),
            abs(float(form.exposed_s[0]) - wait) / step,
            abs(float(form.link_bytes[0]) - sent) / max(sent, 1.0),
        )
        if found.worst <= bar:
            break
    return found


def _engine(pair: Pair, windows: int) -> tuple[float, float, float]:
    """Seconds a step, of them waiting, and bytes on a link a step in the windows at the end that repeat."""
    problem = build(*pair)
    whole = run(problem, 0, windows)
    period = _period(whole.step_s)
    if period is None:
        wait, sent = whole.parts_s["wait"] / whole.steps, np.sum(whole.link_bytes) / whole.steps
        return whole.elapsed_s / whole.steps, wait, sent / max(1, len(problem.links))
    # What links carry may take turns while steps last the same.
    less = run(problem, 0, windows - period * (_PERIOD // period))
    steps = whole.steps - less.steps
    wait = (whole.parts_s["wait"] - less.parts_s["wait"]) / steps
    sent = (np.sum(whole.link_bytes) - np.sum(less.link_bytes)) / steps
    return float(whole.step_s[-period:].mean()), wait, sent / max(1, len(problem.links))


def _period(step_s: np.ndarray) -> int | None:
    """After how many windows step times repeat at the end, for as long as twice the longest period."""
    for period in range(1, _PERIOD + 1):
        tail = step_s[-2 * _PERIOD - period :]
        if np.abs(tail[period:] - tail[:-period]).max() <= _REPEATS * tail.mean():
            return period
    return None


app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def main(pairs: Annotated[int, typer.Option(help="how many, half of them with ramp", min=2)] = 1000) -> None:
    """Compare and print."""
    reasons: Counter[Reason] = Counter()
    misses = []
    for ramp, bar in BARS.items():
        worst: list[float] = []
        for seed in range(pairs // 2):
            found = compare(draw(seed, ramp), bar)
            reasons[found.reason] += 1
            if not found.reason:
                worst.append(found.worst)
            if found.worst > bar:
                misses.append(f"seed {seed}, {'with' if ramp else 'without'} ramp: {found}")
        inside = sum(value <= bar for value in worst)
        console.print(
            f"{'with' if ramp else 'without'} ramp: {len(worst)} of {pairs // 2} in the domain, {inside} of"
            f" them within {bar:g}; worst {max(worst):.2g}, median {np.median(worst):.2g}"
        )
    total = sum(reasons.values())
    console.print(f"in the domain: {reasons[Reason.APPLIES] / total:.1%} of {total} pairs")
    for reason, count in reasons.most_common():
        if reason:
            console.print(f"  {count:4}  {TEXT[reason]}")
    for miss in misses:
        console.print(f"beyond the bar: {miss}")


if __name__ == "__main__":
    run_app(app, "agreement")
