"""A point's simulated and its real run in one trace, and what each lane spent in both."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import RenderableType

from experiments.points import Point, Predictor
from geosim.report import trace_files, trace_tables
from geosim.report.trace import timeline
from geosim.sim import Tracer
from geosim.trace_events import document, save


@contextmanager
def traces(asked: Path | None) -> Iterator[Path | None]:
    """Where a real run may leave its trace for a while; None where no trace is asked for."""
    if asked is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "measured.json"


def write_both(path: Path, point: Point, predictor: Predictor, measured: Path) -> RenderableType:
    """Simulate a point once more, write both runs to `path`, and return the table of their lanes.

    Raises:
        UsageError: if the file cannot be written.
    """
    tracer, simulated = Tracer(), measured.with_name("simulated.json")
    said = predictor.predict(point, tracer)
    save(simulated, document(timeline(tracer, {"scenario": said["scenario"], "policy": said["policy"]})))
    files = [trace_files.load(simulated), trace_files.load(measured)]
    names = ["predicted", "measured"]
    save(path, trace_files.side_by_side(files, names))
    return trace_tables.screen(files, names)
