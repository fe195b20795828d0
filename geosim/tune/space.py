"""The policies that the tuner considers: five axes around a base policy."""

from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from geosim.errors import UsageError
from geosim.policy import (
    Accumulate,
    Blocking,
    Cast,
    Codec,
    Delayed,
    Dense,
    Eager,
    Feedback,
    Integer,
    NoResidual,
    Overlap,
    RandomK,
    Streaming,
    SyncPolicy,
    TopK,
)

MAX_INTERVAL_ACCUMULATE = 64
MAX_INTERVAL_LOCAL = 512


class Axes(NamedTuple):
    """One place in the space."""

    interval: int
    ratio: float
    form: str
    overlap: Overlap
    streams: int


@dataclass(frozen=True)
class Space:
    """Values of each axis, from the least aggressive on; ratio 1 is dense."""

    interval: tuple[int, ...] = tuple(2**i for i in range(11))
    ratio: tuple[float, ...] = (1.0, 0.1, 0.03, 0.01, 0.003, 0.001)
    form: tuple[str, ...] = ("fp32", "bf16", "int8", "int4")
    overlap: tuple[Overlap, ...] = (Blocking(), Delayed())
    streams: tuple[int, ...] = (1, 2, 4, 8)


def space_around(base: SyncPolicy, max_interval: int | None = None) -> Space:
    """The axes that a base leaves open.

    Args:
        base: its update, topology, order, slices, shards and clipping are kept; so is an eager or streaming
            overlap, the scope of a sparse selection, the group of scales and the decay of a residual.
        max_interval: the largest K; None: 64 for `accumulate`, where K multiplies the batch, 512 for `local`.

    Raises:
        UsageError: a base without freedom (plain data parallelism, groups), or a bound that leaves no K.
    """
    if base.is_flat:
        raise UsageError(
            f"--base {base.name}: plain data parallelism leaves nothing to choose: use another preset, "
            "such as 'hierarchical-efsgd' or 'local-sgd'"
        )
    if base.groups:
        raise UsageError(
            f"--base {base.name}: the tuner does not choose an overlap a group: leave groups out"
        )
    if max_interval is None:
        max_interval = MAX_INTERVAL_ACCUMULATE if isinstance(base.update, Accumulate) else MAX_INTERVAL_LOCAL
    space = Space()
    least = base.overlap.steps + 1 if isinstance(base.overlap, Streaming) else 1
    intervals = tuple(k for k in space.interval if least <= k <= max_interval)
    if not intervals:
        raise UsageError(f"--max-interval {max_interval}: no interval is left: use {least} or more")
    space = replace(space, interval=intervals)
    if isinstance(base.overlap, Eager | Streaming):
        space = replace(space, overlap=(base.overlap,))
    if isinstance(base.overlap, Streaming) and base.overlap.alpha > 0:
        # What top-k leaves out needs a residual, and a residual does not go with mixed parameters.
        space = replace(space, ratio=(1.0,))
    return space


def candidates(base: SyncPolicy, space: Space) -> dict[Axes, SyncPolicy]:
    """Every policy of the space by its place on the axes, in a fixed order."""
    fields = {name: getattr(base, name) for name in SyncPolicy.model_fields} | {"name": "tuned", "about": ""}
    mixes = isinstance(base.overlap, Streaming) and base.overlap.alpha > 0
    out = {}
    for ratio, form in product(space.ratio, space.form):
        codec = _codec(base.codec, ratio, form, residual=not mixes)
        for interval, overlap, streams in product(space.interval, space.overlap, space.streams):
            chosen = {"codec": codec, "interval": interval, "overlap": overlap, "streams": streams}
            out[Axes(interval, ratio, form, overlap, streams)] = SyncPolicy(**fields | chosen)
    return out


def neighbours(space: Space, here: Axes) -> dict[str, Axes]:
    """By axis: the place one step less aggressive on that axis and equal on all others."""
    out = {}
    for axis in Axes._fields:
        values = getattr(space, axis)
        at = values.index(getattr(here, axis))
        if at > 0:
            out[axis] = here._replace(**{axis: values[at - 1]})
    return out


def _codec(base: Codec, ratio: float, form: str, residual: bool) -> Codec:
    """The base's codec with another ratio and format, and a residual if anything is lost."""
    select: Dense | TopK | RandomK = Dense()
    if ratio < 1:
        kind = RandomK if isinstance(base.select, RandomK) else TopK
        select = kind(ratio=ratio, scope=getattr(base.select, "scope", "piece"))
    quantize: Cast | Integer
    if form in ("int8", "int4"):
        quantize = Integer(kind=form, group=getattr(base.quantize, "group", 64))
    else:
        quantize = Cast(kind=form)
    kept: NoResidual | Feedback = NoResidual()
    if residual and (ratio < 1 or form != "fp32"):
        kept = base.residual if isinstance(base.residual, Feedback) else Feedback()
    return base.model_copy(update={"select": select, "quantize": quantize, "residual": kept})


def default_base() -> SyncPolicy:
    """What the tuner starts from unless told otherwise: accumulated gradients, sent directly."""
    return SyncPolicy(name="tuned", update=Accumulate())
