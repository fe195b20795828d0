"""The screen of `geosim topology`, and its plain data: a ranking, a map of the best, what its links carry."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from geosim.report import words
from geosim.report.tables import heading, plain_table
from geosim.scenario import Scenario
from geosim.tune.topology import Option, Ranking
from geosim.tune.ways import ALL_RINGS, ALL_TREES, way_words
from geosim.units import BANDWIDTH, TIME, show

_SHOWN = 10
_AS_GOOD = 0.01  # a gain below this is not worth another topology


def data(scenario: Scenario, ranking: Ranking) -> dict[str, Any]:
    """For `--json`."""
    return {
        "scenario": scenario.name,
        "policy": ranking.policy.name,
        "best": _row(ranking, ranking.best),
        "direct": None if ranking.direct is None else _row(ranking, ranking.direct),
        "ranking": [_row(ranking, option) for option in ranking.options],
        "tried": ranking.tried,
        "links": [
            {"link": name, "payloads": count, **vars(ranking.best.result.links[name])}
            for name, count in ranking.payloads.items()
        ],
    }


def _row(ranking: Ranking, option: Option) -> dict[str, Any]:
    result = option.result
    return {
        "topology": option.topology.to_dict(),
        "step_time_s": result.step_time_s.mean,
        "exchange_time_s": result.exchange_time_s.mean,
        "exposed_wan_s_per_step": result.exposed_wan_s_per_step,
        "relative_to_colocated": result.relative_to_colocated,
        "busiest_link": _busiest(option),
        "speedup": speedup(ranking, option),
    }


def speedup(ranking: Ranking, option: Option) -> float | None:
    """Throughput over that of direct; None where direct is not possible."""
    if ranking.direct is None:
        return None
    return ranking.direct.result.step_time_s.mean / option.result.step_time_s.mean


def verdict(scenario: Scenario, ranking: Ranking) -> str:
    """What to choose, in one sentence."""
    best, direct = ranking.best, ranking.direct
    way = way_words(best.topology)
    step = show(best.result.step_time_s.mean, TIME)
    if direct is None:
        return f"{way}: a step takes {step}; direct is not possible, as not all sites have a link"
    gain = direct.result.step_time_s.mean / best.result.step_time_s.mean - 1
    exchanges = [show(o.result.exchange_time_s.mean, TIME) for o in (best, direct)]
    if best is direct:
        return f"direct: a step takes {step}; nothing else is faster"
    if gain < _AS_GOOD:
        return (
            f"direct is as good: {way} makes a step {words.percent(gain)} faster, and an exchange takes "
            f"{exchanges[0]} instead of {exchanges[1]}"
        )
    return (
        f"{way}: {words.percent(gain)} more throughput than direct; an exchange takes {exchanges[0]} instead "
        f"of {exchanges[1]}"
    )


def screen(scenario: Scenario, ranking: Ranking) -> RenderableType:
    """The verdict, the ranking, the map and the links."""
    table = plain_table(
        "", "topology", "exchange", "exposed\na step", "step", "of direct's\nthroughput", "busiest\nlink",
        right=(0, 2, 3, 4, 5, 6), wrapped=[1],
    )  # fmt: skip
    for place, option in enumerate(ranking.options, start=1):
        if place > _SHOWN and option is not ranking.direct:
            continue
        result = option.result
        faster = speedup(ranking, option)
        table.add_row(
            str(place),
            way_words(option.topology),
            show(result.exchange_time_s.mean, TIME),
            show(result.exposed_wan_s_per_step, TIME),
            show(result.step_time_s.mean, TIME),
            "-" if faster is None else words.percent(faster),
            words.percent(_busiest(option)),
            style="bold" if place == 1 else "",
        )
    said = Text("best: ", style="bold") + Text(verdict(scenario, ranking))
    blocks: list[RenderableType] = [
        heading(scenario, ranking.policy), "", said, "", table, Text(_tried(scenario, ranking), style="dim"),
        "", Text("What each link of the best carries", style="bold"), _links(scenario, ranking),
    ]  # fmt: skip
    if len(scenario.sites) <= _SHOWN:
        title = Text("Use of the links, from (rows) to (columns)", style="bold")
        blocks += ["", title, _map(scenario, ranking.best)]
    return Group(*blocks)


def _tried(scenario: Scenario, ranking: Ranking) -> str:
    count = len(scenario.sites)
    every = {"ring": count <= ALL_RINGS, "tree": count <= ALL_TREES, "hub": True}
    said = [
        f"{number} {kind}{'s' if number > 1 else ''}{' (all)' if every.get(kind) else ''}"
        for kind, number in ranking.tried.items()
    ]
    return f"tried: {', '.join(said)}; {len(ranking.options)} of them ran in full"


def _links(scenario: Scenario, ranking: Ranking) -> Table:
    direct = ranking.direct.result.links if ranking.direct is not None else {}
    table = plain_table(
        "link", "bandwidth", "RTT", "payloads an\nexchange", "utilization", "direct's", right=(1, 2, 3, 4, 5)
    )
    for name, payloads in ranking.payloads.items():
        source, target = name.split("->")
        link = scenario.link(source, target)
        assert link is not None
        table.add_row(
            name,
            show(link.bandwidth(source), BANDWIDTH),
            show(link.rtt_s, TIME),
            str(payloads),
            words.percent(ranking.best.result.links[name].utilization),
            words.percent(direct[name].utilization) if name in direct else "-",
        )
    return table


def _map(scenario: Scenario, option: Option) -> Table:
    names = [site.name for site in scenario.sites]
    table = plain_table("", *names, right=range(1, len(names) + 1))
    for a in names:
        used = [option.result.links.get(f"{a}->{b}") for b in names]
        cells = ["." if use is None else words.percent(use.utilization, 2) for use in used]
        table.add_row(Text(a, style="bold"), *cells)
    return table


def _busiest(option: Option) -> float:
    return max((use.utilization for use in option.result.links.values()), default=0.0)
