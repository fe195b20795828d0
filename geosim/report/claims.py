"""What field reports claim about a scenario, held against results: verdict, finding, and what it turns on.

A scenario has claims if it is in `CLAIMS`; they speak of named policies and are checked where these are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from geosim.cost.calibration import Calibration
from geosim.policy import Codec, SyncPolicy
from geosim.report.verdict import HIDDEN, cover_s
from geosim.report.words import bytes_per_parameter, count, percent
from geosim.scenario import Scenario
from geosim.tune.screen import screen
from geosim.tune.sensitivity import threshold, with_bandwidth, with_batch, with_model_scale, with_rtt
from geosim.units import BANDWIDTH, TIME, show

ResultDict = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """One claim: what is said, whether it holds here, what was found, and the assumptions it turns on."""

    id: str
    text: str
    holds: bool
    found: str
    turns_on: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `verdict` in words."""
        return {**asdict(self), "verdict": self.verdict}

    @property
    def verdict(self) -> str:
        """For people."""
        return "true" if self.holds else "false under these assumptions"


@dataclass(frozen=True)
class _Case:
    """What claims are checked against: a scenario, and by name the policies and their results."""

    scenario: Scenario
    policies: Mapping[str, SyncPolicy]
    results: Mapping[str, ResultDict]
    calibration: Calibration | None

    def wait_s(self, scenario: Scenario, name: str) -> float:
        """What a step waits for the WAN under one policy in a changed scenario."""
        return float(screen(scenario, [self.policies[name]], self.calibration).exposed_s[0])

    def waiting(self, scenario: Scenario, name: str) -> float:
        """The same as a share of the step."""
        found = screen(scenario, [self.policies[name]], self.calibration)
        return float(found.exposed_s[0] / found.step_s[0])

    def relative(self, scenario: Scenario, name: str) -> float:
        """Throughput over co-located under one policy in a changed scenario."""
        return float(screen(scenario, [self.policies[name]], self.calibration).relative[0])

    def bandwidth(self, good: Callable[[Scenario], bool]) -> str | None:
        """The narrowest link's bandwidth from which on something holds; None if any or no bandwidth does."""
        factor = _edge(lambda f: good(with_bandwidth(self.scenario, f)))
        narrowest = min(w.bandwidth_bytes_per_s for w in self.scenario.wan)
        return None if factor is None else show(narrowest * factor, BANDWIDTH)

    def rtt(self, good: Callable[[Scenario], bool]) -> str | None:
        """The longest link's round trip up to which something holds; None if any or none does."""
        factor = _edge(lambda f: good(with_rtt(self.scenario, 1 / f)))
        longest = max(w.rtt_s for w in self.scenario.wan)
        return None if factor is None else show(longest / factor, TIME)

    def parameters(self, good: Callable[[Scenario], bool]) -> str | None:
        """Up to about how many parameters of a model of this shape something holds; None if any or none."""
        factor = _edge(lambda f: good(with_model_scale(self.scenario, 1 / f)))
        if factor is None:
            return None
        return count(with_model_scale(self.scenario, 1 / factor).workload.model.param_table().numel)

    def sequences(self, good: Callable[[Scenario], bool]) -> str | None:
        """How many sequences an accelerator and step make something hold; None if any or no number does."""
        factor = _edge(lambda f: good(with_batch(self.scenario, f)))
        return None if factor is None else f"{self.scenario.workload.batch_per_accelerator * factor:,.0f}"


def _edge(holds: Callable[[float], bool]) -> float | None:
    """The least factor, four decades each way, from which on something holds; None without such an edge."""
    found = threshold(holds, _LEAST, _MOST)
    return None if found in (None, _LEAST) else found


def _join(options: Sequence[str | None], none: str) -> str:
    """The options there are."""
    return "; or ".join(option for option in options if option) or none


_LEAST, _MOST = 1e-4, 1e4
_FLAT, _HIERARCHICAL = "ddp", "hierarchical-efsgd"
_A1_WAIT_S, _A1_IDLE, _A2_FALL, _A3_RELATIVE = 0.5, 0.935, 0.98, 0.88


def _a1_wait(case: _Case) -> Claim:
    wait = case.results[_FLAT]["exposed_wan_s_per_step"]
    numel = case.scenario.workload.model.param_table().numel

    def short(scenario: Scenario) -> bool:
        return case.wait_s(scenario, _FLAT) <= _A1_WAIT_S

    rate, model = case.bandwidth(short), case.parameters(short)
    options = [
        rate and f"a link of {rate}",
        model and f"a model of about {model} parameters",
    ]
    rtt = show(max(w.rtt_s for w in case.scenario.wan), TIME)
    limit = "" if rate else f" (at {rtt} no bandwidth is enough: what the ring has in flight is limited)"
    return Claim(
        "A1a",
        "naive DDP waits about 500 ms a step on the WAN",
        abs(wait - _A1_WAIT_S) <= 0.2 * _A1_WAIT_S,
        f"it waits {show(wait, TIME)}: fp32 gradients of {count(numel)} parameters cross almost twice",
        f"a wait of 500 ms takes {_join(options, 'another policy')}{limit}",
    )


def _a1_idle(case: _Case) -> Claim:
    idle = 1 - case.results[_FLAT]["compute_utilization"]
    holds = idle >= _A1_IDLE

    def busy(scenario: Scenario) -> bool:
        return case.waiting(scenario, _FLAT) < _A1_IDLE

    rate, batch = case.bandwidth(busy), case.sequences(busy)
    verb = "false from" if holds else "true below"
    now = case.scenario.workload.batch_per_accelerator
    options = [
        rate and f"{verb} {rate}",
        batch and f"{verb} {batch} sequences an accelerator and step (now {now})",
    ]
    return Claim(
        "A1b",
        "naive DDP leaves GPUs idle 95 % of the time (elsewhere: 98 %)",
        holds,
        f"they are idle {percent(idle)} of the time",
        _join(options, "neither bandwidth nor batch changes it"),
    )


def _a2(case: _Case) -> Claim:
    left, policy = case.results[_HIERARCHICAL]["wan_bytes_vs_ddp"], case.policies[_HIERARCHICAL]
    quantize = policy.codec.quantize.kind
    kept = bytes_per_parameter(policy)
    dense = bytes_per_parameter(policy.model_copy(update={"codec": Codec(quantize=policy.codec.quantize)}))
    every_step, everything = left * policy.interval, left * dense / kept
    variants = [
        ("with K = 1", every_step),
        (f"with K = {policy.interval} and dense {quantize}", everything),
        (f"with K = 1 and dense {quantize}", everything * policy.interval),
    ]
    holds = 1 - left >= _A2_FALL
    return Claim(
        "A2",
        "with K = 16, top 1 % and INT8 the WAN traffic falls by 98 %",
        holds,
        f"bytes on the WAN a step fall by {percent(1 - left)} against plain DDP's ring",
        "; ".join(
            f"{'true' if 1 - v >= _A2_FALL else 'false'} {text} ({percent(1 - v)})" for text, v in variants
        ),
    )


def _a3(case: _Case) -> Claim:
    relative = case.results[_HIERARCHICAL]["relative_to_colocated"]
    holds = relative >= _A3_RELATIVE

    def enough(scenario: Scenario) -> bool:
        return case.relative(scenario, _HIERARCHICAL) >= _A3_RELATIVE

    return Claim(
        "A3",
        "throughput reaches 88 % of the same GPUs in one room",
        holds,
        f"it reaches {percent(relative)} in tokens a second (what the method costs in loss is claim A5's)",
        _flips(case, holds, enough),
    )


def _a4(case: _Case) -> Claim:
    result, policy = case.results[_HIERARCHICAL], case.policies[_HIERARCHICAL]
    step, exposed = result["step_time_s"]["mean"], result["exposed_wan_s_per_step"]
    holds = exposed <= HIDDEN * step
    takes = result["exchange_time_s"]["mean"]
    return Claim(
        "A4",
        "the WAN transfer hides completely behind compute",
        holds,
        f"a step waits {show(exposed, TIME)}: an exchange takes {show(takes, TIME)} and has "
        f"{show(cover_s(policy, result), TIME)}",
        _flips(case, holds, lambda scenario: case.waiting(scenario, _HIERARCHICAL) <= HIDDEN),
    )


def _flips(case: _Case, holds: bool, good: Callable[[Scenario], bool]) -> str:
    """Where a claim that more bandwidth and shorter round trips favour turns."""
    rate, rtt, batch = case.bandwidth(good), case.rtt(good), case.sequences(good)
    now = case.scenario.workload.batch_per_accelerator
    options = [
        rate and (f"false below {rate}" if holds else f"true from {rate} on"),
        rtt and (f"false with an RTT above {rtt}" if holds else f"true with an RTT of at most {rtt}"),
        batch
        and (
            f"{'false below' if holds else 'true from'} {batch} sequences an accelerator and step (now {now})"
        ),
    ]
    return _join(options, "neither bandwidth nor round trip nor batch changes it")


def _report_a(case: _Case) -> list[Claim]:
    """Field report A: hierarchical error-feedback SGD between Beijing and Ningxia."""
    flat = [_a1_wait, _a1_idle] if _FLAT in case.results else []
    hierarchical = [_a2, _a3, _a4] if _HIERARCHICAL in case.results else []
    return [claim(case) for claim in flat + hierarchical]


CLAIMS: Mapping[str, Callable[[_Case], list[Claim]]] = {"beijing-ningxia": _report_a}


def check(
    scenario: Scenario,
    policies: Sequence[SyncPolicy],
    results: Sequence[ResultDict],
    calibration: Calibration | None = None,
) -> list[Claim]:
    """The claims made about a scenario, as far as these results speak to them; none for most scenarios."""
    checker = CLAIMS.get(scenario.name)
    if checker is None:
        return []
    by_name = {p.name: p for p in policies}
    named = {p.name: r for p, r in zip(policies, results, strict=True)}
    return checker(_Case(scenario, by_name, named, calibration))


def table(claims: Sequence[Claim]) -> RenderableType:
    """Claims, one a block: the claim, its verdict and the finding, the assumptions that it turns on."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for claim in claims:
        style = "green" if claim.holds else "red"
        grid.add_row(Text(claim.id, style="bold"), Text(claim.text))
        grid.add_row("", Text(claim.verdict, style=style) + Text(f": {claim.found}"))
        grid.add_row("", Text(claim.turns_on, style="dim"))
    return Group("", Text("Claims of the field report, and what each turns on", style="bold"), grid)
