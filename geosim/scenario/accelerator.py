"""What computes: peak rates and memory as the vendor states them."""

from functools import cache
from pathlib import Path
from typing import Any

from geosim.documents import nearest, read_built_in
from geosim.errors import UsageError
from geosim.scenario.ranges import Rate, Speed, Storage
from geosim.spec import Spec, from_dict

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")


class Accelerator(Spec):
    """One accelerator. Peaks are dense (no structured sparsity), by the precision of the matrix products.

    A peak that is None is not offered by the device. `host_bandwidth_bytes_per_s` is its link to the host's
    memory, one way; None: it computes there.
    """

    name: str
    bf16_flops: Speed | None = None
    fp16_flops: Speed | None = None
    tf32_flops: Speed | None = None
    fp32_flops: Speed
    fp8_flops: Speed | None = None
    memory_bytes: Storage
    memory_bandwidth_bytes_per_s: Rate
    host_bandwidth_bytes_per_s: Rate | None = None
    source: str

    @property
    def is_processor(self) -> bool:
        """Whether it is a processor: none of them offers 16-bit matrix products here."""
        return self.bf16_flops is None

    def peak_flops(self, precision: str) -> float:
        """Peak FLOP/s at a precision.

        Raises:
            UsageError: if the device does not offer it.
        """
        peak = getattr(self, f"{precision}_flops", None)
        if peak is None:
            offered = [p for p in PRECISIONS if getattr(self, f"{p}_flops") is not None]
            raise UsageError(
                f"workload.precision: {self.name} has no {precision}: use one of {', '.join(offered)}"
            )
        return float(peak)


@cache
def accelerators() -> dict[str, Accelerator]:
    """The built-in accelerators by name."""
    data = read_built_in(Path(__file__).parent / "catalog" / "accelerators.yaml")
    return {
        name: from_dict(Accelerator, {"name": name, **row}, f"accelerator {name}")
        for name, row in data.items()
    }


def _nearest(name: str) -> str | None:
    """The accelerator that was probably meant: one of the same make before one that is spelt alike."""
    make = name.lower().split("-")[0]
    same = [known for known in accelerators() if known.lower().split("-")[0] == make]
    return nearest(name, same) or next(iter(same), None) or nearest(name, accelerators())


def resolve_accelerator(value: Any) -> Any:
    """Validator: a catalog name, or an accelerator written out."""
    if not isinstance(value, str):
        return value
    if value not in accelerators():
        near = _nearest(value)
        meant = f"did you mean '{near}'? " if near else ""
        raise UsageError(
            f"unknown accelerator '{value}': {meant}use one of {', '.join(accelerators())}, or write one out"
        )
    return accelerators()[value]
