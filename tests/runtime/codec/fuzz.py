"""Random policies, layouts and updates; and a campaign of mutated payloads against a decoder.

    python tests/runtime/codec/fuzz.py --count 1000000 --seed 0

A mutated payload must be refused; one with a checksum that was recomputed must be refused or decode to what
the reference codec makes of it. `--case N` repeats one case. All memory that a decoder is given ends where
a page begins that may not be touched, and lies between bytes that must stay as they are.
"""

import argparse
import ctypes
import mmap
import multiprocessing
import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from geosim.errors import PayloadError
from geosim.params import table
from geosim.policy import (
    E3M0,
    Cast,
    Codec,
    Dense,
    Feedback,
    Integer,
    Layout,
    NoResidual,
    RandomK,
    Sign,
    SyncPolicy,
    TopK,
    make_layout,
)
from geosim.policy.codec import HEADER_BYTES, kept_in_section, section_bytes
from runtime.codec import elias_fano
from runtime.codec.digest import digest
from runtime.codec.interface import FragmentCodec, Opened
from runtime.codec.reference import ReferenceCodec
from runtime.codec.registry import codec_for

Pick = Callable[[Sequence[Any]], Any]  # one of several: `random.Random.choice`, or a draw of hypothesis

GROUPS = [64, 8, 9, 13, 16, 100, 2048, 2049, 5000, "section"]
SCOPES = ["piece", "fragment", "fragment", 16, 17, 64, 1000]
RATIOS = [0.1, 1e-4, 0.01, 0.03, 0.3, 0.5, 0.77, 0.99, 1.0, 1.0]
SIZES = [*range(200), 255, 256, 1000, 2047, 2048, 2049, 4096, 6001]
MUTATIONS_A_CASE = 400
FP32_MAX = float(np.finfo(np.float32).max)


def codec_from(pick: Pick) -> Codec:
    """Any codec that a policy may have."""
    kind = pick(["fp32", "bf16", "fp16", "int8", "int4", "int2", "e3m0", "sign"])
    group, rounding = pick(GROUPS), pick(["nearest", "stochastic"])
    if kind in ("fp32", "bf16", "fp16"):
        quantize = Cast(kind=kind)
    elif kind == "sign":
        quantize = Sign(group=group)
    else:
        how = E3M0 if kind == "e3m0" else Integer
        quantize = how(kind=kind, group=group, rounding=rounding)
    how = pick([Dense, TopK, RandomK])
    select = Dense() if how is Dense else how(ratio=pick(RATIOS), scope=pick(SCOPES))
    residuals = [Feedback(), Feedback(decay=0.9), Feedback(decay=0.3)]
    if not isinstance(select, RandomK) or select.ratio == 1:
        residuals.insert(0, NoResidual())
    return Codec(
        select=select,
        quantize=quantize,
        residual=pick(residuals),
        small_below_bytes=pick([0.0, 200.0, 5000.0]),
        small_dtype=pick(["fp32", "bf16", "fp16"]),
    )


def layout_from(pick: Pick, codec: Codec, sizes: Sequence[int] = SIZES) -> Layout:
    """Some tensors, whose order is not that of their sizes, on a few shards."""
    numels = [pick(sizes) for _ in range(pick(range(1, 7)))]
    policy = SyncPolicy(codec=codec, order=pick(["model", "largest-first"]), seed=pick([0, 9, (1 << 32) - 1]))
    return make_layout(table((f"{i}.w", (n,)) for i, n in enumerate(numels)), policy, pick([1, 2, 3]))


def _bits(g: np.random.Generator, n: int) -> np.ndarray:
    words = g.integers(0, 1 << 32, n, np.uint32)
    return np.where(words & 0x7F800000 == 0x7F800000, words ^ 0x40000000, words).view(np.float32)


def _one_huge(g: np.random.Generator, n: int) -> np.ndarray:
    values = g.standard_normal(n) * 1e-3
    values[g.integers(n)] = 3e38
    return values


UPDATES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal": lambda g, n: g.standard_normal(n),
    "ties": lambda g, n: g.choice([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0], n),
    "halves": lambda g, n: g.integers(-254, 255, n) / 2,
    "equal": lambda g, n: np.where(g.random(n) < 0.3, -1.0, 1.0) * g.standard_normal(),
    "zeros": lambda g, n: np.zeros(n),
    "signed zeros": lambda g, n: np.where(g.random(n) < 0.5, -0.0, 0.0),
    "almost zeros": lambda g, n: np.where(g.random(n) < 0.99, -0.0, g.standard_normal(n)),
    "denormal": lambda g, n: g.integers(-(1 << 22), 1 << 22, n) * 2.0**-149,
    "about the least scale": lambda g, n: g.standard_normal(n) * 2.0**-117,
    "huge": lambda g, n: g.uniform(-1, 1, n) * FP32_MAX,
    "largest": lambda g, n: g.choice([-FP32_MAX, FP32_MAX, 3e38], n),
    "above fp16": lambda g, n: g.standard_normal(n) * 1e5,
    "fp16 denormal": lambda g, n: g.integers(-4096, 4096, n) * 2.0**-26,
    "one huge": _one_huge,
    "all sizes": lambda g, n: g.choice([-1.0, 1.0], n) * 10.0 ** g.uniform(-45, 38.5, n),
    "levels": lambda g, n: g.choice([-1.5, -1.0, -0.75, 0.5, 0.75, 1.0], n) * 2.0 ** -g.integers(0, 9, n),
    "bits": _bits,
}


def update_from(
    pick: Pick, numel: int, dtype: torch.dtype = torch.float32, kinds: Sequence[str] = tuple(UPDATES)
) -> torch.Tensor:
    """Finite values [numel] of one of several kinds."""
    g = np.random.default_rng(pick(range(1 << 16)))
    kind = pick(kinds)
    values = torch.from_numpy(np.asarray(UPDATES[kind](g, numel), np.float64)) if numel else torch.zeros(0)
    most = torch.finfo(dtype).max
    return values.clamp(-most, most).to(torch.float32).clamp(-most, most).to(dtype)


def home(codec_class: type[FragmentCodec]) -> torch.device:
    """Where a codec's values may live."""
    return torch.device("cpu" if codec_class.runs_on(torch.device("cpu")) else "cuda")


def residual_of(coder: FragmentCodec) -> torch.Tensor | None:
    """Zeros, if the policy keeps a residual."""
    return None if coder.decay is None else torch.zeros(coder.numel, device=home(type(coder)))


def reseal(data: bytes | bytearray) -> bytes:
    """With the checksum that belongs to it, as far as there is room for one."""
    if len(data) < HEADER_BYTES:
        return bytes(data)
    checksum = digest(bytes(data[:72]) + bytes(8), memoryview(data)[80:])
    return bytes(data[:72]) + struct.pack("<Q", checksum) + bytes(data[80:])


def tensor(data: bytes) -> torch.Tensor:
    """Bytes as uint8."""
    return (
        torch.from_numpy(np.frombuffer(bytearray(data), np.uint8))
        if data
        else torch.zeros(0, dtype=torch.uint8)
    )


class Guarded:
    """Memory whose neighbours show or forbid each touch."""

    POISON = 0xA5

    def __init__(self, room: int) -> None:
        pages = -(-(room + 4096) // mmap.PAGESIZE)
        self._size = pages * mmap.PAGESIZE
        self._map = mmap.mmap(-1, self._size + 2 * mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (start, start + mmap.PAGESIZE + self._size):
            if libc.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._all = np.frombuffer(self._map, np.uint8, self._size, mmap.PAGESIZE)

    def take(self, like: torch.Tensor, at_end: bool) -> torch.Tensor:
        """A copy at one end of the memory; everything else is poison."""
        raw = like.contiguous().view(torch.uint8).numpy() if like.numel() else np.zeros(0, np.uint8)
        self._all[:] = self.POISON
        self._begin = self._size - len(raw) if at_end else 0
        self._end = self._begin + len(raw)
        self._all[self._begin : self._end] = raw
        return torch.from_numpy(self._all[self._begin : self._end]).view(like.dtype)

    def check(self) -> None:
        """Raises AssertionError if a neighbour has changed."""
        beside = np.concatenate([self._all[: self._begin], self._all[self._end :]])
        assert np.all(beside == self.POISON), "memory beside an array was written"


class Case:
    """Payloads of one policy that fit together, and mutations of them."""

    def __init__(self, number: int, codec_class: type[FragmentCodec]) -> None:
        self.rng = rng = random.Random(number)
        self.codec = codec_from(rng.choice)
        self.layout = layout_from(rng.choice, self.codec)
        shard = rng.randrange(self.layout.shards)
        self.coder = codec_class(self.layout, 0, shard, 1)
        self.reference = ReferenceCodec(self.layout, 0, shard, 1)
        self.round = rng.choice([0, 3, 1 << 40])
        kinds = [kind for kind in UPDATES if kind not in ("huge", "largest", "bits", "all sizes", "one huge")]

        def payload(coder: FragmentCodec, round: int) -> bytes:
            out = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
            values = update_from(rng.choice, coder.numel, kinds=kinds)
            coder.encode(values, 1.0, residual_of(coder), round, out)
            coder.seal(out, round, tokens=rng.randrange(1 << 40), finite=rng.random() < 0.95)
            return out.numpy().tobytes()

        self.good = payload(self.reference, self.round)
        self._sound = self.good[6] == 0
        other = codec_from(rng.choice)
        foreign = ReferenceCodec(layout_from(rng.choice, other), 0, 0, 1)
        self._coded, at = [], HEADER_BYTES
        for section in self.reference.sections:
            count = kept_in_section(section.select, section.numel)
            if count < section.numel and isinstance(section.select, TopK):
                self._coded.append((at, section.numel, count))
            at += section_bytes(section.numel, Codec(select=section.select, quantize=section.quantize))
        self.others = [
            payload(self.reference, self.round),
            payload(self.reference, self.round + 1),
            payload(ReferenceCodec(self.layout, 0, shard, 2), self.round),
            payload(ReferenceCodec(self.layout, 0, (shard + 1) % self.layout.shards, 1), self.round),
            payload(foreign, self.round),
        ]

    def moved(self, data: bytes) -> bytes:
        """With one of the positions elsewhere, maybe in another block, and all else in order."""
        at, numel, count = self.rng.choice(self._coded)
        end = at + elias_fano.encoded_bytes(numel, count)
        found = elias_fano.decode(np.frombuffer(data[at:end], np.uint8), numel, count)
        i = self.rng.choice([0, self.rng.randrange(count), count - 1])
        near = int(found[i]) + self.rng.choice([-17, -16, -1, 17])
        place = self.rng.choice([self.rng.randrange(numel), max(0, min(numel - 1, near))])
        if place not in found:
            found[i] = place
        return data[:at] + elias_fano.encode(np.sort(found), numel).tobytes() + data[end:]

    def mutation(self) -> bytes:
        """A payload that has changed in some way, its checksum as it was."""
        rng = self.rng
        if self._coded and self._sound and rng.random() < 0.15:
            return self.moved(self.good)
        data = bytearray(rng.choice(self.others) if rng.random() < 0.15 else self.good)
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            size = len(data)
            body = range(min(HEADER_BYTES, size), size)
            where = body if body and rng.random() < 0.7 else range(min(size, HEADER_BYTES))
            at = rng.choice(where) if where else 0
            kind = rng.choice(
                ["bit", "byte", "fill", "noise", "cut", "grow", "swap", "splice", "move", "word"]
            )
            end = min(size, at + rng.choice([1, 2, 3, 4, 8, 16, 40]))
            if not size:
                break
            if kind == "bit":
                data[at] ^= 1 << rng.randrange(8)
            elif kind == "byte":
                data[at] = (data[at] + rng.randrange(1, 256)) % 256
            elif kind == "fill":
                data[at:end] = bytes([rng.choice([0, 0x55, 0x7F, 0x80, 0xFF])]) * (end - at)
            elif kind == "noise":
                data[at:end] = rng.randbytes(end - at)
            elif kind == "word":
                word = rng.choice(
                    [0, 1, 0x7F800000, 0x7FC00000, 0x80000000, 0xFF7FFFFF, 0x00800000, 0x03800000]
                )
                data[at : at + 4] = struct.pack("<I", word)[: size - at]
            elif kind == "cut" and rng.random() < 0.3:
                del data[at:]
            elif kind == "grow" and rng.random() < 0.3:
                data[at:at] = rng.randbytes(end - at)
            elif kind == "move" and rng.random() < 0.3:
                del data[at:end]
                data += bytes(end - at)
            elif kind == "swap" and body:
                other = rng.choice(body)
                n = min(end - at, size - other)
                data[at : at + n], data[other : other + n] = data[other : other + n], data[at : at + n]
            elif kind == "splice":
                other = rng.choice(self.others)
                stop = rng.choice([end, size])
                data[at:stop] = other[at:stop]
        return bytes(data)

    def run(self, count: int, guard: tuple[Guarded, Guarded] | None = None) -> Counter[str]:
        """So many mutations; what became of them.

        Raises:
            AssertionError: one was taken for good, or decoded to something else than the reference's.
        """
        seen: Counter[str] = Counter()
        before = update_from(self.rng.choice, self.coder.numel, kinds=["normal"])
        for number in range(count):
            data = self.mutation() if number else self.good
            forged = not number or self.rng.random() < 0.6
            if forged:
                data = reseal(data)
            elif data == self.good or data in self.others:
                continue
            seen[self._check(data, before, forged, guard)] += 1
        return seen

    def _check(self, data: bytes, before: torch.Tensor, forged: bool, guard: Any) -> str:
        payload, out = tensor(data), before.clone()
        if guard:
            at_end = self.rng.random() < 0.5
            payload, out = guard[0].take(payload, at_end), guard[1].take(out, at_end)
        got = _outcome(lambda: self.coder.decode_add(payload, 1, self.round, out))
        if guard:
            for part in guard:
                part.check()
        assert payload.numpy().tobytes() == data, "the payload was written"
        if isinstance(got, PayloadError):
            text, name = str(got), f"payload from site 1, round {self.round}: "
            assert text.startswith(name), text
            assert len(text) > len(name), text
            assert "\n" not in text, text
            assert _same(out, before), "a refused payload changed the sum"
        else:
            assert forged, "a mutated payload was taken for good"
        if not forged:
            return "refused by its header or checksum"
        wanted = before.clone()
        truth = _outcome(lambda: self.reference.decode_add(tensor(data), 1, self.round, wanted))
        if isinstance(truth, PayloadError):
            assert isinstance(got, PayloadError), f"the reference says: {truth}"
            assert str(got) == str(truth), (str(got), str(truth))
            self._check_sum(data)
            return "forged and refused"
        assert got == truth, (got, truth)
        assert _same(out, wanted), "decoded to something else"
        self._check_sum(data)
        return "forged and decoded alike"

    def _check_sum(self, data: bytes) -> None:
        """The same by `decode_sum`, now and then."""
        if self.rng.random() < 0.7:
            return
        results = []
        for coder in (self.coder, self.reference):
            try:
                opened = [coder.open(tensor(one), 1, self.round) for one in (self.others[0], data)]
            except PayloadError:
                return
            total = torch.full((coder.numel,), float("nan"))
            results.append((_outcome(lambda c=coder, o=opened, t=total: c.decode_sum(o, t)), total))
        (got, ours), (truth, theirs) = results
        assert str(got) == str(truth), (str(got), str(truth))
        assert isinstance(got, PayloadError) or _same(ours, theirs), "summed to something else"


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except PayloadError as error:
        return error


def _same(one: torch.Tensor, two: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.int32), two.view(torch.int32))


def sums_in_order(opened: Sequence[Opened], decoded: Sequence[torch.Tensor]) -> torch.Tensor:
    """What `decode_sum` has to give."""
    total = torch.zeros_like(decoded[0])
    for one, values in zip(opened, decoded, strict=True):
        if one.header.finite:
            total = total + values
    return total


def run_case(
    seed: int, number: int, count: int, name: str, guard: tuple[Guarded, Guarded] | None = None
) -> Counter[str]:
    """One case of a campaign.

    Raises:
        AssertionError: with the case's policy and sizes.
    """
    case = Case(seed * 1_000_003 + number, codec_for(name, "cpu"))
    try:
        return case.run(count, guard)
    except Exception as error:
        sizes = [t.numel for t in case.layout.tensors]
        raise AssertionError(f"--seed {seed} --case {number}: {error!r}\n{sizes}\n{case.codec!r}") from error


def _work(seed: int, name: str, first: int, step: int, count: int, at: Any, done: Any, results: Any) -> None:
    torch.set_num_threads(1)
    guard = (Guarded(1 << 18), Guarded(1 << 18))
    seen: Counter[str] = Counter()
    try:
        for number in range(first, count // MUTATIONS_A_CASE, step):
            at.value = number
            seen += run_case(seed, number, MUTATIONS_A_CASE, name, guard)
            done.value = seen.total()
    except AssertionError as error:
        results.put((seen, str(error)))
    else:
        results.put((seen, None))


def campaign(count: int, seed: int, name: str = "cpu", jobs: int = 2) -> Counter[str]:
    """About `count` mutations in processes of their own.

    Raises:
        AssertionError: a decoder took a bad payload, crashed, or made no progress for four minutes.
    """
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = []
    for job in range(jobs):
        at, done = context.Value("q", -1), context.Value("q", 0)
        worker = context.Process(target=_work, args=(seed, name, job, jobs, count, at, done, results))
        worker.start()
        workers.append((worker, at, done))
    seen: Counter[str] = Counter()
    begun = time.monotonic()
    moved, last, told = begun, 0, begun
    finished = 0
    try:
        while finished < jobs:
            if not results.empty():
                part, error = results.get()
                assert error is None, error
                seen += part
                finished += 1
                continue
            time.sleep(0.2)
            for worker, at, _ in workers:
                crashed = worker.exitcode not in (None, 0)
                assert not crashed, f"--seed {seed} --case {at.value}: exit status {worker.exitcode}"
            total = sum(done.value for _, _, done in workers)
            now = time.monotonic()
            if total != last:
                moved, last = now, total
            assert now - moved < 240, (
                f"--seed {seed}, cases {[at.value for _, at, _ in workers]}: no progress"
            )
            if now - told > 2:
                told = now
                print(f"\r{total} of {count}, {total / (now - begun):.0f}/s ", end="", file=sys.stderr)
    finally:
        for worker, _, _ in workers:
            if finished < jobs:
                worker.kill()
            worker.join()
    return seen


def main() -> None:
    """The whole campaign, or one case of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--codec", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--case", type=int)
    given = parser.parse_args()
    begun = time.monotonic()
    if given.case is not None:
        guard = (Guarded(1 << 18), Guarded(1 << 18))
        seen = run_case(given.seed, given.case, MUTATIONS_A_CASE, given.codec, guard)
    else:
        seen = campaign(given.count, given.seed, given.codec, given.jobs)
    print(f"\n{seen.total()} mutated payloads in {time.monotonic() - begun:.0f} s, seed {given.seed}")
    for what, number in sorted(seen.items()):
        print(f"{number:9d} {what}")


if __name__ == "__main__":
    main()
