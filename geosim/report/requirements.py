"""What `require` prints: each answer with its runs on both sides, or why there is none."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType

from geosim.questions.knobs import Knob
from geosim.questions.limits import Limit
from geosim.questions.require import Answer, Trial
from geosim.report import words
from geosim.report.parts import PARTS
from geosim.report.tables import heading, listing, plain_table
from geosim.scenario import Scenario
from geosim.units import show

Answers = Sequence[tuple[Answer, Limit | None]]

_BEST = {"bandwidth": "the least", "rtt": "the largest", "loss": "the highest"}
_NAMES = {"bandwidth": "bandwidth", "rtt": "RTT", "loss": "loss"}
_SINGULAR = ("bandwidth", "loss", "jitter")
_ENDS = {"bandwidth": "at 1 Ebit/s", "rtt": "without a round trip", "loss": "without loss"}
_MEASURES = {"utilization": "compute utilization", "relative": "of one room's throughput"}


def data(trial: Trial, answers: Answers) -> dict[str, Any]:
    """For `--json`."""
    return {
        "scenario": trial.scenario.name,
        "policy": trial.policy.name,
        "target": asdict(trial.target),
        "answers": [
            {
                "vary": answer.knob.path,
                "found": answer.found,
                "value": None if answer.found == "none" else answer.passes.value,
                "now": asdict(answer.now),
                "passes": asdict(answer.passes) if answer.found != "none" else None,
                "fails": None if answer.fails is None else asdict(answer.fails),
                "best": asdict(answer.passes) if answer.found == "none" else None,
                "set": list(answer.settings),
                "limit": None if limit is None else asdict(limit),
                "sentence": sentence(trial, answer, limit),
            }
            for answer, limit in answers
        ],
    }


def screen(trial: Trial, answers: Answers) -> RenderableType:
    """A table of the answers, and a sentence for each that has no threshold."""
    world, target = trial.scenario, trial.target
    several = len(world.wan) > 1
    heads = ["link", "vary"] if several else ["vary"]
    first = len(heads)
    table = plain_table(
        *heads, "now", "required", "reached", "1 % beyond", right=range(first, first + 4), wrapped=[0]
    )
    for answer, _ in answers:
        link = [_link(world, answer.knob)] if several else []
        table.add_row(
            *link,
            _NAMES[answer.knob.kind],
            quantity(answer.now.value, answer.knob),
            _required(answer),
            words.percent(answer.passes.reached),
            "" if answer.fails is None else words.percent(answer.fails.reached),
        )
    now = words.percent(answers[0][0].now.reached)
    line = f"{now} {_MEASURES[target.measure]} now; for {words.percent(target.value)} it takes"
    notes = _notes(trial, answers)
    blocks: list[RenderableType] = [heading(world, trial.policy), "", line, "", table]
    return Group(*blocks, *([listing("Notes", notes)] if notes else []))


def _notes(trial: Trial, answers: Answers) -> list[str]:
    world = trial.scenario
    said = [sentence(trial, answer, limit) for answer, limit in answers if limit or answer.found == "any"]
    alone = [answer for answer, limit in answers if answer.found == "none" and limit is None]
    if alone:
        best = max(alone, key=lambda answer: answer.passes.reached)
        said.append(
            f"Not reachable by one link alone where it says so, at best {words.percent(best.passes.reached)} "
            f"({_what(world, best.knob)}): the others limit."
        )
    said += [
        f"{_what(world, answer.knob)}: the law is not monotone there, and what lies 1 % beyond passes too."
        for answer, _ in answers
        if answer.fails is not None and answer.fails.reached >= trial.target.value
    ]
    if any(answer.knob.link is None and not _alike(world, answer.knob) for answer, _ in answers):
        said.append("Of links that differ, the worst is shown; the others are varied in proportion.")
    return said


def sentence(trial: Trial, answer: Answer, limit: Limit | None) -> str:
    """One answer in a sentence."""
    knob, target = answer.knob, trial.target
    goal = f"{words.percent(target.value)} {_MEASURES[target.measure]}"
    name = _what(trial.scenario, knob)
    if answer.found == "value":
        return f"{goal}: {_BEST[knob.kind]} {name} is {quantity(answer.passes.value, knob)}."
    if answer.found == "any":
        end = (
            "from 1 kbit/s on" if knob.kind == "bandwidth" else f"up to {quantity(answer.passes.value, knob)}"
        )
        return f"{goal} is reached at any {name}, {end}."
    reached = words.percent(answer.passes.reached)
    return f"{goal} is not reachable at any {name}: {_ENDS[knob.kind]} it is {reached}{_why(limit)}."


def quantity(value: float, knob: Knob) -> str:
    """A value of a knob, in four digits."""
    if knob.dimension is None:
        return words.percent(value, 4) if value >= 1e-5 else f"{100 * value:.4g} %" if value else "0 %"
    return show(value, knob.dimension, 4)


def _required(answer: Answer) -> str:
    if answer.found == "none":
        return "not reachable"
    return "any" if answer.found == "any" else quantity(answer.passes.value, answer.knob)


def _why(limit: Limit | None) -> str:
    if limit is None:
        return ""
    if limit.reliefs:
        short = "" if limit.enough else ", still short"
        causes = [f"{name} (else {words.percent(reached)}{short})" for name, reached in limit.reliefs]
        one = len(causes) == 1 and limit.reliefs[0][0] in _SINGULAR
        return f", as {' or '.join(causes)} {'limits' if one else 'limit'}"
    rest = "decoding and summing payloads" if limit.part == "wait" else PARTS[limit.part][0]
    return f", as the sites' own work limits ({rest}: {words.percent(limit.share)} of a step)"


def _what(scenario: Scenario, knob: Knob) -> str:
    where = f" of {_link(scenario, knob)}" if len(scenario.wan) > 1 else ""
    return f"{_NAMES[knob.kind]}{where}"


def _link(scenario: Scenario, knob: Knob) -> str:
    return "all links" if knob.link is None else scenario.wan[knob.link].name


def _alike(scenario: Scenario, knob: Knob) -> bool:
    return len({Knob(knob.kind, i).value(scenario) for i in range(len(scenario.wan))}) == 1
