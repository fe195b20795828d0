"""What encoding, decoding and applying cost a WAN rank, from element counts and payload bytes.

Codecs stream through memory, so what they do to elements costs the bytes that must be read and written, over
the share of the memory bandwidth that they reach. A payload is hashed where it leaves and where it comes, by
one core of the host, and between an accelerator and its host it is copied. The constants come from
`georun bench codec` on the first two machines that it has run on; `python -m experiments.codec_cost` holds
this model against all rows of those and of others. A `Calibration` replaces all of it by measured values.
"""

from dataclasses import dataclass

from geosim.cost.calibration import Calibration
from geosim.policy import Codec, Dense, NoResidual
from geosim.policy.codec import chosen, kept_in_section
from geosim.scenario import Accelerator

_BYTES = 4
# Share of the memory bandwidth. Selecting at random, or quantizing all, processors are bound by arithmetic.
_REACHED = 0.35
_REACHED_BY_PROCESSORS = {"dense": 0.12, "topk": 0.36, "randomk": 0.16}
_REACHED_BY_COPIES = 0.8  # of the rate that the link to the host is sold by
_HASHED_PER_S = 7.4e9  # bytes, by a core of an Intel Xeon
# A value that travels alone touches a cache line of the sum, read and written.
_LINE_BYTES = 64
_PASSES_ADAM = 7
_PASSES_ACCUMULATE = 3
_PASSES_OUTER = 5


@dataclass(frozen=True)
class CodecRates:
    """Seconds an element, value or payload byte on one rank, and seconds of whole-model steps an element."""

    encode_s_per_element: float
    encode_s_per_byte: float
    decode_s_per_value: float
    decode_s_per_element: float
    decode_s_per_byte: float
    optimizer_s_per_element: float
    accumulate_s_per_element: float
    outer_s_per_element: float


def rates(codec: Codec, accelerator: Accelerator, calibration: Calibration) -> CodecRates:
    """Rates of one accelerator under a codec."""
    bandwidth, host = accelerator.memory_bandwidth_bytes_per_s, accelerator.host_bandwidth_bytes_per_s
    one_pass = _BYTES / bandwidth
    dense = isinstance(codec.select, Dense)
    travels = codec.quantize.bits / 8
    # The update is read; the residual read and written, or where something is selected, room for the sum.
    encoded: float = _BYTES + (2 * _BYTES if not (dense and isinstance(codec.residual, NoResidual)) else 0)
    encoded += travels if dense else 0
    decoded = travels + 2 * (_BYTES if dense else _LINE_BYTES)
    processor = accelerator.is_processor
    adding = _REACHED_BY_PROCESSORS["topk"] if processor else _REACHED
    encoding = _REACHED_BY_PROCESSORS[codec.select.kind] if processor else _REACHED
    per_byte = 1 / _HASHED_PER_S + (0.0 if host is None else 1 / (host * _REACHED_BY_COPIES))

    def given(value: float | None, amount: float, reached: float) -> float:
        return amount / (bandwidth * reached) if value is None else value

    return CodecRates(
        encode_s_per_element=given(calibration.encode_s_per_element, encoded, encoding),
        encode_s_per_byte=per_byte if calibration.encode_s_per_element is None else 0.0,
        decode_s_per_value=given(calibration.decode_s_per_value, decoded, adding),
        decode_s_per_element=given(calibration.decode_s_per_element, _BYTES, adding),
        decode_s_per_byte=per_byte if calibration.decode_s_per_value is None else 0.0,
        optimizer_s_per_element=_PASSES_ADAM * one_pass,
        accumulate_s_per_element=_PASSES_ACCUMULATE * one_pass,
        outer_s_per_element=_PASSES_OUTER * one_pass,
    )


def encode_time(numel: float, payload_bytes: float, rate: CodecRates) -> float:
    """Seconds to turn `numel` elements of one rank into a payload on the host."""
    return numel * rate.encode_s_per_element + payload_bytes * rate.encode_s_per_byte


def decode_time(numel: int, payload_bytes: float, codec: Codec, payloads: int, rate: CodecRates) -> float:
    """Seconds to decode `payloads` payloads, each of `numel` elements and `payload_bytes`, to a dense sum."""
    values = kept_in_section(chosen(codec.select, codec.quantize, numel), numel)
    each = values * rate.decode_s_per_value + payload_bytes * rate.decode_s_per_byte
    return payloads * each + numel * rate.decode_s_per_element
