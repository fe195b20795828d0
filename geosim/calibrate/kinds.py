"""The kinds of files that are read, each recognised by its content."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from geosim.calibrate import hf_config, iperf3, nccl_tests, ping, torch_trace
from geosim.calibrate.reading import Reading
from geosim.calibrate.source import Source, open_source
from geosim.errors import UsageError


@dataclass(frozen=True)
class Kind:
    """One kind: whether a file is one, and what it says."""

    recognise: Callable[[Source], bool]
    read: Callable[[Source], Reading]
    about: str


KINDS: Mapping[str, Kind] = {
    "iperf3": Kind(iperf3.recognise, iperf3.read, "iperf3 -J"),
    "ping": Kind(ping.recognise, ping.read, "ping"),
    "nccl-tests": Kind(nccl_tests.recognise, nccl_tests.read, "nccl-tests, such as all_reduce_perf"),
    "torch-trace": Kind(torch_trace.recognise, torch_trace.read, "Chrome trace of torch.profiler"),
    "hf-config": Kind(hf_config.recognise, hf_config.read, "config.json of Hugging Face"),
}


def read_file(path: Path, kind: str | None = None) -> Reading:
    """What a file says.

    Args:
        path: a text file, gzip or plain.
        kind: one of `KINDS`; None: found by the content.

    Raises:
        UsageError: a file that is broken or of no known kind, or that its reader refuses: one line.
    """
    if kind is not None and kind not in KINDS:
        raise UsageError(f"--as {kind}: use one of {', '.join(KINDS)}")
    source = open_source(path)
    if kind is not None:
        if not KINDS[kind].recognise(source):
            raise UsageError(f"{source.name}: has nothing of {KINDS[kind].about}")
        return KINDS[kind].read(source)
    found = [known for known in KINDS.values() if known.recognise(source)]
    if not found:
        known = "; ".join(k.about for k in KINDS.values())
        raise UsageError(f"{source.name}: of no known kind: known are {known}")
    if len(found) > 1:
        raise UsageError(
            f"{source.name}: looks like {' and '.join(k.about for k in found)}: say which by --as"
        )
    return found[0].read(source)
