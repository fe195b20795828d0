"""Paced compute: the real forward and backward, then rest until the declared step time has passed.

Several ranks on few cores then behave like accelerators of that speed. Communication stays where it
belongs: a bucket of gradients is ready when such an accelerator would have it ready, and its reduction runs
from there on.
"""

# Annotations stay objects here: DDP inspects those of its communication hook.

import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.futures import Future

FORWARD_SHARE = 1 / 3  # of a step's computation: the backward pass costs twice the forward pass
_LATE_SHARE = 0.01  # of a step: what counts as late is more than a wake-up's inexactness
_SPIN_S = 3e-4  # a sleep overshoots by less than this

Hook = Callable[[Any, dist.GradBucket], Future[Tensor]]
_HOOKS: dict[str, Hook] = {
    "fp32": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
}


def sleep_until(deadline_s: float) -> None:
    """Return at `deadline_s` of `time.perf_counter`, to some microseconds."""
    while (left := deadline_s - time.perf_counter()) > 0:
        if left > _SPIN_S:
            time.sleep(left - _SPIN_S)


class Pacer:
    """Marks a step's computation, paced or not, and when it ends and only communication is left.

    Attributes:
        step_s: the declared step time; None: whatever the computation takes.
        computed_s: when the last step's computation ended, by `time.perf_counter`.
        late: whether that was after the declared time.
        reduced_s: when the last step's first reduction left, and when its last one had its result; zeros
            where there was none, or on an accelerator, of whose streams a host's clock says nothing.
    """

    def __init__(self, step_s: float | None, numel: int, dtype: str = "fp32") -> None:
        """`numel`: trainable parameters; `dtype`: fp32, fp16 or bf16, in which DDP reduces gradients."""
        self.step_s = step_s
        self.computed_s = 0.0
        self.late = False
        self.reduced_s = (0.0, 0.0)
        self._numel = numel
        self._reduce = _HOOKS[dtype]
        self._begun_s = 0.0
        self._ready = 0
        self._reduced = False

    def begin(self) -> None:
        """A step's computation begins."""
        self._begun_s = time.perf_counter()
        self._ready = 0
        self._reduced = False
        self.reduced_s = (0.0, 0.0)

    def hook(self, group: dist.ProcessGroup | None, bucket: dist.GradBucket) -> Future[Tensor]:
        """DDP's communication hook: hold the bucket until it is due, then reduce it."""
        self._ready += bucket.buffer().numel()
        if self.step_s is not None:
            share = FORWARD_SHARE + (1 - FORWARD_SHARE) * min(1.0, self._ready / self._numel)
            self._hold(self._begun_s + share * self.step_s)
        if bucket.is_last():
            self.computed_s = time.perf_counter()
            self._reduced = True
        if bucket.buffer().device.type != "cpu":
            return self._reduce(group, bucket)
        self.reduced_s = (self.reduced_s[0] or time.perf_counter(), 0.0)
        return self._reduce(group, bucket).then(self._landed)

    def end(self) -> float:
        """The backward pass has returned; the seconds since the computation ended, spent on communication."""
        if not self._reduced:
            if self.step_s is not None:
                self._hold(self._begun_s + self.step_s)
            self.computed_s = time.perf_counter()
        return time.perf_counter() - self.computed_s

    def _landed(self, result: Future[Tensor]) -> Tensor:
        """A reduction is done; it runs wherever that was noticed, and before DDP's own wait ends."""
        self.reduced_s = (self.reduced_s[0], time.perf_counter())
        return result.value()

    def _hold(self, deadline_s: float) -> None:
        assert self.step_s is not None
        self.late = time.perf_counter() > deadline_s + _LATE_SHARE * self.step_s
        sleep_until(deadline_s)

    @property
    def computation_s(self) -> float:
        """How long the last step's computation took."""
        return self.computed_s - self._begun_s
