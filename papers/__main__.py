"""Hold every claim against this code and print one table: `python -m papers`, or `make papers`.

A source is a folder with a `claims.toml` and a `reproduce.py`, whose `reproduce()` returns a value for every
claim and for every `{name}` in a reason: what a counter-run found. Exit status 1 if a claim that is marked as
reproduced fails, or one marked as not reproduced suddenly holds.
"""

import importlib
import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from geosim.console import run_quietly
from geosim.errors import UsageError
from papers.arguments import Arguments
from papers.screen import Row, show

_FOLDER = Path(__file__).parent
_WIDTH = 120  # where no terminal says
_ROUNDING = 1e-12  # what is below is rounding, and differs from machine to machine


@dataclass(frozen=True)
class Claim:
    """One row of a `claims.toml`: a value in the unit that is named, and how ours must relate to it."""

    id: str
    text: str
    value: float
    unit: str
    relation: str
    tolerance: float
    status: str
    reason: str

    def holds(self, ours: float) -> bool:
        """Whether our value bears the claim out. `tolerance` is relative, for relation `about`."""
        if self.relation == "at least":
            return ours >= self.value
        if self.relation == "at most":
            return ours <= self.value
        return abs(ours - self.value) <= self.tolerance * abs(self.value)

    def error(self, ours: float) -> str:
        """How far ours is from what is published: relative, or in the unit from 0; empty for a kept bound."""
        if self.relation != "about" and self.holds(ours):
            return ""
        off = ours - self.value
        return (
            f"{round(100 * off / abs(self.value), 1) + 0.0:+.1f} %"
            if self.value
            else f"{off:+.3g} {self.unit}"
        )

    def as_marked(self, ours: float) -> bool:
        """Whether a claim that is marked as reproduced holds, and one that is not does not."""
        return self.holds(ours) == (self.status == "reproduced")

    def row(self, source: str, ours: float) -> Row:
        """The claim beside our value."""
        bound = "" if self.relation == "about" else f"{self.relation} "
        found = f"< {_ROUNDING:g}" if 0 < abs(ours) < _ROUNDING else f"{ours:.4g}"
        verdict = "reproduced" if self.holds(ours) else "not reproduced"
        return Row(
            source,
            self.id,
            self.text,
            f"{bound}{self.value:g} {self.unit}".rstrip(),
            f"{found} {self.unit}".rstrip(),
            self.error(ours),
            verdict if self.as_marked(ours) else f"now {verdict}",
        )


def folders() -> list[Path]:
    """The folders of all sources."""
    return sorted(path.parent for path in _FOLDER.glob("*/claims.toml"))


def read_claims(folder: Path) -> list[Claim]:
    """The claims of one source."""
    rows = tomllib.loads((folder / "claims.toml").read_text(encoding="utf-8"))["claim"]
    return [Claim(**{"tolerance": 0.0, "reason": "", **row}) for row in rows]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all sources, or those that are named."""
    names = [folder.name for folder in folders()]
    parser = Arguments("python -m papers", description="Hold published claims against this code.")
    parser.add_argument("source", nargs="*", help=f"one of {', '.join(names)}; none: all")
    asked = parser.parse_args(arguments).source
    for name in asked:
        if name not in names:
            raise UsageError(f"no source '{name}': use one of {', '.join(names)}")
    rows: list[Row] = []
    reasons, held, wrong = [], 0, 0
    for folder in folders():
        if asked and folder.name not in asked:
            continue
        found = importlib.import_module(f"papers.{folder.name}.reproduce").reproduce()
        for claim in read_claims(folder):
            ours = found[claim.id]
            held += claim.holds(ours)
            wrong += not claim.as_marked(ours)
            rows.append(claim.row(folder.name, ours))
            if claim.reason:
                reasons.append(f"{claim.id}: {claim.reason.format_map(found)}")
    ending = f"{wrong} unlike marked" if wrong else "all as marked"
    reasons.append(f"{len(rows)} claims: {held} reproduced, {len(rows) - held} not reproduced, {ending}.")
    print("\n".join(show(rows, reasons, shutil.get_terminal_size((_WIDTH, 24)).columns)), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(run_quietly(main, "papers"))
