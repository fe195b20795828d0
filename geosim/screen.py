"""What `geosim` and `georun` print with: tables without lines, bars, and shares in per cent."""

from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table

BAR = 32  # cells of a whole bar
_NARROWEST = 80  # columns; a narrower terminal breaks the lines itself, and nothing is left out


def rendered(what: RenderableType) -> str:
    """A screen as text, as wide as the terminal is, without the blanks that pad tables to their width."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, _NARROWEST)
    with console.capture() as capture:
        console.print(what)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


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


def percent(value: float, digits: int = 3) -> str:
    """A share as per cent: three significant digits, never in exponents, never 100 for what is less."""
    number = 100 * value
    if 0 < number < 0.001:
        return "< 0.001 %"
    if 99.9 <= number < 99.999999:
        return f"{min(number, 99.99):.2f} %"
    if number >= 1000:
        return f"{number:,.0f} %"
    return f"{float(f'{number:.{digits}g}'):g} %"


def bar(share: float, width: int = BAR) -> str:
    """A bar in eighths of a cell; the smallest share above zero still shows."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]
