"""What encoding, decoding and applying cost a WAN rank, from element counts.

Codecs are bound by memory: a rate is a number of passes over fp32 arrays times 4 bytes over the memory
bandwidth. The pass counts come from counting array reads and writes of the reference mathematics: residual
add, magnitude, selection by sampled threshold or radix (four passes), gather, scale, round, subtract from the
residual. A `Calibration` replaces them by measured values.
"""

from dataclasses import dataclass

from geosim.cost.calibration import Calibration
from geosim.policy import Cast, Codec, Dense, NoResidual, RandomK
from geosim.policy.codec import kept_in_section
from geosim.scenario import Accelerator

_BYTES = 4
_PASSES_CAST = 2
_PASSES_SCALED = 4
_PASSES_TOPK = 8
_PASSES_RANDOMK = 3
_PASSES_RESIDUAL = 4
_PASSES_DECODED_VALUE = 4
_PASSES_DENSE_SUM = 2
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
    one_pass = _BYTES / accelerator.memory_bandwidth_bytes_per_s
    passes = _PASSES_CAST if isinstance(codec.quantize, Cast) else _PASSES_SCALED
    if isinstance(codec.select, RandomK):
        passes += _PASSES_RANDOMK
    elif not isinstance(codec.select, Dense):
        passes += _PASSES_TOPK
    if not isinstance(codec.residual, NoResidual):
        passes += _PASSES_RESIDUAL

    def given(value: float | None, count: int) -> float:
        return count * one_pass if value is None else value

    return CodecRates(
        encode_s_per_element=given(calibration.encode_s_per_element, passes),
        decode_s_per_value=given(calibration.decode_s_per_value, _PASSES_DECODED_VALUE),
        decode_s_per_element=given(calibration.decode_s_per_element, _PASSES_DENSE_SUM),
        optimizer_s_per_element=_PASSES_ADAM * one_pass,
        accumulate_s_per_element=_PASSES_ACCUMULATE * one_pass,
        outer_s_per_element=_PASSES_OUTER * one_pass,
    )


def encode_time(numel: float, rate: CodecRates) -> float:
    """Seconds to turn `numel` elements of one rank into a payload."""
    return numel * rate.encode_s_per_element


def decode_time(numel: int, codec: Codec, payloads: int, rate: CodecRates) -> float:
    """Seconds to decode `payloads` payloads of `numel` elements each and to sum them densely."""
    values = kept_in_section(codec.select, numel)
    return payloads * values * rate.decode_s_per_value + numel * rate.decode_s_per_element
