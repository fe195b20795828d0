"""What one measured run tells about a machine, whatever the scenario: constants that replace the defaults."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geosim.documents import read_yaml
from geosim.spec import Seconds, Spec, from_dict, not_negative, within
from geosim.units import TIME

Cost = Annotated[float, AfterValidator(not_negative), Field(le=1)]
Time = Annotated[Seconds, AfterValidator(within("0 s", "1000 h", TIME))]


class Calibration(Spec):
    """Measured constants; a field that is None keeps the model's own value. YAML in and out without loss.

    Attributes:
        step_overhead_s: what a step takes beyond compute, collective and update (data, Python), seconds.
        site_collective_s: exposed part of the gradient all-reduce inside a site, seconds a step.
        accumulate_s: adding a step's gradients to the accumulator, seconds.
        optimizer_s: an optimizer step on the whole model: at a window's end (accumulate), in every step
            (local, and plain data parallelism), seconds.
        outer_s: the outer step on the whole model (local), seconds.
        flag_s: agreement on "not finite" inside a site before a send, seconds.
        encode_s_per_element: selecting, quantizing and residual, seconds an element that a WAN rank owns.
        decode_s_per_value: reading and adding, seconds a value received.
        decode_s_per_element: preparing the dense sum, seconds an element that a WAN rank owns.
        gather_s_per_byte: all-gather inside the site, seconds a byte of the whole fragment in fp32.
        exchange_overhead_s: fixed part of an exchange beyond the wire (thread, headers), seconds.
        backward_share: share of a step's compute with which gradient collectives overlap.
        backend: whose collectives plain DDP uses; None: gloo on processors, NCCL on accelerators.
    """

    step_overhead_s: Time = 0.0
    site_collective_s: Time | None = None
    accumulate_s: Time | None = None
    optimizer_s: Time | None = None
    outer_s: Time | None = None
    flag_s: Time | None = None
    encode_s_per_element: Cost | None = None
    decode_s_per_value: Cost | None = None
    decode_s_per_element: Cost | None = None
    gather_s_per_byte: Cost | None = None
    exchange_overhead_s: Time = 0.0
    backward_share: Annotated[float, Field(ge=0, le=1)] = 2 / 3
    backend: Literal["gloo", "nccl"] | None = None


def load_calibration(path: Path) -> Calibration:
    """A calibration from its YAML file.

    Raises:
        UsageError: a missing file, an unknown key or a wrong unit: one line.
    """
    return from_dict(Calibration, read_yaml(path), f"calibration {path}")
