"""SyncPolicy: what a run sends between sites, when, how, and what it does with it."""

import hashlib
import json
import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from geosim.errors import UsageError
from geosim.policy.adapt import Adapt, Fixed, HideExchange
from geosim.policy.codec import Codec, NoResidual, check_codec
from geosim.policy.overlap import Blocking, Eager, Group, Overlap, Streaming
from geosim.policy.quantize import Cast
from geosim.policy.select import Dense
from geosim.policy.topology import Direct, FlatRing, Topology
from geosim.policy.update import Accumulate, Local, Update
from geosim.spec import Bytes, Spec, from_dict, positive, within
from geosim.units import SIZE


class SyncPolicy(Spec):
    """A complete synchronisation policy. Frozen and hashable; YAML in and out without loss.

    Attributes:
        name, about: for people; not part of `fingerprint`.
        update: what is sent and applied (`Accumulate` or `Local`).
        interval: K, the steps between two exchanges.
        codec: select + quantize + residual.
        overlap: when results are applied.
        groups: overlap by share of the parameters instead, largest tensors first; what is left over is
            one more fragment under `overlap`.
        topology: who sends to whom.
        order: in which order fragments leave when several leave at once.
        streams: parallel flows a WAN rank.
        chunk_bytes: slice size of a payload on the wire; None sends it whole, split over the streams.
        shards: WAN ranks a site (S); None: as many as the smallest site has ranks.
        max_grad_norm: clips the aggregated gradient (accumulate only).
        adapt: how K follows the network.
        seed: of stochastic rounding and random-k.
    """

    name: str = "custom"
    about: str = ""
    update: Update = Accumulate()
    interval: Annotated[int, Field(ge=1, le=10_000_000)] = 1
    codec: Codec = Codec()
    overlap: Overlap = Blocking()
    groups: tuple[Group, ...] = ()
    topology: Topology = Direct()
    order: Literal["largest-first", "model"] = "largest-first"
    streams: Annotated[int, Field(ge=1, le=256)] = 1
    chunk_bytes: Annotated[Bytes, AfterValidator(within("1 B", "1 EB", SIZE))] | None = None
    shards: Annotated[int, Field(ge=1, le=65536)] | None = None
    max_grad_norm: Annotated[float, AfterValidator(positive)] | None = None
    adapt: Adapt = Fixed()
    seed: Annotated[int, Field(ge=0, lt=1 << 32)] = 0

    @model_validator(mode="after")
    def _consistent(self) -> "SyncPolicy":
        check_codec(self.codec)
        _check_overlap(self)
        if isinstance(self.topology, FlatRing):
            _check_flat(self)
        if self.max_grad_norm is not None and isinstance(self.update, Local):
            raise UsageError(
                "max_grad_norm: clips an aggregated gradient; with update 'local' clip inside the site"
            )
        return self

    @property
    def is_flat(self) -> bool:
        """Whether this is plain data parallelism over all ranks, without sites."""
        return isinstance(self.topology, FlatRing)

    def fingerprint(self) -> str:
        """A hash of everything that the sites must agree on."""
        data = {k: v for k, v in self.to_dict().items() if k not in ("name", "about")}
        return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=8).hexdigest()


def _check_overlap(policy: SyncPolicy) -> None:
    overlap = policy.overlap
    if isinstance(overlap, Streaming):
        if not isinstance(policy.update, Local):
            raise UsageError("overlap: 'streaming' mixes parameters and needs update 'local'")
        if overlap.steps >= policy.interval:
            raise UsageError(f"overlap.steps: {overlap.steps} must be below the interval ({policy.interval})")
        if isinstance(policy.adapt, HideExchange) and policy.adapt.least <= overlap.steps:
            raise UsageError(
                f"adapt.least: {policy.adapt.least} must be above overlap.steps ({overlap.steps})"
            )
        if overlap.alpha > 0 and not isinstance(policy.codec.residual, NoResidual):
            raise UsageError(
                "overlap.alpha: above 0 with a residual counts unsent mass twice: "
                "set alpha to 0 or residual to 'none'"
            )
        if policy.groups:
            raise UsageError("groups: 'streaming' makes its own fragments: leave groups out")
    if isinstance(overlap, Eager) and policy.groups:
        raise UsageError("groups: only 'blocking' and 'delayed' can be set per group")
    if math.fsum(g.share for g in policy.groups) > 1 + 1e-9:
        raise UsageError("groups: the shares add up to more than 1")


def _check_flat(policy: SyncPolicy) -> None:
    wrong = [
        ("update", isinstance(policy.update, Accumulate) and policy.update.send == "gradient", "accumulate"),
        ("interval", policy.interval == 1, "1"),
        ("codec.select", isinstance(policy.codec.select, Dense), "dense"),
        ("codec.quantize", isinstance(policy.codec.quantize, Cast), "fp32, bf16 or fp16"),
        ("codec.residual", isinstance(policy.codec.residual, NoResidual), "none"),
        ("overlap", isinstance(policy.overlap, Blocking) and not policy.groups, "blocking, without groups"),
        ("adapt", isinstance(policy.adapt, Fixed), "fixed"),
    ]
    for field, fine, want in wrong:
        if not fine:
            raise UsageError(f"{field}: topology 'flat-ring' is plain data parallelism and needs {want}")
    for field, value, default in _without_effect(policy):
        if value != default:
            raise UsageError(f"{field}: has no effect with topology 'flat-ring': leave it out")


def _without_effect(policy: SyncPolicy) -> list[tuple[str, object, object]]:
    """Fields that plain data parallelism does not read, as (path, value, default); clipping it does."""
    codec, plain = policy.codec, Codec()
    return [
        ("codec.small_below", codec.small_below_bytes, plain.small_below_bytes),
        ("codec.small_dtype", codec.small_dtype, plain.small_dtype),
        ("order", policy.order, "largest-first"),
        ("streams", policy.streams, 1),
        ("chunk", policy.chunk_bytes, None),
        ("shards", policy.shards, None),
        ("seed", policy.seed, 0),
    ]


def policy_from_dict(data: Any, where: str = "policy") -> SyncPolicy:
    """A SyncPolicy from plain data.

    Raises:
        UsageError: one line that names the field, the value and what would be right.
    """
    return from_dict(SyncPolicy, data, where)
