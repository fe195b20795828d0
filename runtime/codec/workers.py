"""Threads for kernels that let go of the interpreter's lock: torch's own where it lends them.

An operator of torch leaves its OpenMP threads spinning for some milliseconds, in case another follows. A
pool of ours would share their cores with those; torch's are awake. So work that keeps all of them busy goes
to them, through the entry that compilers call for a parallel region: GNU's, LLVM's and Intel's OpenMP all
have it.
"""

from __future__ import annotations

import ctypes
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import accumulate, pairwise
from threading import get_ident
from typing import Any

import torch

Task = Callable[[], object]
_Region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _openmp() -> Any:
    """GOMP_parallel(region, argument, threads, flags) of torch's OpenMP; None where it has none."""
    if "parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return None
    try:
        entry = ctypes.CDLL(None).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return None
    entry.argtypes = [_Region, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    entry.restype = None
    return entry


_team = _openmp()
_pool: ThreadPoolExecutor | None = None


def threads() -> int:
    """How many a call may use.

    Ask before work is shared out, not in a thread of it: torch's number is a thread's own (OpenMP's), and one
    that has worked before keeps the number that held when it began.
    """
    return max(1, torch.get_num_threads())


def run(tasks: Sequence[Task]) -> None:
    """Run all to their end, each thread, the caller's too, the next that none has begun.

    Raises:
        Exception: what a task raised, when none runs any more; some may not have been begun.
    """
    crew = threads()
    if len(tasks) <= 1 or crew == 1:
        _each(tasks)
    elif _team is not None and len(tasks) >= crew:
        _run_in_team(tasks)
    else:
        # A smaller team would end the threads that it leaves out, and torch would have to start them again.
        _run_in_pool(tasks)


def run_weighed(tasks: Sequence[tuple[int, Task]]) -> None:
    """Run tasks (weight, what), each thread neighbours of about equal weight in all."""
    cuts = shares([weight for weight, _ in tasks], threads()) if tasks else []
    run([partial(_each, [task for _, task in tasks[at]]) for at in cuts])


def _run_in_team(tasks: Sequence[Task]) -> None:
    left, caller = iter(tasks), get_ident()
    errors: list[BaseException] = []
    ended: list[bool] = []

    def region(_: object) -> None:
        try:
            _each(left)
            if get_ident() == caller:
                ended.append(True)
        except BaseException as error:
            errors.append(error)

    _team(_Region(region), None, threads(), 0)
    try:
        if errors:
            raise errors[0]
        if not ended:
            # What a signal's handler raises before the region's first line, ctypes prints and drops.
            raise KeyboardInterrupt
    finally:
        errors.clear()  # an error holds this frame, which should not hold it


def _run_in_pool(tasks: Sequence[Task]) -> None:
    """As `run`; a thread that has not begun when all is done is called off, as it may take long to wake."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max(threads(), os.cpu_count() or 1), thread_name_prefix="geosim-codec")
    left = iter(tasks)
    others = [_pool.submit(_each, left) for _ in range(min(threads(), len(tasks)) - 1)]
    try:
        _each(left)
    finally:
        # One that was taken back counts as done only when a thread has woken to see it.
        _wait_for([other for other in others if not other.cancel()])
    for other in others:
        if not other.cancelled():
            other.result()


def _wait_for(others: Sequence[Future[None]]) -> None:
    """Until they have ended, as they write to what the caller lends; what a signal raises comes after."""
    raised: BaseException | None = None
    while True:
        try:
            wait(others)
            break
        except BaseException as error:
            raised = error
    if raised is not None:
        raise raised


def _each(tasks: Iterable[Task]) -> None:
    for task in tasks:
        task()


def shares(weights: Sequence[int], count: int) -> list[slice]:
    """At most `count` runs of neighbours of about equal weight, none of them empty."""
    sums = [0, *accumulate(weights)]
    ends = []
    for i in range(1, count):
        wanted = sums[-1] * i / count
        after = bisect_left(sums, wanted)
        nearer = after - 1 if after and wanted - sums[after - 1] < sums[after] - wanted else after
        ends.append(nearer)
    cuts = sorted({0, *ends, len(weights)})
    return [slice(begin, end) for begin, end in pairwise(cuts)]


def _in_child() -> None:
    """A fork takes no threads along: OpenMP would wait for its own for ever."""
    global _pool, _team
    _pool = _team = None


os.register_at_fork(after_in_child=_in_child)
