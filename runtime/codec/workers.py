"""Threads for kernels that let go of the interpreter's lock. As many as torch may use."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import torch

_pool: ThreadPoolExecutor | None = None


def threads() -> int:
    """How many a call may use.

    Ask before work is shared out, not in a thread of it: torch's number is a thread's own (OpenMP's), and one
    that has worked before keeps the number that held when it began.
    """
    return max(1, torch.get_num_threads())


def run(tasks: Sequence[Callable[[], object]]) -> None:
    """Run all to their end, one here and the others beside it; here too what no thread has begun by then."""
    global _pool
    if len(tasks) > 1 and _pool is None:
        _pool = ThreadPoolExecutor(max(threads(), os.cpu_count() or 1), thread_name_prefix="geosim-codec")
    if len(tasks) <= 1 or _pool is None:
        for task in tasks:
            task()
        return
    others = [_pool.submit(task) for task in tasks[1:]]
    try:
        tasks[0]()
        for task, other in zip(tasks[1:], others, strict=True):
            if other.cancel():
                task()
    finally:
        # One that was taken back counts as done only when a thread has woken to see it.
        wait([other for other in others if not other.cancelled()])
    for other in others:
        if not other.cancelled():
            other.result()


def run_each(tasks: Sequence[Callable[[], object]]) -> None:
    """Run many tasks, each thread the next that none has begun: a thread may take long to wake."""
    left = iter(tasks)
    run([partial(_each, left)] * min(threads(), len(tasks)))


def run_weighed(tasks: Sequence[tuple[int, Callable[[], object]]]) -> None:
    """Run tasks (weight, what), each thread neighbours of about equal weight in all."""
    cuts = shares([weight for weight, _ in tasks], threads()) if tasks else []
    run([partial(_each, [task for _, task in tasks[at]]) for at in cuts])


def _each(tasks: Iterable[Callable[[], object]]) -> None:
    for task in tasks:
        task()


def shares(weights: Sequence[int], count: int) -> list[slice]:
    """At most `count` runs of neighbours of about equal weight, none of them empty."""
    out: list[slice] = []
    total, begin, done = sum(weights), 0, 0
    for i, weight in enumerate(weights):
        done += weight
        if done * count >= total * (len(out) + 1) and i + 1 > begin:
            out.append(slice(begin, i + 1))
            begin = i + 1
    if begin < len(weights):
        out.append(slice(begin, len(weights)))
    return out


def _forget_pool() -> None:
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget_pool)
