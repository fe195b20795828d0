"""What the commands print: rich renderables from scenarios, policies and result dictionaries."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geosim.policy import SyncPolicy
from geosim.report import words
from geosim.report.breakdown import alike, by_site
from geosim.report.parts import COMPUTE, PARTS, parts_of
from geosim.scenario import Scenario, site_batches
from geosim.screen import BAR, bar, plain_table
from geosim.units import BANDWIDTH, SIZE, TIME, show

ResultDict = Mapping[str, Any]
_SITES = 5  # that a table has a column each for
_IDLE_SHARE = 0.001  # of a step: sites that wait less for each other are alike
_NAMES = 54  # columns of a screen of 80 that the names of policies, and what parts them, leave each other
_FASTER = (
    "more than in one room: there every step ends with an all-reduce over all ranks and an optimizer step"
)


def about_table(rows: Sequence[tuple[str, str]]) -> Table:
    """Names and what they are, wrapped beside the name."""
    table = plain_table("name", "about", wrapped=[1])
    for name, about in rows:
        table.add_row(name, about)
    return table


def scenarios_table(scenarios: Sequence[Scenario]) -> RenderableType:
    """What is built in: sites, links and workload, then what each scenario stands for."""
    facts = plain_table("scenario", "sites", "WAN; model, its parameters", wrapped=[])
    for s in scenarios:
        model, links = s.workload.model, words.links(s)
        # A line each of what is too long for one at 80 columns, where nothing may be folded.
        wan = links.split(", ") if len(s.wan) > 2 else links.split("; ")
        lines = [*wan, f"{model.name}, {words.count(model.param_table().numel)}"]
        facts.add_row(s.name, "\n".join(words.sites(s).split(", ")), "\n".join(lines))
    return Group(facts, "", about_table([(s.name, s.about) for s in scenarios]))


def policies_table(policies: Sequence[SyncPolicy]) -> RenderableType:
    """What is built in: the facts of each policy, then what it is."""
    facts = plain_table(
        "policy", "update", "K", "sends", "overlap", "B per\nparam", "and\nstep",
        right=(2, 5, 6), wrapped=[4],
    )  # fmt: skip
    for p in policies:
        size = words.bytes_per_parameter(p)
        facts.add_row(
            p.name,
            words.update(p),
            str(p.interval),
            words.codec(p.codec),
            words.overlap(p.overlap),
            f"{size:.2g}",
            f"{size / p.interval:.2g}",
        )
    note = Text(
        "B per param: bytes that the codec makes of a parameter of a large tensor, an exchange; and step: "
        "the same a step.",
        style="dim",
    )
    return Group(facts, note, "", about_table([(p.name, p.about) for p in policies]))


def heading(scenario: Scenario, policy: SyncPolicy | None = None) -> RenderableType:
    """What is simulated, in two or three lines."""
    lines = [Text(scenario.name, style="bold")]
    if policy is not None:
        lines[0].append(f" under {policy.name}")
    lines.append(
        Text(f"{words.sites(scenario)}; {words.links(scenario)}; {words.workload(scenario)}", style="dim")
    )
    if policy is not None:
        lines.append(Text(words.policy_line(policy), style="dim"))
    return Group(*lines)


def step_table(result: ResultDict, sites: Mapping[str, ResultDict]) -> RenderableType:
    """Where each millisecond of a step goes; what compute is made of, where that is known, below it.

    Args:
        result: of all sites.
        sites: of each, as `breakdown.by_site` has it. Where they differ there is a column for each, of many
            for those that compute least and most and that wait least and most.
    """
    step = result["step_time_s"]
    spread = ", ".join(f"{p} {show(step[p], TIME)}" for p in ("p50", "p95", "p99"))
    if not alike(sites):
        return _table_by_site(step["mean"], _apart(sites), spread)
    table = plain_table("a step", "time", "share", "", right=(1, 2))
    for key, seconds in parts_of(result).items():
        name, _, colour = PARTS[key]
        table.add_row(*_shown(name, seconds, step["mean"]), Text(bar(seconds / step["mean"]), style=colour))
        if key == "compute":
            for inner, part in next(iter(sites.values()))["compute_parts"].items():
                if part > 0:
                    name, _, colour = COMPUTE[inner]
                    cells = _shown(f"  {name}", part, step["mean"])
                    table.add_row(*cells, Text(bar(part / step["mean"]), style=f"dim {colour}"))
    mean = Text(show(step["mean"], TIME), style="bold")
    table.add_row(Text("mean", style="bold"), mean, "", Text(spread, style="dim"))
    return table


def _shown(name: str, seconds: float, step_s: float) -> tuple[str, str, str]:
    return name, show(seconds, TIME), f"{100 * seconds / step_s:.1f} %"


def _table_by_site(mean_s: float, sites: Mapping[str, ResultDict], spread: str) -> RenderableType:
    table = plain_table("a step", *sites, right=range(1, len(sites) + 1))
    own = list(sites.values())
    for key, (name, _, colour) in PARTS.items():
        if any(site["parts"].get(key) for site in own):
            table.add_row(
                Text(name, style=colour), *(show(site["parts"].get(key, 0.0), TIME) for site in own)
            )
        if key == "compute":
            for inner, (name, _, colour) in COMPUTE.items():
                if any(site["compute_parts"].get(inner) for site in own):
                    cells = (show(site["compute_parts"].get(inner, 0.0), TIME) for site in own)
                    table.add_row(Text(f"  {name}", style=f"dim {colour}"), *cells)
    sums = (Text(show(site["step_time_s"]["mean"], TIME), style="bold") for site in own)
    table.add_row(Text("sum", style="bold"), *sums)
    busy = (words.percent(site["parts"]["compute"] / site["step_time_s"]["mean"]) for site in own)
    table.add_row("compute utilization", *busy)
    return Group(table, Text(f"step: mean {show(mean_s, TIME)}, {spread}", style="dim"))


def _apart(sites: Mapping[str, ResultDict]) -> dict[str, ResultDict]:
    """The sites that a screen has room for."""
    if len(sites) <= _SITES:
        return dict(sites)
    ends = [
        end(sites, key=lambda name: sites[name]["parts"][part])
        for part in ("compute", "wait")
        for end in (min, max)
    ]
    return {name: sites[name] for name in sites if name in ends}


def links_table(scenario: Scenario, result: ResultDict) -> RenderableType:
    """What each WAN link carries."""
    table = plain_table("link", "bandwidth", "RTT", "traffic a step", "utilization", "", right=(1, 2, 3, 4))
    for name, used in result["links"].items():
        source, target = name.split("->")
        link = scenario.link(source, target)
        if link is not None:
            mean = link.average()
            table.add_row(
                name,
                show(mean.bandwidth(source), BANDWIDTH),
                show(mean.rtt_s, TIME),
                show(used["bytes_per_step"], SIZE),
                words.percent(used["utilization"]),
                Text(bar(used["utilization"], BAR // 2), style="cyan"),
            )
    return table


def simulation(
    scenario: Scenario,
    policy: SyncPolicy,
    result: ResultDict,
    verdict: str,
    spent: Sequence[tuple[str, str]] = (),
) -> RenderableType:
    """The whole screen of one simulation; `spent`: what it costs beside time, names and words."""
    exchange = result["exchange_time_s"]
    facts = Table.grid(padding=(0, 2, 0, 0))
    often = "every step" if policy.interval == 1 else f"every {policy.interval} steps"
    facts.add_row("exchange", f"{often}, {show(exchange['mean'], TIME)} (p95 {show(exchange['p95'], TIME)})")
    facts.add_row("WAN", verdict)
    facts.add_row("throughput", throughput_line(result))
    if result["relative_to_colocated"] > 1.001:
        facts.add_row("", _FASTER)
    facts.add_row(
        "traffic", f"{words.percent(result['wan_bytes_vs_ddp'])} of what plain DDP sends over the WAN"
    )
    for name, text in spent:
        facts.add_row(name, text)
    blocks: list[RenderableType] = [
        heading(scenario, policy), "", step_table(result, by_site(scenario, result)), "",
    ]  # fmt: skip
    if result["links"]:
        blocks += [links_table(scenario, result), ""]
    if any(site["idle_s"] > _IDLE_SHARE * result["step_time_s"]["mean"] for site in result["sites"].values()):
        blocks += [sites_table(scenario, result), ""]
    return Group(*blocks, facts)


def sites_table(scenario: Scenario, result: ResultDict) -> RenderableType:
    """What each site does with a step, and what waiting for slower ones costs it."""
    table = plain_table(
        "site", "batch", "compute\na step", "waits", "of that for\nslower sites", "", right=(1, 2, 3, 4)
    )
    batches = dict(zip((site.name for site in scenario.sites), site_batches(scenario), strict=True))
    for name, time in result["sites"].items():
        table.add_row(
            name,
            str(batches[name]),
            show(time["compute_s"], TIME),
            show(time["wait_s"], TIME),
            show(time["idle_s"], TIME),
            Text(bar(time["idle_s"] / result["step_time_s"]["mean"], BAR // 2), style="red"),
        )
    return table


def throughput_line(result: ResultDict) -> str:
    """Tokens per second, and what the same accelerators reach in one room."""
    share = words.percent(result["relative_to_colocated"])
    return f"{words.rate(result['tokens_per_s'])} tokens/s, {share} of the same accelerators in one room"


def comparison(scenario: Scenario, results: Sequence[ResultDict], names: Sequence[str]) -> RenderableType:
    """Results side by side, one column a policy."""
    fits = sum(len(name) + 2 for name in names) <= _NAMES
    heads = names if fits else [name.replace("-", "-\n") for name in names]
    table = plain_table("", *heads, right=range(1, len(names) + 1))
    known = [parts_of(r) for r in results]
    for key, (name, _, colour) in PARTS.items():
        if any(key in parts for parts in known):
            cells = [show(parts.get(key, 0.0), TIME) for parts in known]
            table.add_row(Text(name, style=colour), *cells)
    steps = [r["step_time_s"] for r in results]
    table.add_row(Text("step", style="bold"), *(Text(show(s["mean"], TIME), style="bold") for s in steps))
    table.add_row("step, p95", *(show(s["p95"], TIME) for s in steps))
    table.add_row("compute utilization", *(words.percent(r["compute_utilization"]) for r in results))
    table.add_row("exchange", *(show(r["exchange_time_s"]["mean"], TIME) for r in results))
    table.add_row("traffic a step, all links", *(show(_traffic(r), SIZE) for r in results))
    table.add_row("of plain DDP's", *(words.percent(r["wan_bytes_vs_ddp"]) for r in results))
    table.add_row("busiest link", *(words.percent(_busiest(r)) for r in results))
    table.add_row("tokens/s", *(words.rate(r["tokens_per_s"]) for r in results))
    table.add_row("of one room's", *(words.percent(r["relative_to_colocated"]) for r in results))
    return Group(heading(scenario), "", table)


def listing(title: str, items: Sequence[str]) -> RenderableType:
    """A title and sentences below it, each wrapped beside its dash."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for item in items:
        grid.add_row("-", Text(item))
    return Group("", Text(title, style="bold"), Padding(grid, (0, 0, 0, 0)))


def _traffic(result: ResultDict) -> float:
    return sum(link["bytes_per_step"] for link in result["links"].values())


def _busiest(result: ResultDict) -> float:
    return max((link["utilization"] for link in result["links"].values()), default=0.0)
