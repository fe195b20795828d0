"""From a ParamTable to fragments and pieces: the only source of bytes, for simulator and runtime alike.

A *fragment* is a set of tensors that is exchanged on its own. A *piece* is the part of one tensor that
one WAN rank (shard) owns; bounds are aligned to the selection block. Range r of tensor i belongs to
shard (r + i) mod S, so that small leftovers spread over the shards.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from geosim.errors import UsageError
from geosim.params import ParamSpec, ParamTable
from geosim.policy.codec import HEADER_BYTES, plain_bytes, section_bytes, wire_bytes
from geosim.policy.overlap import Overlap, Streaming
from geosim.policy.policy import SyncPolicy


@dataclass(frozen=True)
class Piece:
    """Elements [start, stop) of one tensor, flattened, owned by one shard."""

    tensor: int
    shard: int
    start: int
    stop: int
    small: bool

    @property
    def numel(self) -> int:
        """Elements."""
        return self.stop - self.start


@dataclass(frozen=True)
class Fragment:
    """Tensors (indices into `Layout.tensors`, in the order they travel) that are exchanged together."""

    index: int
    tensors: tuple[int, ...]
    overlap: Overlap


@dataclass(frozen=True)
class Layout:
    """Fragments of a model under a policy with S shards."""

    tensors: tuple[ParamSpec, ...]
    fragments: tuple[Fragment, ...]
    shards: int
    policy: SyncPolicy

    @cached_property
    def _bounds(self) -> np.ndarray:
        """Range bounds of every tensor, [tensors, S + 1], in elements."""
        numel = np.array([t.numel for t in self.tensors], dtype=np.int64)
        block = self.policy.codec.block
        blocks = -(-numel // block)
        cuts = blocks[:, None] * np.arange(self.shards + 1, dtype=np.int64)[None, :] // self.shards
        return np.minimum(cuts * block, numel[:, None])

    def pieces(self, fragment: int, shard: int) -> tuple[Piece, ...]:
        """The non-empty pieces of one fragment that one shard owns, in the order they travel."""
        out = []
        codec = self.policy.codec
        for i in self.fragments[fragment].tensors:
            r = (shard - i) % self.shards
            start, stop = int(self._bounds[i, r]), int(self._bounds[i, r + 1])
            if stop > start:
                out.append(Piece(i, shard, start, stop, codec.is_small(self.tensors[i].numel)))
        return tuple(out)

    def payload_bytes(self, fragment: int, shard: int) -> int:
        """Exact size of the payload that one WAN rank sends for one fragment."""
        pieces = self.pieces(fragment, shard)
        coded = [p.numel for p in pieces if not p.small]
        plain = [p.numel for p in pieces if p.small]
        return wire_bytes(coded, plain, self.policy.codec)

    def fragment_bytes(self, fragment: int) -> int:
        """Sum of `payload_bytes` over the shards; vectorised, for models with many tensors and shards."""
        codec = self.policy.codec
        sizes = np.diff(self._bounds, axis=1)
        small = np.array([codec.is_small(t.numel) for t in self.tensors])
        mine = np.zeros(len(self.tensors), dtype=bool)
        mine[list(self.fragments[fragment].tensors)] = True
        total = HEADER_BYTES * self.shards
        total += plain_bytes(int(sizes[mine & small].sum()), codec.small_dtype)
        coded = sizes[mine & ~small]
        if getattr(codec.select, "scope", None) == "fragment":
            shard = (np.arange(self.shards)[None, :] + np.flatnonzero(mine & ~small)[:, None]) % self.shards
            coded = np.bincount(shard.ravel(), weights=coded.ravel(), minlength=self.shards).astype(np.int64)
        values, counts = np.unique(coded, return_counts=True)
        for n, count in zip(values.tolist(), counts.tolist(), strict=True):
            total += section_bytes(n, codec) * count
        return total

    def fragment_numel(self, fragment: int) -> int:
        """Parameters in a fragment."""
        return sum(self.tensors[i].numel for i in self.fragments[fragment].tensors)

    def fingerprint(self) -> str:
        """A hash of tensors, shards and policy: equal wherever payloads can be exchanged."""
        rows = [(t.name, t.shape, t.dtype) for t in self.tensors]
        data = [rows, self.shards, self.policy.fingerprint()]
        return hashlib.blake2b(json.dumps(data).encode(), digest_size=8).hexdigest()


def make_layout(table: ParamTable, policy: SyncPolicy, shards: int) -> Layout:
    """Split a model into fragments.

    Args:
        table: the model.
        policy: decides fragments, order and codec; `policy.shards` overrides `shards`.
        shards: WAN ranks a site where the policy leaves it open.

    Raises:
        UsageError: if there are fewer layers than streaming fragments.
    """
    tensors = table.tensors()
    if isinstance(policy.overlap, Streaming):
        members = _strided(tensors, policy.overlap.fragments)
        overlaps: list[Overlap] = [policy.overlap] * len(members)
    else:
        members, overlaps = _grouped(tensors, policy)
    fragments: list[Fragment] = []
    for ids, overlap in zip(members, overlaps, strict=True):
        if policy.order == "largest-first":
            ids = sorted(ids, key=lambda i: (-tensors[i].numel, i))
        fragments.append(Fragment(len(fragments), tuple(ids), overlap))
    return Layout(tensors, tuple(fragments), policy.shards or shards, policy)


def _strided(tensors: tuple[ParamSpec, ...], count: int) -> list[list[int]]:
    """Layer l to fragment l mod P; tensors outside the layers to whichever fragment is then the smallest."""
    layers = {t.layer for t in tensors if t.layer is not None}
    if count > max(1, len(layers)):
        raise UsageError(
            f"overlap.fragments: {count} is more than the model's {len(layers)} layers: "
            f"use {max(1, len(layers))} or fewer"
        )
    members: list[list[int]] = [[] for _ in range(count)]
    size = [0] * count
    for inside in (True, False):
        for i, tensor in enumerate(tensors):
            if (tensor.layer is not None) == inside:
                p = tensor.layer % count if tensor.layer is not None else size.index(min(size))
                members[p].append(i)
                size[p] += tensor.numel
    return [sorted(ids) for ids in members]


def _grouped(tensors: tuple[ParamSpec, ...], policy: SyncPolicy) -> tuple[list[list[int]], list[Overlap]]:
    """Groups take the largest tensors first until their share of the parameters is reached."""
    order = sorted(range(len(tensors)), key=lambda i: (-tensors[i].numel, i))
    total = sum(t.numel for t in tensors)
    members: list[list[int]] = []
    overlaps: list[Overlap] = []
    done, at, bound = 0, 0, 0.0
    for group in policy.groups:
        bound += group.share * total
        ids = []
        while at < len(order) and done < bound:
            ids.append(order[at])
            done += tensors[order[at]].numel
            at += 1
        if ids:
            members.append(sorted(ids))
            overlaps.append(group.overlap)
    if at < len(order):
        members.append(sorted(order[at:]))
        overlaps.append(policy.overlap)
    return members, overlaps
