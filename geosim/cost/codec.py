"""What encoding, decoding and applying cost a WAN rank, from element counts.

Codecs are bound by memory: a cost is the bytes that must be read and written, over the share of the memory
bandwidth that encoders and decoders reach. For the CPU kernels that was 0.26 to 0.46 as the machine's memory
was fast or slow, for an H200 0.37 to 0.39 of what a copy reaches (`georun bench codec`: docs/codecs.md); 0.45
is taken for all. A `Calibration` replaces all of it by measured values.
"""

from dataclasses import dataclass

from geosim.cost.calibration import Calibration
from geosim.policy import Codec, Dense, NoResidual
from geosim.policy.codec import chosen, kept_in_section
from geosim.scenario import Accelerator

_BYTES = 4
_REACHED = 0.45
# A value that travels alone touches a cache line of the sum, read and written.
_LINE_BYTES = 64
_PASSES_ADAM = 7
_PASSES_ACCUMULATE = 3
_PASSES_OUTER = 5


@dataclass(frozen=True)
class CodecRates:
    """Seconds an element or value on one rank, and seconds of whole-model steps an element."""

    encode_s_per_element: float
    decode_s_per_value: float
    decode_s_per_element: float
    optimizer_s_per_element: float
    accumulate_s_per_element: float
    outer_s_per_element: float


def rates(codec: Codec, accelerator: Accelerator, calibration: Calibration) -> CodecRates:
    """Rates of one accelerator under a codec."""
    bandwidth = accelerator.memory_bandwidth_bytes_per_s
    one_pass = _BYTES / bandwidth
    dense = isinstance(codec.select, Dense)
    travels = codec.quantize.bits / 8
    # The update is read; the residual read and written, or where something is selected, room for the sum.
    encoded: float = _BYTES + (2 * _BYTES if not (dense and isinstance(codec.residual, NoResidual)) else 0)
    encoded += travels if dense else 0
    decoded = travels + 2 * (_BYTES if dense else _LINE_BYTES)

    def given(value: float | None, amount: float) -> float:
        return amount / (bandwidth * _REACHED) if value is None else value

    return CodecRates(
        encode_s_per_element=given(calibration.encode_s_per_element, encoded),
        decode_s_per_value=given(calibration.decode_s_per_value, decoded),
        decode_s_per_element=given(calibration.decode_s_per_element, _BYTES),
        optimizer_s_per_element=_PASSES_ADAM * one_pass,
        accumulate_s_per_element=_PASSES_ACCUMULATE * one_pass,
        outer_s_per_element=_PASSES_OUTER * one_pass,
    )


def encode_time(numel: float, rate: CodecRates) -> float:
    """Seconds to turn `numel` elements of one rank into a payload."""
    return numel * rate.encode_s_per_element


def decode_time(numel: int, codec: Codec, payloads: int, rate: CodecRates) -> float:
    """Seconds to decode `payloads` payloads of `numel` elements each and to sum them densely."""
    values = kept_in_section(chosen(codec.select, codec.quantize, numel), numel)
    return payloads * values * rate.decode_s_per_value + numel * rate.decode_s_per_element
