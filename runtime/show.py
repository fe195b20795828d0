"""What people see of a run: progress on standard error, tables on standard output."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table
from rich.text import Text

from geosim.scenario import Scenario
from geosim.screen import BAR, bar, percent, plain_table, rendered
from geosim.units import BANDWIDTH, SIZE, TIME, show
from runtime.doctor import Finding
from runtime.job import Job
from runtime.own_report import of_rank

_PARTS = {
    "compute": ("compute", "blue"),
    "site_collective": ("site collective", "green"),
    "encode": ("encode", "yellow"),
    "wait": ("exposed WAN", "red"),
    "gather": ("gather in the site", "magenta"),
    "apply": ("apply", "bright_yellow"),
}  # of the main thread, so that they and `other` make the step
_LEAST = 0.001  # of a step: less that is left over is not shown
_LINKS = {
    "payloads": "link figures count payload bytes",
    "computed": "link figures are computed: what DDP's ring has to pass on, 2 (N-1)/N of N ranks' gradients",
}


class Progress:
    """A bar on a terminal, a line every tenth of the run elsewhere."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = RichProgress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._bar.add_task("starting the ranks", total=steps)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the terminal to what is printed next."""
        self._bar.stop()

    def note(self, line: str) -> None:
        """Something to know of the run, which is none of its figures."""
        _tell(f"georun: {line}")

    def __call__(self, step: int, steps: int, loss: float) -> None:
        """A step is done."""
        self._bar.update(self._task, completed=step, description=f"loss {loss:.3f}")
        if self._bar.disable and (step % max(1, steps // 10) == 0 or step == steps):
            _tell(f"step {step}/{steps}, loss {loss:.3f}")


def _tell(line: str) -> None:
    """Say a line to whoever watches; that nobody does any more is no reason to end a run."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr)


def write_trace_line(path: Path) -> None:
    """Where a run's trace lies."""
    print(f"\ntrace: {path} (open it at ui.perfetto.dev)")


def write_result(result: Mapping[str, Any], scenario: Scenario) -> None:
    """The figures of a run: where a step's time went, what links carried, what was learnt."""
    several = len(scenario.sites) > 1
    facts = _facts(result, several)
    if several:
        facts.insert(
            1,
            (
                "throughput",
                f"{result['tokens_per_s']:,.0f} tokens/s, {percent(result['relative_to_colocated'])} of the "
                "same ranks in one room",
            ),
        )
        facts.append(
            ("traffic", f"{percent(result['wan_bytes_vs_ddp'])} of what plain DDP sends over the WAN")
        )
    else:
        facts.insert(0, ("throughput", f"{result['tokens_per_s']:,.0f} tokens/s"))
    over = ""
    if several:
        over = " over the emulated WAN" if result["wan"] == "tun" else " without a WAN"
    title = f"{result['scenario']} under {result['policy']}"
    blocks: list[RenderableType] = [
        Text(title, style="bold").append(f": {result['steps']} steps{over}, measured", style="not bold"),
        "",
        _step_table(result, several),
        "",
    ]
    if result["links"]:
        blocks += [_links_table(result, scenario), ""]
    if several:
        facts += [
            (
                f"{site} waits",
                f"{show(time['wait_s'], TIME)} a step, {show(time['idle_s'], TIME)} for slower sites",
            )
            for site, time in result["sites"].items()
        ]
    remarks = _remarks(result)
    if several and result["wan"] == "none":
        remarks.append(f"No WAN lay between the sites; {_LINKS[result['links_from']]}.")
    blocks += [_grid(facts), *_apart(remarks)]
    print(rendered(Group(*blocks)))


def write_rank(job: Job, figures: Mapping[str, Any]) -> None:
    """What one rank, the first of its site, says of a run on real machines."""
    result = of_rank(job, dict(figures))
    several = len(job.sites) > 1
    facts = _facts(result, several)
    facts.insert(0, ("throughput", f"{result['tokens_per_s']:,.0f} tokens/s of all sites"))
    facts.append(("parameters", figures["params_hash"]))
    title = Text(f"{result['site']}: {result['scenario']} under {result['policy']}", style="bold")
    blocks: list[RenderableType] = [
        title.append(f": {result['steps']} steps, measured by rank 0", style="not bold"), "",
        _step_table(result, several), "",
    ]  # fmt: skip
    if result["links"]:
        table = plain_table("link", "payload of the rank, a step", right=(1,))
        for name, link in result["links"].items():
            table.add_row(name, show(link["bytes_per_step"], SIZE))
        blocks += [table, ""]
    blocks += [_grid(facts), *_apart(_remarks(result))]
    print(rendered(Group(*blocks)))


def _pace(result: Mapping[str, Any]) -> str:
    """The declared step times."""
    said = [] if result["pace_s"] is None else [show(result["pace_s"], TIME)]
    return ", ".join([*said, *(f"{site} {show(s, TIME)}" for site, s in result["site_pace_s"].items())])


def write_findings(findings: Sequence[Finding]) -> None:
    """What works here, as a table."""
    table = plain_table("what", "works", "detail", wrapped=[2])
    for finding in findings:
        table.add_row(finding.what, "yes" if finding.works else "no", Text(finding.detail))
    print(rendered(table))


def _step_table(result: Mapping[str, Any], several: bool) -> Table:
    """Where each millisecond of a step went; one site has no WAN to wait for."""
    step = result["step_time_s"]
    table = plain_table("a step", "time", "share", "", right=(1, 2))
    rows = [
        (words, colour, result["parts"][key])
        for key, (words, colour) in _PARTS.items()
        if several or key != "wait"
    ]
    rows.append(("other", "bright_black", step["mean"] - sum(seconds for _, _, seconds in rows)))
    for words, colour, seconds in rows:
        if seconds > (_LEAST * step["mean"] if words == "other" else 0):
            share = seconds / step["mean"]
            table.add_row(words, show(seconds, TIME), f"{100 * share:.1f} %", Text(bar(share), style=colour))
    spread = ", ".join(f"{p} {show(step[p], TIME)}" for p in ("p50", "p95", "p99"))
    mean = Text(show(step["mean"], TIME), style="bold")
    table.add_row(Text("mean", style="bold"), mean, "", Text(spread, style="dim"))
    return table


def _links_table(result: Mapping[str, Any], scenario: Scenario) -> Table:
    """What each link carried; how much of it that is, where an emulated WAN has counted."""
    counted = result["wan"] == "tun"
    heads = ("link", "bandwidth", "RTT", "traffic a step", *(("utilization", "") if counted else ("rate",)))
    table = plain_table(*heads, right=(1, 2, 3, 4))
    for name, used in result["links"].items():
        source, target = name.split("->")
        link = scenario.link(source, target)
        assert link is not None
        cells = [name, show(link.bandwidth(source), BANDWIDTH), show(link.rtt_s, TIME)]
        cells.append(show(used["bytes_per_step"], SIZE))
        share = used["utilization"]
        rate = used["bytes_per_step"] / result["step_time_s"]["mean"]
        last = (
            [percent(share), Text(bar(share, BAR // 2), style="cyan")] if counted else [show(rate, BANDWIDTH)]
        )
        table.add_row(*cells, *last)
    return table


def _facts(result: Mapping[str, Any], several: bool) -> list[tuple[str, str]]:
    exchange = result["exchange_time_s"]
    rows = []
    if several:
        rows.append(("exchange", f"{show(exchange['mean'], TIME)} (p95 {show(exchange['p95'], TIME)})"))
    first, last = result["loss"][0], result["loss"][-1]
    rows.append(
        ("loss", f"{first[1]:.3f} in step {first[0]}, {last[1]:.3f} in step {last[0]}; "
         f"validation {result['val_loss']:.4f}")
    )  # fmt: skip
    rows.append(("rounds", f"{result['skipped_rounds']} of {result['rounds']} skipped"))
    if result["codec"]:
        rows.append(("codec", result["codec"]))
    return rows


def _remarks(result: Mapping[str, Any]) -> list[str]:
    out = []
    if result["paced"]:
        out.append(f"Computation is paced to {_pace(result)} a step: a stand-in for accelerators.")
    if result["late_steps"]:
        out.append(
            f"Warning: {result['late_steps']} of {result['measured_steps']} measured steps computed for "
            "longer than that: raise --pace."
        )
    return out


def _apart(remarks: Sequence[str]) -> list[str]:
    """Remarks, below an empty line."""
    return ["", *remarks] if remarks else []


def _grid(rows: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, text in rows:
        grid.add_row(name, text)
    return grid
