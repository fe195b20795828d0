"""The claims of all sources as one table, for a terminal of any width, and the reasons below it."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

_ALL_IN_A_LINE = 112  # columns; with fewer, a claim's text stands above its figures
_NARROWEST = 72
_GAP = "  "
_HEADS = ("published", "ours", "error", "verdict")


@dataclass(frozen=True)
class Row:
    """One claim: its source, what it says, and its figures as they are shown."""

    source: str
    id: str
    text: str
    published: str
    ours: str
    error: str
    verdict: str

    @property
    def figures(self) -> tuple[str, ...]:
        """Below `_HEADS`."""
        return self.published, self.ours, self.error, self.verdict


def show(rows: Sequence[Row], reasons: Sequence[str], width: int) -> list[str]:
    """The lines of table and reasons, none longer than `width`, or than the narrowest that can be read."""
    width = max(_NARROWEST, width)
    widths = [max(len(row.figures[i]) for row in rows) for i in range(3)]
    widths = [max(found, len(head)) for found, head in zip(widths, _HEADS[:3], strict=True)]
    lines = _wide(rows, widths, width) if width >= _ALL_IN_A_LINE else _narrow(rows, widths, width)
    for reason in reasons:
        lines += ["", *wrap(reason, width, subsequent_indent="  ", break_on_hyphens=False)]
    return [line.rstrip() for line in lines]


def _figures(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Right-aligned figures, and the verdict."""
    return _GAP.join([*(cell.rjust(w) for cell, w in zip(cells, widths, strict=False)), cells[-1]])


def _wide(rows: Sequence[Row], widths: Sequence[int], width: int) -> list[str]:
    name = max(len(row.id) for row in rows)
    verdict = max(len(row.verdict) for row in rows)
    text = width - name - sum(widths) - verdict - 5 * len(_GAP)
    lines = [f"{'claim':{name + text + 2 * len(_GAP)}}{_figures(_HEADS, widths)}"]
    source = ""
    for row in rows:
        if row.source != source:
            source = row.source
            lines += ["", f"papers/{source}"]
        first, *rest = wrap(row.text, text, break_on_hyphens=False)
        lines.append(_GAP.join((row.id.ljust(name), first.ljust(text), _figures(row.figures, widths))))
        lines += [" " * (name + len(_GAP)) + more for more in rest]
    return lines


def _narrow(rows: Sequence[Row], widths: Sequence[int], width: int) -> list[str]:
    lines = [_GAP + _figures(_HEADS, widths)]
    source = ""
    for row in rows:
        if row.source != source:
            source = row.source
            lines += ["", f"papers/{source}"]
        lines += wrap(f"{row.id}: {row.text}", width, subsequent_indent=_GAP, break_on_hyphens=False)
        lines.append(_GAP + _figures(row.figures, widths))
    return lines
