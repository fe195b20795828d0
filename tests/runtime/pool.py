"""Real processes for tests across sites: started once, each task in fresh groups over loopback."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

TIMEOUT_S = 20.0


def free_port() -> int:
    """A free port below those that the kernel gives away: gloo's own sockets cannot take it."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Pool:
    """Runs a function in every rank of every site at once."""

    def __init__(self, size: int) -> None:
        # Each task holds its process until all have met, so no process takes two.
        self._size = size
        self._folder = tempfile.TemporaryDirectory(prefix="geosim-test-")
        self._executor = ProcessPoolExecutor(size, mp_context=get_context("spawn"), initializer=_start)

    def submit(
        self, task: Callable[..., Any], sites: int = 2, ranks: int = 2, **options: Any
    ) -> list[list[Future]]:
        """Futures by site and rank of ``task(sites, **options)``; `absent` names sites that never come."""
        assert sites * ranks <= self._size
        absent = options.pop("absent", ())
        timeout_s = options.pop("timeout_s", TIMEOUT_S)
        names = ["east", "west", "north", "south"][:sites]
        port = free_port()
        folder = tempfile.mkdtemp(dir=self._folder.name)
        return [
            [
                self._executor.submit(
                    _enter, task, names, name, rank, ranks, port, folder, timeout_s, options
                )
                for rank in range(ranks)
            ]
            for name in names
            if name not in absent
        ]

    def run(
        self, task: Callable[..., Any], sites: int = 2, ranks: int = 2, **options: Any
    ) -> list[list[Any]]:
        """Results by site and rank."""
        futures = self.submit(task, sites, ranks, **options)
        return [[future.result(timeout=3 * TIMEOUT_S) for future in row] for row in futures]

    def errors(
        self, task: Callable[..., Any], sites: int = 2, ranks: int = 2, **options: Any
    ) -> list[list[Any]]:
        """What each raised."""
        futures = self.submit(task, sites, ranks, **options)
        return [[future.exception(timeout=3 * TIMEOUT_S) for future in row] for row in futures]

    def close(self) -> None:
        """End the processes."""
        self._executor.shutdown(cancel_futures=True)
        self._folder.cleanup()


def _start() -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    import torch

    torch.set_num_threads(1)


def _enter(
    task: Callable[..., Any], names: list[str], site: str, rank: int, ranks: int, port: int, folder: str,
    timeout_s: float, options: dict[str, Any],
) -> Any:  # fmt: skip
    import torch.distributed as dist

    from runtime.sites import Sites

    with contextlib.ExitStack() as stack:
        if ranks > 1:
            dist.init_process_group(
                "gloo", init_method=f"file://{folder}/{site}", rank=rank, world_size=ranks
            )
            stack.callback(dist.destroy_process_group)
        sites = (
            Sites.connect(names, site, f"127.0.0.1:{port}", timeout_s=timeout_s)
            if len(names) > 1
            else Sites(names, site, None, rank=rank, ranks=ranks)
        )
        return task(sites, **options)


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Four processes for the whole session."""
    made = Pool(4)
    yield made
    made.close()
