"""Rows of a sweep on disk, in grid order: written as they come, and found again after a run that ended early.

A CSV file grows row by row. A Parquet file cannot, so its rows gather in a CSV file beside it until the last
one is there.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from geosim.errors import UsageError
from geosim.files import whole_file
from geosim.questions.sweep import METRICS, Row, Sweep

_KEY = b"geosim.sweep"
_REMEDY = "name another --out, or remove it"


class RowFile:
    """The file of a sweep. A context: it is open for `add` inside.

    Attributes:
        rows: what is in it.
    """

    def __init__(self, path: Path, sweep: Sweep, resume: bool) -> None:
        """Find out what is there already.

        Raises:
            UsageError: a wrong kind of file, one that is there without `resume`, one of another sweep, or
                one that cannot be written.
        """
        if path.suffix not in (".csv", ".parquet"):
            raise UsageError(f"--out {path}: write to a file that ends in .csv or .parquet")
        self.rows: list[Row] = []
        self._path, self._sweep = path, sweep
        self._parquet = path.suffix == ".parquet"
        self._csv = path.with_name(f"{path.name}.rows.csv") if self._parquet else path
        self._whole = 0
        if self._parquet:
            _pyarrow()
        for file in dict.fromkeys((path, self._csv)):
            if file.exists() and not resume:
                raise UsageError(f"--out {file}: is there already: add --resume to go on, or {_REMEDY}")
        if self._parquet and path.exists():
            self.rows = _read_parquet(path, sweep)
        elif self._csv.exists():
            self.rows, self._whole = _read_csv(self._csv, sweep)

    def __enter__(self) -> "RowFile":
        if self.is_complete:
            return self
        try:
            self._file = open(self._csv, "r+" if self._csv.exists() else "x", newline="", encoding="utf-8")
            self._file.truncate(self._whole)
            self._file.seek(self._whole)
        except OSError as error:
            raise UsageError(f"--out {self._csv}: cannot write: {error.strerror}") from None
        if not self._whole:
            self._write(self._sweep.columns)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if hasattr(self, "_file"):
            self._file.close()
            if kind is None and self._parquet and self.is_complete:
                _write_parquet(self._path, self._sweep, self.rows)
                self._csv.unlink()

    @property
    def is_complete(self) -> bool:
        """Whether every point of the grid has its row."""
        return len(self.rows) == len(self._sweep)

    def add(self, row: Row) -> None:
        """Append the row of the next point."""
        self._write([_text(row[column]) for column in self._sweep.columns])
        self.rows.append(row)

    def _write(self, cells: Sequence[str]) -> None:
        """One line in one call, so that what is cut off by a kill is the end of the file."""
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(cells)
        self._file.write(line.getvalue())
        self._file.flush()


def _text(value: Any) -> str:
    return "" if value is None else repr(value) if isinstance(value, float) else str(value)


def _read_csv(path: Path, sweep: Sweep) -> tuple[list[Row], int]:
    """The rows of a file, and the bytes up to its last whole line.

    Raises:
        UsageError: if they are not the first rows of the sweep.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--out {path}: cannot read: {error.strerror}") from None
    whole = data.rfind(b"\n") + 1
    header = ",".join(sweep.columns).encode()
    if not whole and header.startswith(data):
        return [], 0
    lines = csv.reader(io.StringIO(data[:whole].decode("utf-8", "replace"), newline=""))
    return list(_checked(path, lines, sweep)), whole


def _checked(path: Path, lines: Iterator[list[str]], sweep: Sweep) -> Iterator[Row]:
    columns = sweep.columns
    if next(lines, None) != columns:
        raise _other(path)
    for point, cells in enumerate(lines):
        if len(cells) != len(columns) or point >= len(sweep):
            raise _other(path)
        row: Row = dict(zip(columns, cells, strict=True))
        place = sweep.place(point)
        same = all(row[name] == _text(value) for name, value in place.items())
        if not same or row["sweep"] != sweep.fingerprint:
            raise _other(path)
        try:
            yield row | place | {name: float(row[name]) if row[name] else None for name in METRICS}
        except ValueError:
            raise _other(path) from None


def _other(path: Path) -> UsageError:
    return UsageError(f"--out {path}: holds something else than rows of this sweep: {_REMEDY}")


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError("--out: Parquet needs pyarrow: pip install -e '.[parquet]', or write .csv") from None
    return pyarrow, pyarrow.parquet


def _write_parquet(path: Path, sweep: Sweep, rows: Sequence[Row]) -> None:
    pyarrow, parquet = _pyarrow()
    kinds = {}
    for name in sweep.columns:
        held = {type(row[name]) for row in rows}
        whole, numeric = held == {int}, name in METRICS or held <= {int, float}
        kinds[name] = pyarrow.int64() if whole else pyarrow.float64() if numeric else pyarrow.string()
    schema = pyarrow.schema(list(kinds.items()), metadata={_KEY: sweep.fingerprint.encode()})
    texts = [
        {n: v if v is None or kinds[n] != pyarrow.string() else str(v) for n, v in row.items()}
        for row in rows
    ]
    table = pyarrow.Table.from_pylist(texts, schema=schema)
    with whole_file(path) as part:
        parquet.write_table(table, part)


def _read_parquet(path: Path, sweep: Sweep) -> list[Row]:
    pyarrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException):
        raise _other(path) from None
    if (table.schema.metadata or {}).get(_KEY) != sweep.fingerprint.encode() or len(table) != len(sweep):
        raise _other(path)
    return list(table.to_pylist())
