"""Speed and memory of the runtime's codecs: `georun bench codec`."""

from runtime.bench.codec import measure_codecs, summary_rows
from runtime.bench.show import Stages, write_codecs

__all__ = ["Stages", "measure_codecs", "summary_rows", "write_codecs"]
