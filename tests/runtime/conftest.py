"""The pool of processes, for every test in this folder."""

import pytest
import torch
from pool import pool

__all__ = ["one_thread", "pool"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """As the processes of the pool: sums then round alike."""
    torch.set_num_threads(1)
