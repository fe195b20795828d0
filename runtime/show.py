"""What people see of a run: progress on standard error, tables on standard output."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from geosim.units import BANDWIDTH, SIZE, TIME, show
from runtime.doctor import Finding

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


def write_result(result: dict[str, Any]) -> None:
    """The figures of a run as a table."""
    console = Console()
    table = Table(title=f"{result['policy']} on {result['scenario']}, {result['steps']} steps, measured")
    table.add_column("figure")
    table.add_column("value", justify="right")
    step, exchange = result["step_time_s"], result["exchange_time_s"]
    rows = [
        ("step time, mean", show(step["mean"], TIME)),
        ("step time, p95 over windows", show(step["p95"], TIME)),
        ("compute utilization", f"{result['compute_utilization']:.1%}"),
        ("tokens a second", f"{result['tokens_per_s']:,.0f}"),
    ]
    several = len(result["params_hash"]) > 1
    if several:
        rows += [
            ("exchange, mean", show(exchange["mean"], TIME)),
            ("blocked for the WAN, a step", show(result["exposed_wan_s_per_step"], TIME)),
            ("relative to co-located", f"{result['relative_to_colocated']:.1%}"),
        ]
    for name, link in result["links"].items():
        per_second = link["bytes_per_step"] / step["mean"]
        rows.append(
            (f"{name}, a step", f"{show(link['bytes_per_step'], SIZE)} ({show(per_second, BANDWIDTH)})")
        )
    if result["links"]:
        rows.append(("WAN bytes against flat DDP", f"{result['wan_bytes_vs_ddp']:.2%}"))
    rows += [
        ("loss, first and last step", f"{result['loss'][0][1]:.3f}, {result['loss'][-1][1]:.3f}"),
        ("validation loss", f"{result['val_loss']:.4f}"),
        ("rounds skipped", f"{result['skipped_rounds']} of {result['rounds']}"),
    ]
    rows += [
        (
            f"{site} waits",
            f"{show(time['wait_s'], TIME)} a step, {show(time['idle_s'], TIME)} for slower sites",
        )
        for site, time in result["sites"].items()
        if several
    ]
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if result["paced"]:
        console.print(f"Computation is paced to {_pace(result)} a step: a stand-in for accelerators.")
    if result["late_steps"]:
        console.print(
            f"Warning: {result['late_steps']} of {result['measured_steps']} measured steps computed for "
            "longer than that: raise --pace."
        )
    if result["codec"]:
        console.print(f"Codec: {result['codec']}.")
    if several and result["wan"] == "none":
        console.print(f"No WAN lay between the sites; {_LINKS[result['links_from']]}.")


def _pace(result: dict[str, Any]) -> str:
    """The declared step times."""
    said = [] if result["pace_s"] is None else [show(result["pace_s"], TIME)]
    return ", ".join([*said, *(f"{site} {show(s, TIME)}" for site, s in result["site_pace_s"].items())])


def write_findings(findings: Sequence[Finding]) -> None:
    """What works here, as a table."""
    table = Table(title="georun on this machine")
    for column in ("what", "works", "detail"):
        table.add_column(column)
    for finding in findings:
        table.add_row(finding.what, "yes" if finding.works else "no", escape(finding.detail))
    Console().print(table)
