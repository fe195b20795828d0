"""The policies that the tuner considers: five axes around a base policy."""

from collections.abc import Collection
from dataclasses import dataclass
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
    Fixed,
    Integer,
    NoResidual,
    Overlap,
    Quantize,
    RandomK,
    Select,
    Streaming,
    SyncPolicy,
    TopK,
)

MAX_INTERVAL_ACCUMULATE = 64
MAX_INTERVAL_LOCAL = 512
_INTERVALS = tuple(2**i for i in range(11))
_RATIOS = (0.1, 0.03, 0.01, 0.003, 0.001)
_STREAMS = (1, 2, 4, 8)


class Axes(NamedTuple):
    """One place in the space."""

    interval: int
    select: Select
    quantize: Quantize
    overlap: Overlap
    streams: int


@dataclass(frozen=True)
class Space:
    """Values of each axis, from the least aggressive on, and what its policies share.

    Attributes:
        residual: None: the base's error feedback, or one of its own, wherever something is lost.
        name, about: of every policy.
    """

    interval: tuple[int, ...]
    select: tuple[Select, ...]
    quantize: tuple[Quantize, ...]
    overlap: tuple[Overlap, ...]
    streams: tuple[int, ...]
    residual: NoResidual | Feedback | None
    name: str
    about: str


def space_around(base: SyncPolicy, max_interval: int | None = None, held: Collection[str] = ()) -> Space:
    """The axes that a base leaves open.

    Args:
        base: its update, topology, order, slices, shards and clipping are kept; so is an eager or streaming
            overlap, the scope of a sparse selection, the group and rounding of scaled values and the decay of
            a residual.
        max_interval: the largest K; None: 64 for `accumulate`, where K multiplies the batch, 512 for `local`.
        held: fields of the base that are no axes any more, as `held.held_fields` names them.

    Raises:
        UsageError: a base that is not the tuner's to choose for (plain data parallelism, groups, an interval
            that adapts), or a bound that leaves no K.
    """
    if base.is_flat:
        raise UsageError(
            f"base policy {base.name}: topology 'flat-ring' is plain data parallelism and leaves nothing to "
            "choose: use another preset, such as --base hierarchical-efsgd or --base local-sgd"
        )
    if base.groups:
        raise UsageError(
            f"base policy {base.name}: groups: the tuner does not choose an overlap a group: leave groups out"
        )
    if not isinstance(base.adapt, Fixed):
        raise UsageError(
            f"base policy {base.name}: adapt: the tuner chooses one interval for good: leave adapt out"
        )
    codec, mixes = base.codec, isinstance(base.overlap, Streaming) and base.overlap.alpha > 0
    keeps_overlap = "overlap" in held or isinstance(base.overlap, Eager | Streaming)
    residual = codec.residual if "codec.residual" in held else NoResidual() if mixes else None
    return Space(
        interval=_intervals(base, max_interval, "interval" in held),
        select=(codec.select,) if "codec.select" in held else _selections(codec, dense_only=mixes),
        quantize=(codec.quantize,) if "codec.quantize" in held else _formats(codec),
        overlap=(base.overlap,) if keeps_overlap else (Blocking(), Delayed()),
        streams=(base.streams,) if "streams" in held else _STREAMS,
        residual=residual,
        name=base.name if "name" in held else "tuned",
        about=base.about if "about" in held else "",
    )


def _intervals(base: SyncPolicy, most: int | None, held: bool) -> tuple[int, ...]:
    if held:
        if most is not None and base.interval > most:
            raise UsageError(
                f"--max-interval {most}: policy.interval={base.interval} is above it: leave one of them out"
            )
        return (base.interval,)
    if most is None:
        most = MAX_INTERVAL_ACCUMULATE if isinstance(base.update, Accumulate) else MAX_INTERVAL_LOCAL
    least = base.overlap.steps + 1 if isinstance(base.overlap, Streaming) else 1
    intervals = tuple(k for k in _INTERVALS if least <= k <= most)
    if not intervals:
        raise UsageError(f"--max-interval {most}: no interval is left: use {least} or more")
    return intervals


def _selections(codec: Codec, dense_only: bool) -> tuple[Select, ...]:
    """Dense, and the ratios, unless what they leave out can have no residual (mixed parameters)."""
    if dense_only:
        return (Dense(),)
    kind = RandomK if isinstance(codec.select, RandomK) else TopK
    scope = getattr(codec.select, "scope", "piece")
    return (Dense(), *(kind(ratio=ratio, scope=scope) for ratio in _RATIOS))


def _formats(codec: Codec) -> tuple[Quantize, ...]:
    group = getattr(codec.quantize, "group", 64)
    rounding = getattr(codec.quantize, "rounding", "nearest")
    int8, int4 = (Integer(kind=kind, group=group, rounding=rounding) for kind in ("int8", "int4"))
    return (Cast(kind="fp32"), Cast(kind="bf16"), int8, int4)


def candidates(base: SyncPolicy, space: Space) -> dict[Axes, SyncPolicy]:
    """Every policy of the space by its place on the axes, in a fixed order."""
    fields = {name: getattr(base, name) for name in SyncPolicy.model_fields}
    fields |= {"name": space.name, "about": space.about}
    out = {}
    for select, quantize in product(space.select, space.quantize):
        residual = _feedback(base.codec, select, quantize) if space.residual is None else space.residual
        coded = {"select": select, "quantize": quantize, "residual": residual}
        codec = base.codec.model_copy(update=coded)
        for interval, overlap, streams in product(space.interval, space.overlap, space.streams):
            chosen = {"codec": codec, "interval": interval, "overlap": overlap, "streams": streams}
            out[Axes(interval, select, quantize, overlap, streams)] = SyncPolicy(**fields | chosen)
    return out


def _feedback(base: Codec, select: Select, quantize: Quantize) -> NoResidual | Feedback:
    """A residual if anything is lost, the base's where it has one."""
    if isinstance(select, Dense) and quantize == Cast(kind="fp32"):
        return NoResidual()
    return base.residual if isinstance(base.residual, Feedback) else Feedback()


def neighbours(space: Space, here: Axes) -> dict[str, Axes]:
    """By axis: the place one step less aggressive on that axis and equal on all others."""
    out = {}
    for axis in Axes._fields:
        values = getattr(space, axis)
        at = values.index(getattr(here, axis))
        if at > 0:
            out[axis] = here._replace(**{axis: values[at - 1]})
    return out


def default_base() -> SyncPolicy:
    """What the tuner starts from unless told otherwise: accumulated gradients, sent directly."""
    return SyncPolicy(name="tuned", update=Accumulate())
