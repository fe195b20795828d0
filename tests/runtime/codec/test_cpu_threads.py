"""One CPU codec that several threads use at once, as the exchange does while the next window is encoded."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, Event, get_ident

import fuzz
import pytest
import torch

from geosim.params import table
from geosim.policy import Codec, Feedback, Integer, RandomK, SyncPolicy, TopK, make_layout
from runtime.codec import workers
from runtime.codec.cpu import CpuCodec, scratch
from runtime.codec.cpu.whole import RANGE
from runtime.codec.reference import ReferenceCodec

CODECS = {
    "topk": Codec(select=TopK(ratio=0.05), quantize=Integer(group=9), residual=Feedback(decay=0.9)),
    "blocks": Codec(select=TopK(ratio=0.05, scope=100), quantize=Integer(kind="int2"), residual=Feedback()),
    "randomk": Codec(select=RandomK(ratio=0.05), quantize=Integer(kind="int4"), residual=Feedback()),
    "dense": Codec(quantize=Integer(kind="int4"), residual=Feedback()),
}
NUMEL = 40_011
ROUNDS = range(8)


@pytest.fixture(autouse=True)
def _threads():
    """Two, which take turns as often as they can."""
    count, interval = torch.get_num_threads(), sys.getswitchinterval()
    torch.set_num_threads(2)
    sys.setswitchinterval(1e-6)
    yield
    torch.set_num_threads(count)
    sys.setswitchinterval(interval)


def update(number: int) -> torch.Tensor:
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(number))


@pytest.mark.parametrize("name", CODECS)
def test_sums_and_encodes_at_once_are_those_one_by_one(name: str) -> None:
    layout = make_layout(table([("w", (NUMEL,))]), SyncPolicy(codec=CODECS[name]), 1)
    shared, truth = CpuCodec(layout, 0, 0, 0), ReferenceCodec(layout, 0, 0, 0)
    payloads, sums, residuals = {}, {}, {}
    for round in ROUNDS:
        wanted = torch.zeros(NUMEL)
        for site in range(2):
            sender = ReferenceCodec(layout, 0, 0, site)
            out = torch.zeros(sender.payload_bytes, dtype=torch.uint8)
            e = fuzz.residual_of(sender)
            sender.encode(update(2 * round + site), 0.5, e, round, out)
            sender.seal(out, round)
            payloads[round, site] = out
            residuals[round, site] = e
            wanted = wanted + truth.decode(out, site, round).values
        sums[round] = wanted

    def add_up(round: int) -> bool:
        total = torch.full((NUMEL,), 5.0)
        shared.decode_sum([shared.open(payloads[round, site], site, round) for site in range(2)], total)
        return torch.equal(total, sums[round])

    def add_one(round: int) -> bool:
        return torch.equal(
            shared.decode(payloads[round, 1], 1, round).values,
            truth.decode(payloads[round, 1], 1, round).values,
        )

    def encode(round: int) -> bool:
        out, e = torch.zeros(shared.payload_bytes, dtype=torch.uint8), torch.zeros(NUMEL)
        shared.encode(update(2 * round), 0.5, e, round, out)
        shared.seal(out, round)
        return torch.equal(out, payloads[round, 0]) and torch.equal(e, residuals[round, 0])

    with ThreadPoolExecutor(6) as pool:
        jobs = [
            pool.submit(job, round) for _ in range(3) for round in ROUNDS for job in (add_up, add_one, encode)
        ]
        assert all(job.result() for job in jobs)


def test_fewer_threads_than_before(monkeypatch) -> None:
    """torch's number is a thread's own: those of the pool still have the one that held as they began."""
    monkeypatch.setattr(workers, "_pool", None)
    torch.set_num_threads(3)
    together = Barrier(3)
    workers.run([lambda: (torch.get_num_threads(), together.wait(20))] * 3)
    torch.set_num_threads(2)
    numel = 3 * RANGE + 1
    codec = Codec(select=TopK(ratio=0.01), quantize=Integer(), residual=Feedback())
    layout = make_layout(table([("w", (numel,))]), SyncPolicy(codec=codec), 1)
    values = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    written = []
    for kind in (CpuCodec, ReferenceCodec):
        coder = kind(layout, 0, 0, 0)
        out = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
        coder.encode(values, 1.0, torch.zeros(numel), 0, out)
        written.append(out)
    assert torch.equal(*written)


def test_what_no_thread_has_begun_is_run_by_the_caller(monkeypatch) -> None:
    """All others are busy for as long as it takes."""
    monkeypatch.setattr(workers, "_team", None)
    workers.run([lambda: None] * 2)
    pool = workers._pool
    assert pool is not None
    ended = Event()
    others = [pool.submit(ended.wait) for _ in range(pool._max_workers)]
    try:
        done: list[int] = []
        workers.run([partial(done.append, i) for i in range(5)])
        assert done == list(range(5))
    finally:
        ended.set()
    assert all(other.result() for other in others)


def test_torch_lends_its_threads() -> None:
    if "parallel backend: OpenMP" not in torch.__config__.parallel_info():
        pytest.skip("this torch has other threads")
    assert workers._team is not None


@pytest.fixture(params=["team", "pool"])
def _ways(request, monkeypatch):
    if request.param == "pool":
        monkeypatch.setattr(workers, "_team", None)


@pytest.mark.usefixtures("_ways")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_a_task_raises_reaches_the_caller_when_all_have_ended(error) -> None:
    together, done = Barrier(2), []

    def fail() -> None:
        together.wait(20)
        raise error

    def last() -> None:
        together.wait(20)
        time.sleep(0.05)
        done.append(1)

    for tasks in ([fail, last], [last, fail]):
        done.clear()
        with pytest.raises(error):
            workers.run(tasks)
        assert done == [1]


def test_a_signal_that_ctypes_would_drop_reaches_the_caller(monkeypatch) -> None:
    """The region is entered by no thread, as where a handler raises before its first line."""
    monkeypatch.setattr(workers, "_team", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        workers.run([lambda: None] * 2)


def test_an_interrupted_caller_waits_for_those_who_write_to_its_memory(monkeypatch) -> None:
    monkeypatch.setattr(workers, "_team", None)
    main, ended = get_ident(), Event()

    def task() -> None:
        if get_ident() == main:
            other_runs.wait(20)
            return
        other_runs.set()
        for _ in range(3):
            time.sleep(0.05)
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.05)
        ended.set()

    for _ in range(20):  # until another thread has begun in time
        other_runs = Event()
        try:
            workers.run([task, task])
        except KeyboardInterrupt:
            break
    assert ended.is_set()


def test_tensors_may_have_another_device_by_default() -> None:
    layout = make_layout(table([("w", (NUMEL,))]), SyncPolicy(codec=CODECS["topk"]), 1)
    values, e = update(1), torch.zeros(NUMEL)
    coder = CpuCodec(layout, 0, 0, 0)
    out = torch.zeros(coder.payload_bytes, dtype=torch.uint8)
    scratch.forget()
    with torch.device("meta"):
        coder.encode(values, 0.5, e, 0, out)


FORK = """
import os, signal, sys
import torch
from runtime.codec import workers
torch.set_num_threads(2)
if sys.argv[1] == "pool":
    workers._team = None
workers.run([lambda: None] * 2)
child = os.fork()
if child == 0:
    signal.alarm(20)
    done = []
    workers.run([lambda: done.append(1)] * 2)
    os._exit(len(done))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("way", ["team", "pool"])
def test_a_process_that_forked_has_threads_of_its_own(way: str) -> None:
    """In a process of its own: others in this one, JAX's too, would not survive it."""
    done = subprocess.run([sys.executable, "-c", FORK, way], check=False, timeout=60)
    assert done.returncode == 2
