"""What the commands print: rich renderables from scenarios, policies and result dictionaries."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from geosim.policy import SyncPolicy
from geosim.report import words
from geosim.report.parts import PARTS, parts_of
from geosim.scenario import Scenario, site_batches
from geosim.units import BANDWIDTH, SIZE, TIME, show

ResultDict = Mapping[str, Any]
_BAR = 32
_IDLE_SHARE = 0.001  # of a step: sites that wait less for each other are alike
_NAMES = 54  # columns of a screen of 80 that the names of policies, and what parts them, leave each other
_FASTER = (
    "more than in one room: there every step ends with an all-reduce over all ranks and an optimizer step"
)


def plain_table(*columns: str, right: Sequence[int] = (), wrapped: Sequence[int] | None = None) -> Table:
    """A table without lines.

    Args:
        columns: their headings.
        right: numbers of the columns that are set flush right.
        wrapped: numbers of the columns that give way, at blanks, where the screen is narrow; None: all.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, column in enumerate(columns):
        whole = wrapped is not None and i not in wrapped
        table.add_column(column, justify="right" if i in right else "left", overflow="fold", no_wrap=whole)
    return table


def about_table(rows: Sequence[tuple[str, str]]) -> Table:
    """Names and what they are, wrapped beside the name."""
    table = plain_table("name", "about", wrapped=[1])
    for name, about in rows:
        table.add_row(name, about)
    return table


def scenarios_table(scenarios: Sequence[Scenario]) -> RenderableType:
    """What is built in: sites, links and workload, then what each scenario stands for."""
    facts = plain_table("scenario", "sites", "WAN", "model,\nparameters", wrapped=[2])
    for s in scenarios:
        model = s.workload.model
        facts.add_row(
            s.name,
            "\n".join(words.sites(s).split(", ")),
            words.links(s),
            f"{model.name},\n{words.count(model.param_table().numel)}",
        )
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


def step_table(result: ResultDict) -> RenderableType:
    """Where each millisecond of a step goes."""
    parts = parts_of(result)
    step = result["step_time_s"]
    table = plain_table("a step", "time", "share", "", right=(1, 2))
    for key, seconds in parts.items():
        name, _, colour = PARTS[key]
        share = seconds / step["mean"]
        table.add_row(name, show(seconds, TIME), f"{100 * share:.1f} %", Text(_bar(share), style=colour))
    spread = ", ".join(f"{p} {show(step[p], TIME)}" for p in ("p50", "p95", "p99"))
    table.add_row(
        Text("mean", style="bold"),
        Text(show(step["mean"], TIME), style="bold"),
        "",
        Text(spread, style="dim"),
    )
    return table


def links_table(scenario: Scenario, result: ResultDict) -> RenderableType:
    """What each WAN link carries."""
    table = plain_table("link", "bandwidth", "RTT", "traffic a step", "utilization", "", right=(1, 2, 3, 4))
    for name, used in result["links"].items():
        source, target = name.split("->")
        link = scenario.link(source, target)
        if link is not None:
            table.add_row(
                name,
                show(link.bandwidth(source), BANDWIDTH),
                show(link.rtt_s, TIME),
                show(used["bytes_per_step"], SIZE),
                words.percent(used["utilization"]),
                Text(_bar(used["utilization"], _BAR // 2), style="cyan"),
            )
    return table


def simulation(scenario: Scenario, policy: SyncPolicy, result: ResultDict, verdict: str) -> RenderableType:
    """The whole screen of one simulation."""
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
    blocks: list[RenderableType] = [heading(scenario, policy), "", step_table(result), ""]
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
            Text(_bar(time["idle_s"] / result["step_time_s"]["mean"], _BAR // 2), style="red"),
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


def _bar(share: float, width: int = _BAR) -> str:
    """A bar in eighths of a cell; the smallest share above zero still shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]
