"""Behind GeoOptimizer: walks the schedule, sends at a window's end and applies what is due."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from geosim.errors import NotFiniteError, UsageError
from geosim.policy import Layout, schedule
from geosim.policy.routes import make_routes
from geosim.policy.schedule import Event
from runtime.codec import FragmentCodec, codec_for, wire
from runtime.differences import DOCUMENT
from runtime.exchange import Exchanger, Flight
from runtime.flights import load_flights, save_flights
from runtime.measure import Clock
from runtime.settings import with_settings
from runtime.shards import most_in_site
from runtime.sites import Sites
from runtime.supported import check_steps
from runtime.timings import Timings
from runtime.trace import watched
from runtime.transfer import Channel
from runtime.update import Rule, copy_into, rule_for

_NO_CHAIN = bytes(8)


class Engine:
    """One rank's exchanges with the same rank of other sites.

    Attributes:
        codec: the name of the implementation that writes the payloads.
        step: steps done.
        chain: the chain hash over the results applied so far, of this rank's shard.
        skipped_rounds: how many rounds all have skipped, one a window however many fragments it has.
        skipped: rounds that all have skipped, and the numbers of the sites that were not finite in each; a
            rank that has no shard knows only how many they are (`skipped_rounds`).
        payload_bytes: of this process's own payloads sent, each counted once, and not before a resume.
        flown: rounds whose result was applied since the caller last emptied the list, for their timings.
        timings: what the headers say of this rank's time.
    """

    def __init__(
        self,
        layout: Layout,
        params: Sequence[Tensor],
        inner: Optimizer,
        sites: Sites,
        tokens: Callable[[int], Sequence[int]],
        data: str,
        clock: Clock,
        timeout_s: float,
        codec: str = "auto",
    ) -> None:
        self._layout = layout
        self._sites = sites
        self._tokens = tokens
        self._data = data
        self._clock = clock
        self._routes = make_routes(layout.policy.topology, sites.names)
        self._wan = sites.rank < layout.shards
        self._rule: Rule = rule_for(layout.policy.update.kind)(
            layout, params, inner, sites.rank, sites.ranks, clock
        )
        self._device = params[0].device
        fragments = range(len(layout.fragments))
        make = codec_for(codec, self._device)
        self.codec = make.name
        self._codecs = [make(layout, f, sites.rank, sites.index) for f in fragments] if self._wan else []
        residual = self._wan and layout.policy.codec.residual.kind != "none"
        self._residuals = [shard.zeros(self._device) for shard in self._rule.shards] if residual else []
        self._plan = schedule.make_plan(layout)
        self._cycle_start = schedule.start(self._plan)
        self._next, self._events = schedule.next_cycle(self._cycle_start, self._plan, layout.policy.interval)
        self._window_tokens = [0] * sites.count
        self._flights: dict[tuple[int, int], Flight] = {}
        self._chained = 0
        self._finished = False
        self.step = 0
        self.chain = _NO_CHAIN
        self.skipped: dict[int, tuple[int, ...]] = {}
        self._skipped_in_site = 0  # as the site's WAN ranks tell one that has no shard
        self.payload_bytes = 0
        self.flown: list[Flight] = []
        self.timings = Timings()
        self._timing_us = (0, 0)  # the site's exchange and step, as its headers tell them
        self._closed = False
        self._agree()
        opened = sites.open_streams(layout.policy.streams, timeout_s=timeout_s) if self._connects else []
        self._groups = [watched(stream, i, clock.trace) for i, stream in enumerate(opened)]
        self._exchanger = self._make_exchanger() if self._wan else None

    @property
    def at_window_start(self) -> bool:
        """Whether a window has just ended, or none has begun."""
        return self.step == self._cycle_start.step

    @property
    def skipped_rounds(self) -> int:
        """Rounds that all have skipped."""
        return max(len(self.skipped), self._skipped_in_site)

    @property
    def _connects(self) -> bool:
        return self._wan and self._sites.count > 1

    def take_step(self) -> None:
        """Take in the gradients of one step and do what the schedule says after it."""
        if self._closed:
            raise UsageError("step: the optimizer is closed: build a new GeoOptimizer")
        if self._finished:
            raise UsageError("step: the run is finished: its last results are applied")
        if self._exchanger is not None:
            self._exchanger.check()
        self.timings.end_compute()
        tokens = tuple(self._tokens(self.step))
        if len(tokens) != self._sites.count or min(tokens) < 0:
            raise UsageError(
                f"tokens: step {self.step} gives {tokens}: must be a count for each of "
                f"{self._sites.count} sites"
            )
        self._window_tokens = [a + b for a, b in zip(self._window_tokens, tokens, strict=True)]
        own = self._sites.index
        self._rule.observe(tokens[own], self._window_tokens[own])
        self.step += 1
        due = [event for event in self._events if event.step == self.step]
        if due:
            sent = [event for event in due if event.kind == "send"]
            self._send(sent)
            self._apply([event for event in due if event.kind == "apply"])
            self._rule.restart([event.fragment for event in sent])
        if self.step == self._next.step:
            self._begin_cycle(self._next)
        self.timings.begin_step()

    def finish(self) -> None:
        """Apply what is still in flight; no step can follow."""
        if not self.at_window_start:
            check_steps(self.step, self._layout.policy.interval)
        if self._finished:
            return
        if self._closed:
            raise UsageError("finish: the optimizer is closed: call finish before close")
        self._finished = True
        left = schedule.finish(self._cycle_start, self._plan)
        self._apply(left)
        self._rule.restart(sorted({event.fragment for event in left}))
        self._agree(final=True)

    def close(self) -> None:
        """Let what is in flight land, then part from the other sites."""
        self._closed = True
        if self._exchanger is not None:
            self._exchanger.close()
            self._sites.part(self._groups)
            self._exchanger = None
            self._groups = []

    def _begin_cycle(self, state: schedule.State) -> None:
        self._cycle_start = state
        self._next, self._events = schedule.next_cycle(state, self._plan, self._layout.policy.interval)
        self._window_tokens = [0] * self._sites.count
        self.timings.begin_window()

    def _send(self, events: Sequence[Event]) -> None:
        own = self._sites.index
        total = sum(self._window_tokens)
        weight = self._window_tokens[own] / total if total else 0.0
        with self._clock.part("encode", ", ".join(map(_named, events))):
            values = [self._rule.contribution(e.fragment, self._window_tokens[own]) for e in events]
            payloads = [self._encode(e, v, weight) for e, v in zip(events, values, strict=True) if self._wan]
            finite = None not in payloads
        with self._clock.part("encode"):
            said = (int(not finite), self.timings.exchange_us, self.timings.step_us)
            flag, *timing = most_in_site(said, self._sites.ranks, self._device)
            finite, self._timing_us = not flag, (timing[0], timing[1])
            chain = with_settings(self.chain, self._rule.inner)
        for event, vector, payload in zip(events, values, payloads or [None] * len(events), strict=True):
            if self._wan:
                with self._clock.part("encode"):
                    flight = self._flight(event, vector, weight, payload, finite, chain)
                self._flights[event.fragment, event.round] = flight
                self.payload_bytes += flight.payload.numel()
                assert self._exchanger is not None
                self._exchanger.send(flight)
                if self._clock.trace is not None and self._residuals:
                    self._clock.trace.residual(event.fragment, self._residuals[event.fragment])
            self._rule.clear(event.fragment)

    def _encode(self, event: Event, values: Tensor, weight: float) -> Tensor | None:
        """A payload without its header, or None if the update is not finite."""
        codec = self._codecs[event.fragment]
        payload = self._buffer(codec)
        try:
            codec.encode(values, weight, self._residual(event.fragment), event.round, payload)
        except NotFiniteError:
            return None
        return payload

    def _flight(
        self,
        event: Event,
        values: Tensor,
        weight: float,
        payload: Tensor | None,
        finite: bool,
        chain: bytes,
    ) -> Flight:
        """What is sent: the payload, or in a round that the site's ranks have flagged an empty one."""
        codec = self._codecs[event.fragment]
        if payload is None:
            payload = self._buffer(codec)
        elif not finite:
            codec.undo(values, weight, self._residual(event.fragment), event.round, payload)
        codec.seal(
            payload, event.round, tokens=self._window_tokens[self._sites.index],
            exchange_us=self._timing_us[0], step_us=self._timing_us[1], chain=chain, finite=finite,
        )  # fmt: skip
        tokens = tuple(self._window_tokens)
        return Flight(event.fragment, event.round, payload, tokens, chain, self._chained, finite)

    def _buffer(self, codec: FragmentCodec) -> Tensor:
        """Host memory for a payload; a GPU writes into it by itself."""
        return torch.empty(codec.payload_bytes, dtype=torch.uint8, pin_memory=self._pinned)

    @property
    def _pinned(self) -> bool:
        return self._device.type == "cuda"

    def _residual(self, fragment: int) -> Tensor | None:
        return self._residuals[fragment] if self._residuals else None

    def _apply(self, events: Sequence[Event]) -> None:
        """Apply events in order, together as far as no fragment comes twice."""
        batch: list[tuple[int, Tensor, bool]] = []
        for event in events:
            if any(event.fragment == fragment for fragment, _, _ in batch):
                self._rule.apply(batch)
                batch = []
            batch.append(self._land(event))
        if batch:
            self._rule.apply(batch)
        if batch and self._sites.ranks > self._layout.shards:
            (self._skipped_in_site,) = most_in_site((self.skipped_rounds,), self._sites.ranks, self._device)

    def _land(self, event: Event) -> tuple[int, Tensor, bool]:
        """Wait for a round's result; a skipped one gives back what this site had sent."""
        if not self._wan:
            return event.fragment, torch.empty(0), False
        flight = self._flights[event.fragment, event.round]
        with self._clock.part("wait", _named(event)):
            total = flight.wait()
        del self._flights[event.fragment, event.round]
        self._clock.add("decode", flight.finished_s - flight.received_s)
        if flight.started_s:  # not one that a checkpoint has brought along
            self.timings.note_exchange(flight.round, flight.finished_s - flight.started_s)
            if self._clock.trace is not None:
                self._clock.trace.flight(flight)
        self.chain = wire.next_chain(self.chain, event.round, event.fragment, total.cpu().numpy())
        self._chained += 1
        if flight.skipped:
            self.skipped[flight.round] = flight.not_finite
            residual = self._residual(event.fragment)
            if residual is not None and flight.finite:
                self._codecs[event.fragment].decode_add(
                    flight.payload, self._sites.index, event.round, residual
                )
        self.flown.append(flight)
        return event.fragment, total, flight.skipped

    def _make_exchanger(self) -> Exchanger:
        policy = self._layout.policy
        channel = None
        if self._groups:
            sizes = [codec.payload_bytes for codec in self._codecs]
            chunk = None if policy.chunk_bytes is None else max(1, int(policy.chunk_bytes))
            channel = Channel(
                self._groups, self._sites.names, self._sites.index, self._routes, sizes, chunk, self._pinned
            )
        return Exchanger(
            channel, self._codecs, self._sites.names, self._sites.index, self._device, self._routes
        )

    def _agree(self, final: bool = False) -> None:
        """All stand at one step, with one policy and the same parameters."""
        digest = blake2b(digest_size=8)
        for vector in self._rule.agreed():
            digest.update(vector.cpu().numpy().data)
        self._sites.agree(
            {
                "wire": wire.VERSION,
                "policy": self._layout.policy.fingerprint(),
                f"policy{DOCUMENT}": json.dumps(self._layout.policy.to_dict()),
                "layout": self._layout.fingerprint(),
                "data": self._data,
                "step": self.step,
                **({"final" if final else "parameters": digest.hexdigest()} if self._wan else {}),
            },
            self._layout.shards,
        )

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, text and tensors; rounds in flight are completed first, and stay unapplied."""
        return {
            "layout": self._layout.fingerprint(),
            "place": [self._sites.name, self._sites.rank, self._sites.ranks, *self._sites.names],
            "cycle_start": [self._cycle_start.step, self._cycle_start.cycle, *self._cycle_start.rounds],
            "step": self.step,
            "window_tokens": list(self._window_tokens),
            "residuals": [vector.clone() for vector in self._residuals],
            "rule": self._rule.state_dict(),
            "flights": save_flights(self._flights.values()),
            "chain": self.chain.hex(),
            "chained": self._chained,
            "skipped": [[round_, *sites] for round_, sites in self.skipped.items()],
            "skipped_rounds": self.skipped_rounds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Stand where `state_dict` was called, and agree with the other sites that all stand there.

        Raises:
            UsageError: if the state is another layout's, site's or rank's.
            RunError: if the sites disagree.
        """
        place = [self._sites.name, self._sites.rank, self._sites.ranks, *self._sites.names]
        for what, mine, theirs in (
            ("model and policy", self._layout.fingerprint(), state["layout"]),
            ("site, rank, ranks and sites", place, state["place"]),
        ):
            if mine != theirs:
                raise UsageError(
                    f"checkpoint: its {what} are {theirs} and here {mine}: load the one that was saved here"
                )
        step, cycle, *rounds = state["cycle_start"]
        self._begin_cycle(schedule.State(step, cycle, tuple(rounds)))
        self.step = state["step"]
        self._window_tokens = list(state["window_tokens"])
        copy_into(self._residuals, state["residuals"])
        self._rule.load_state_dict(state["rule"])
        self._flights = load_flights(state["flights"])
        self.chain = bytes.fromhex(state["chain"])
        self._chained = state["chained"]
        self.skipped = {round_: tuple(sites) for round_, *sites in state["skipped"]}
        self._skipped_in_site = state["skipped_rounds"]
        self._agree()


def _named(event: Event) -> str:
    return f"fragment {event.fragment} round {event.round}"
