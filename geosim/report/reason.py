"""Why the tuner chose a policy and what would change its answer, in sentences."""

from geosim.cost.calibration import Calibration
from geosim.policy import Blocking, Dense, Streaming, SyncPolicy
from geosim.report import words
from geosim.scenario import Scenario
from geosim.tune import TOLERANCE, Point, Tuned
from geosim.tune.upgrade import qualifies_from
from geosim.units import BANDWIDTH, show

# Closed form and engine differ by less than this, so a factor below it is none to promise.
_EDGE = 1.03
_ABOVE = (
    "More than 100 % is no error: the room is plain data parallelism, which pays every step for an optimizer "
    "step and for an all-reduce over all accelerators."
)


def reason(scenario: Scenario, tuned: Tuned, calibration: Calibration | None = None) -> list[str]:
    """Sentences: the choice and what it needs, what each step back costs, what would change the answer."""
    chosen = tuned.chosen
    out = [
        f"{words.choice(chosen.policy)} reaches {words.percent(chosen.relative)} of the same accelerators "
        f"in one room{_needs(scenario, chosen)}."
    ]
    if tuned.held:
        out.append(f"Held fixed by --set: {', '.join(_held(field, chosen.policy) for field in tuned.held)}.")
    if tuned.screened == 1:
        out.append("That leaves no choice: it is the only policy.")
    else:
        out.append(
            f"It is the least aggressive of {tuned.screened:,} policies within {words.percent(TOLERANCE)} "
            f"of the fastest, which reaches {words.percent(tuned.best)}."
        )
    if tuned.best > 1.01:
        out.append(_ABOVE)
    steps = [
        f"{_step(axis, point)} {words.percent(point.relative)}" for axis, point in tuned.neighbours.items()
    ]
    if steps:
        out.append(f"One step back would reach: {', '.join(steps)}.")
    out += _changes(scenario, tuned, calibration)
    return out


def _held(field: str, policy: SyncPolicy) -> str:
    """A field and its value."""
    codec, select = policy.codec, policy.codec.select
    values = {
        "name": policy.name,
        "about": repr(policy.about),
        "interval": str(policy.interval),
        "codec.select": "dense"
        if isinstance(select, Dense)
        else f"{select.kind} {words.percent(select.ratio)}",
        "codec.quantize": codec.quantize.kind,
        "codec.residual": codec.residual.kind,
        "overlap": words.overlap(policy.overlap),
        "streams": str(policy.streams),
    }
    return f"{field} {values[field]}"


def _needs(scenario: Scenario, point: Point) -> str:
    """The busiest link's share, in the units of the link."""
    used = point.result.links
    if not used:
        return ""
    name = max(used, key=lambda n: used[n].utilization)
    source, target = name.split("->")
    link = scenario.link(source, target)
    if link is None:
        return ""
    rate = link.bandwidth(source)
    where = f" from {source} to {target}" if len(scenario.wan) > 1 else ""
    return f" and needs {show(used[name].utilization * rate, BANDWIDTH)} of {show(rate, BANDWIDTH)}{where}"


def _step(axis: str, point: Point) -> str:
    """What is different about a neighbour."""
    policy = point.policy
    if axis == "interval":
        return f"K = {policy.interval}"
    if axis == "overlap":
        return "without delay" if isinstance(policy.overlap, Blocking) else words.overlap(policy.overlap)
    if axis == "streams":
        return "1 stream" if policy.streams == 1 else f"{policy.streams} streams"
    if axis == "select":
        select = policy.codec.select
        return "dense" if isinstance(select, Dense) else f"{words.percent(select.ratio)} kept"
    return policy.codec.quantize.kind


def _changes(scenario: Scenario, tuned: Tuned, calibration: Calibration | None) -> list[str]:
    """Bandwidths from which the next policy on the front, and dense fp32 as often as can be, would do.

    The latter is left out where what is held fixed rules it out.
    """
    rivals = [point.policy for point in tuned.front]
    place = rivals.index(tuned.chosen.policy)
    asked = [(words.choice(p), p) for p in rivals[max(0, place - 1) : place]]
    rivals.append(tuned.fastest.policy)
    synchronous = _synchronous(tuned.chosen.policy)
    if not any(field.startswith(("interval", "codec.")) for field in tuned.held):
        rivals.append(synchronous)
        if synchronous != tuned.chosen.policy and synchronous not in [p for _, p in asked]:
            often = "every step" if synchronous.interval == 1 else f"every {synchronous.interval} steps"
            asked.append((f"dense fp32 {often}, {words.overlap(synchronous.overlap)}", synchronous))
    out = []
    for text, policy in asked:
        factor = qualifies_from(scenario, policy, rivals, TOLERANCE, calibration)
        if factor is None:
            out.append(f"No bandwidth makes {text} fast enough: round trips, codecs or the site decide.")
        elif factor < _EDGE:
            out.append(
                f"{_capital(text)} misses narrowly: {words.percent(_EDGE - 1)} more bandwidth is enough."
            )
        else:
            out.append(f"{_capital(text)} is enough from {_bandwidth(scenario, factor)} on.")
    return out


def _synchronous(chosen: SyncPolicy) -> SyncPolicy:
    """Everything, every step, under the chosen overlap; streaming needs more steps than its delay."""
    least = chosen.overlap.steps + 1 if isinstance(chosen.overlap, Streaming) else 1
    codec = type(chosen.codec)(
        small_below_bytes=chosen.codec.small_below_bytes, small_dtype=chosen.codec.small_dtype
    )
    return chosen.model_copy(update={"codec": codec, "interval": least})


def _bandwidth(scenario: Scenario, factor: float) -> str:
    """A bandwidth in place of what there is."""
    if len(scenario.wan) == 1:
        return show(scenario.wan[0].bandwidth_bytes_per_s * factor, BANDWIDTH)
    return f"{factor:.3g} times the bandwidth of every link"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
