"""GeoOptimizer: the one object that a user adds to train over several sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from geosim.errors import UsageError
from geosim.params import table
from geosim.policy import Layout, SyncPolicy, make_layout
from runtime.engine import Engine
from runtime.measure import Clock
from runtime.sites import Sites
from runtime.supported import check_supported
from runtime.trace import Recorder

TokenPlan = Callable[[int], Sequence[int]]

_DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class GeoOptimizer(Optimizer):
    """Wraps an optimizer so that all sites train one model, as a policy says.

    Before `step` the gradients must be the site's: the mean over the tokens of its step, the same on all of
    its ranks, as DDP over the site's group leaves them. Learning-rate schedulers take this object or the
    inner one: they share `param_groups`. Clipping before `step` is local; `policy.max_grad_norm` clips what
    is applied.

    Call `finish` after the last step, and `close` when nothing more is to come.

    Attributes:
        inner: the user's optimizer.
        layout: how the parameters travel.
        skipped_rounds: rounds that some site's update made not finite, and that all have skipped.
        clock: where the time went.
    """

    def __init__(
        self,
        inner: Optimizer,
        policy: SyncPolicy,
        sites: Sites,
        *,
        tokens: TokenPlan | None = None,
        data: str = "",
        timeout_s: float = 300.0,
        codec: str = "auto",
        trace: Recorder | None = None,
    ) -> None:
        """Agree with the other sites and connect to them; every rank of every site calls it.

        Args:
            inner: an optimizer over the model's parameters, the same at all sites.
            policy: what to send, when, how, and what it is for.
            sites: who takes part.
            tokens: the batch plan, step (from 0) -> tokens of each site; None: all alike.
            data: a fingerprint of what is trained on; all sites must name the same.
            timeout_s: how long an exchange may wait for a peer.
            codec: which implementation writes the payloads, as `runtime.codec.codec_for` names them; all
                write the same, so each site may have its own.
            trace: takes down what happens when; None: nothing is.

        Raises:
            UsageError: for a policy that the runtime does not carry out, or parameters that it cannot.
            RunError: if the sites disagree, or one does not come.
        """
        check_supported(policy)
        if policy.is_flat:
            raise UsageError(
                "topology: 'flat-ring' is torch's own DDP over all ranks: it needs no GeoOptimizer"
            )
        params, layout = _read_params(inner, policy, sites)
        super().__init__(inner.param_groups, inner.defaults)
        self.inner = inner
        self._share()
        self.layout = layout
        self.clock = Clock(trace)
        self._sites = sites
        self._tokens = tokens or (lambda step: (1,) * sites.count)
        self._engine = Engine(layout, params, inner, sites, self._tokens, data, self.clock, timeout_s, codec)

    @property
    def skipped_rounds(self) -> int:
        """Rounds that all sites have skipped."""
        return self._engine.skipped_rounds

    @property
    def steps(self) -> int:
        """Steps done."""
        return self._engine.step

    @property
    def at_window_start(self) -> bool:
        """Whether all windows have just ended: parameters are then the same at all sites."""
        return self._engine.at_window_start

    @property
    def engine(self) -> Engine:
        """The window's machinery, for figures about it."""
        return self._engine

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take in one step; at a window's end send what it brought, and apply what is due.

        Raises:
            RunError: whatever went wrong in an exchange, naming peer and round.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._engine.take_step()
        return loss

    @torch.no_grad()
    def finish(self) -> None:
        """Apply the results of the rounds that are still in flight, oldest first. May be called again.

        Raises:
            UsageError: inside a window, naming the nearest step counts that end one.
        """
        self._engine.finish()

    def close(self) -> None:
        """Part from the other sites, which must do the same."""
        self._engine.close()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the parameters' gradients; what the window has gathered stays.

        From here on time counts as the next step's computation, in what this site's headers say.
        """
        self.inner.zero_grad(set_to_none)
        self._engine.timings.begin_step()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only while it is made: all sites have agreed on the tensors since.

        Raises:
            UsageError: afterwards.
        """
        if hasattr(self, "layout"):
            raise UsageError(
                "add_param_group: the sites have agreed on the tensors: build a new GeoOptimizer"
            )
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state and all that a resume needs beside it; for this rank.

        Rounds in flight are completed and verified, not applied; all sites call it at the same step.

        Raises:
            RunError: if a round in flight fails.
        """
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        state = {"inner": self.inner.state_dict(), "geo": self._engine.state_dict()}
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, state)
            state = state if changed is None else changed
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was called, bit for bit; the model's parameters are loaded before it.

        Raises:
            UsageError: if the state belongs to another policy, model, site or rank.
            RunError: if the sites do not stand at the same step with the same parameters.
        """
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            changed = before(self, state_dict)
            state_dict = state_dict if changed is None else changed
        if "inner" not in state_dict or "geo" not in state_dict:
            raise UsageError("checkpoint: no state of a GeoOptimizer: it has no 'inner' and 'geo'")
        self.inner.load_state_dict(state_dict["inner"])
        self._share()
        self._engine.load_state_dict(state_dict["geo"])
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def _share(self) -> None:
        """One `param_groups` and one `state` for both, so that a scheduler may hold either."""
        self.param_groups = self.inner.param_groups
        self.state = self.inner.state


def _read_params(inner: Optimizer, policy: SyncPolicy, sites: Sites) -> tuple[list[Tensor], Layout]:
    """The optimizer's tensors in its order, each once, and their layout."""
    params: list[Tensor] = []
    names: list[str] = []
    for g, group in enumerate(inner.param_groups):
        given = group.get("param_names") or [f"group{g}.param{i}" for i in range(len(group["params"]))]
        for name, param in zip(given, group["params"], strict=True):
            if param.requires_grad and not any(param is p for p in params):
                params.append(param)
                names.append(name)
    if not params:
        raise UsageError("optimizer: no parameter requires a gradient")
    dtypes = {param.dtype for param in params}
    devices = {param.device for param in params}
    if len(dtypes) > 1 or not dtypes <= set(_DTYPES):
        raise UsageError(
            f"parameters: dtypes {sorted(map(str, dtypes))}: use one of fp32, bf16 and fp16 for all"
        )
    if len(devices) > 1:
        raise UsageError(f"parameters: on {len(devices)} devices: a rank needs them on one")
    if policy.shards is not None and policy.shards > sites.least_ranks:
        raise UsageError(f"shards: {policy.shards} is more than the {sites.least_ranks} ranks of a site")
    shapes = [(name, tuple(param.shape)) for name, param in zip(names, params, strict=True)]
    return params, make_layout(table(shapes, _DTYPES[dtypes.pop()]), policy, sites.least_ranks)
