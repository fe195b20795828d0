"""One WAN round: its transfers over the network, with Gloo's handshake.

A transfer leaves when its source has entered the exchange, the receiver's notice has crossed, the first slice
of what it passes on has arrived, and the link has sent what became ready before, in this exchange or an
earlier one. Its last slice leaves once that has come, if it has not left before: where a payload comes more
slowly than it could go on, its last byte follows by a slice's time, and the link carries what is next
meanwhile, since slices of several payloads take turns there. When the first slice comes follows from the
window and from the rate of its link without others' flows: on shared links that is a little early.

Receives are posted ahead, as the runtime does: the notice leaves when the receiver is through with the
fragment's last round, so it delays only exchanges that follow each other closely.

A site is through when all it receives has come and the kernel has taken all it sends. Gloo waits no longer
than that (`UnboundBuffer::waitSend`: gloo/transport/tcp/pair.cc, `Pair::write`). A link's send buffer
(`Path.send_buffer`) holds so many payloads, say b: of those that an exchange sends over the link, the n-th in
the order in which they became ready is taken when it is ready and all of them but the last b payloads' bytes
up to its own end have left and have been acknowledged, a round trip later. The bytes of earlier exchanges
need not be counted: whoever now receives a payload of this one has long had them acknowledged. Left out: that
a full buffer wakes its writer once a third of it is free (`sk_stream_is_writeable`), and that
acknowledgements may wait behind data.

A link carries traffic two ways, which slows CUBIC and Reno, while transfers are on it and on the link back,
each from its first byte's leaving to its last byte's; once either is through, the other goes alone.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import inf

import simpy

from geosim.cost.problem import FragmentPlan, LinkPlan, Problem
from geosim.cost.sending import window_after, window_restart
from geosim.sim.flow import Ramp, time_alone
from geosim.sim.jitter import LinkJitter
from geosim.sim.network import Network
from geosim.sim.record import Tracer
from geosim.sim.weather import WanCarrier, Weather

# Most exchanges are like others before.
_window_after = lru_cache(maxsize=4096)(lambda window, size, limit: float(window_after(window, size, limit)))


@dataclass(frozen=True, slots=True)
class Law:
    """How a fragment's payloads go over a link.

    Attributes:
        limit, first: of TCP's window; paced: as of `Path`. alone, opposed: what its flows reach, without
        and with traffic on the way back. slice_bytes: on the wire, of what has to come before a payload can
        be passed on; slice_s: how long the last of it takes.
    """

    link: LinkPlan
    flows: int
    wire_bytes: float
    limit: float
    first: float
    alone: float
    opposed: float
    paced: bool
    slice_bytes: float
    slice_s: float

    @classmethod
    def of(cls, link: LinkPlan, plan: FragmentPlan) -> "Law":
        """That of a link and a fragment."""
        path, flows = link.path_of(plan), plan.flows
        size = plan.payload_bytes * link.wire_per_payload
        part = plan.slice_share * size
        return cls(
            link, flows, size, path.window_limit(flows), path.initial_window(flows),
            path.share_rate(flows, alone=True), path.share_rate(flows), path.paced, part,
            part / path.stream_rate(flows, alone=True),
        )  # fmt: skip


class Wan:
    """The links between sites, their delays, and what TCP remembers of each."""

    def __init__(self, env: simpy.Environment, problem: Problem, seed: int, tracer: Tracer | None) -> None:
        links, sites = problem.links, problem.sites
        capacity = [link.path.rate_bytes_per_s for link in links]
        capacity += [site.uplink_bytes_per_s for site in sites] + [
            site.downlink_bytes_per_s for site in sites
        ]
        capacity += problem.trunks
        self.env = env
        self.problem = problem
        self.tracer = tracer
        self._ways = ways = {(link.source, link.target): i for i, link in enumerate(links)}
        self.network = Network(env, capacity, [ways.get((link.target, link.source)) for link in links])
        self.link_of = [ways[t.source, t.target] for t in problem.routes]
        self.out_of: list[list[int]] = [[] for _ in sites]
        self.into: list[list[int]] = [[] for _ in sites]
        self.later: list[list[int]] = [[] for _ in problem.routes]
        for k, t in enumerate(problem.routes):
            self.out_of[t.source].append(k)
            self.into[t.target].append(k)
            if t.need is not None:
                self.later[t.need].append(k)
        self.delays = [
            LinkJitter(
                seed,
                i,
                link.path.rtt_s / 2,
                link.jitter_s,
                None if link.varying is None else link.varying.fitted_jitter,
            )
            for i, link in enumerate(links)
        ]
        self._routes = []
        for i, link in enumerate(links):
            shared = (
                [len(links) + link.source] if sites[link.source].uplink_bytes_per_s < float("inf") else []
            )
            if sites[link.target].downlink_bytes_per_s < float("inf"):
                shared.append(len(links) + len(sites) + link.target)
            shared += [len(links) + 2 * len(sites) + trunk for trunk in link.trunks]
            self._routes.append((i, *shared))
        self.load = Counter(self.link_of)  # payloads of an exchange on each link
        self._window: list[float | None] = [None] * len(links)
        self._silent_since = [0.0] * len(links)
        self._laws: list[dict[int, Law]] = [{} for _ in links]  # by a fragment's identity
        self._trickles = [0] * len(links)  # payloads whose last slice has not come yet
        # What waits until its link has sent what became ready before, by link; nothing where it is free.
        self._queues: dict[int, deque[Callable[[], None]]] = {}
        self.links = list(links)
        names = tuple(site.name for site in sites)
        self.weather = Weather(env, links, names, seed, WanCarrier(self), tracer)
        if tracer is not None:
            self.network.observe = self._observe

    def _observe(self, now: float, use: list[float]) -> None:
        assert self.tracer is not None
        for link, rate in zip(self.problem.links, use, strict=False):
            self.tracer.samples.append((link.name, now, rate))

    def enqueue(self, link: int, send: Callable[[], None]) -> None:
        """Send once the link has sent all that was enqueued before; then say so to `dequeue`."""
        if link in self._queues:
            self._queues[link].append(send)
        else:
            self._queues[link] = deque()
            send()

    def dequeue(self, link: int) -> None:
        """A link is through with a transfer."""
        if self._queues[link]:
            self._queues[link].popleft()()
        else:
            del self._queues[link]

    def law(self, link: int, plan: FragmentPlan) -> Law:
        """How a fragment's payloads go over a link as it is now."""
        known = self._laws[link].get(id(plan))
        if known is None or known.link is not self.links[link]:
            known = self._laws[link][id(plan)] = Law.of(self.links[link], plan)
        return known

    def ramp(self, link: int, law: Law, asked_s: float) -> Ramp:
        """How a payload starts that leaves now, and was ready at `asked_s`."""
        self.weather.sent(link)
        path, window = law.link.path, self._window[link]
        if window is None:
            window = law.first
        elif not self._trickles[link]:
            idle = asked_s - self._silent_since[link]
            if path.restarts and idle >= path.rto_s:
                window = float(window_restart(window, idle, law.first, path.rto_s, True))
        self._window[link] = _window_after(window, law.wire_bytes, law.limit)
        return Ramp(law.flows, path.rtt_s, window, law.limit, law.alone, law.opposed, law.paced)

    def send(
        self, link: int, size: float, ramp: Ramp, mark: tuple[float, simpy.Event] | None = None
    ) -> simpy.Event:
        """Start a transfer of so many bytes on the wire now.

        `mark`: after which part of them another event fires.
        """
        at = None if mark is None else (mark[0] * size, mark[1])
        event = self.network.send(self._routes[link], size, ramp, at)
        assert event.callbacks is not None
        event.callbacks.append(partial(self._left, link))
        return event

    def trickle(self, link: int, more: int, until_s: float) -> None:
        """One payload more or less waits on a link for its last slice; it is not silent until then."""
        self._trickles[link] += more
        self.talks(link, until_s)

    def carried(self) -> list[float]:
        """Bytes that each link has carried so far."""
        return self.network.carried_by_now()[: len(self.problem.links)]

    def notify(self, site: int, transfer: int) -> None:
        """A notice to a transfer's source goes over the connection that also carries payloads there."""
        back = self._ways.get((site, self.problem.routes[transfer].source))
        if back is not None:
            self.talks(back, self.env.now)

    def talks(self, link: int, until_s: float) -> None:
        """A link's source is not silent until then."""
        self._silent_since[link] = max(self._silent_since[link], until_s)

    def _left(self, link: int, _: simpy.Event) -> None:
        self.talks(link, self.env.now)


class Exchange:
    """One fragment's round.

    `headers`: what each site's header carries for `adapt`, complete once any site is through: its last
    exchange and its step, in whole microseconds.
    """

    def __init__(self, wan: Wan, fragment: int, name: str) -> None:
        routes, sites = wan.problem.routes, len(wan.problem.sites)
        self.wan = wan
        self.name = name
        self.plan = wan.problem.fragments[fragment]
        self.done = [wan.env.event() for _ in range(sites)]
        self.readers = sites
        self.headers = [(0, 0)] * sites
        self._asked = [0.0] * len(routes)
        self._missing = [2 if t.need is None else 3 for t in routes]
        self._ready = [0.0] * len(routes)
        # By transfer: how long its last byte will cross, when it has arrived, whether it waits for its last
        # slice.
        self._delay = [0.0] * len(routes)
        self._came = [inf] * len(routes)
        self._trickles = [False] * len(routes)
        self._open = [len(wan.out_of[m]) + len(wan.into[m]) for m in range(sites)]
        # By link: how many payloads its buffer holds, how many became ready, how many have begun to leave.
        self._held: dict[int, float] = {}
        self._ready_count = [0] * len(wan.problem.links)
        self._sent_count = [0] * len(wan.problem.links)
        # By link and place in its order: sources whose payload waits for the buffer, places that are free.
        self._waiting: dict[tuple[int, int], int] = {}
        self._free: set[tuple[int, int]] = set()

    def post(self, site: int) -> None:
        """A site's buffers are free for this round: its notices leave for all that will send to it."""
        for k in self.wan.into[site]:
            self.wan.notify(site, k)
            self._ready[k] = self.wan.env.now + self.wan.delays[self.wan.link_of[k]].draw()
            self._one_less(k)

    def enter(self, site: int) -> simpy.Event:
        """A site's payloads leave from now on, once their receivers are ready."""
        if not self._open[site]:
            self.done[site].succeed()
        for k in self.wan.out_of[site]:
            self._ask(k)
        return self.done[site]

    def _ask(self, k: int) -> None:
        """The source would send, or has the first slice of what it passes on; the later of them counts."""
        self._asked[k] = self.wan.env.now
        self._one_less(k)

    def _one_less(self, k: int) -> None:
        self._missing[k] -= 1
        if self._missing[k] == 0:
            wait = self._ready[k] - self.wan.env.now
            if wait > 0:
                self._after(wait, partial(self._start, k))
            else:
                self._start(k)

    def _after(self, seconds: float, call: Callable[[simpy.Event], None]) -> None:
        timeout = simpy.Timeout(self.wan.env, seconds)
        assert timeout.callbacks is not None
        timeout.callbacks.append(call)

    def _start(self, k: int, _: simpy.Event | None = None) -> None:
        """A transfer may leave, once its link has sent what became ready before; the kernel takes it."""
        wan, link = self.wan, self.wan.link_of[k]
        if link not in self._held:
            self._held[link] = wan.links[link].payloads_buffered(self.plan)
        place = (link, self._ready_count[link])
        self._ready_count[link] += 1
        if place[1] + 1 <= self._held[link] or place in self._free:
            self._close(wan.problem.routes[k].source)
        else:
            self._waiting[place] = wan.problem.routes[k].source
        wan.enqueue(link, partial(self._send, k))

    def _send(self, k: int) -> None:
        """A transfer's first byte leaves."""
        wan, link = self.wan, self.wan.link_of[k]
        whole, part = divmod(self._held[link], 1.0) if self._held[link] < wan.load[link] else (inf, 0.0)
        place = self._sent_count[link] + whole
        self._sent_count[link] += 1
        self._ready[k] = wan.env.now
        mark = None
        if place < wan.load[link]:
            mark = (1.0 - part, wan.env.event())
            assert mark[1].callbacks is not None
            mark[1].callbacks.append(partial(self._marked, link, int(place)))
        law = wan.law(link, self.plan)
        ramp = wan.ramp(link, law, self._asked[k])
        left = wan.send(link, law.wire_bytes, ramp, mark)
        assert left.callbacks is not None
        left.callbacks.append(partial(self._left, k))
        self._delay[k] = wan.delays[link].draw()
        if wan.later[k]:
            took = time_alone(law.slice_bytes, ramp, law.link.path.rate_bytes_per_s, False)
            self._after(took + self._delay[k], partial(self._pass_on, k))

    def _pass_on(self, k: int, _: simpy.Event) -> None:
        """A transfer's first slice is there."""
        for later in self.wan.later[k]:
            self._ask(later)

    def _marked(self, link: int, place: int, _: simpy.Event) -> None:
        """So much has left that the payload of this place is taken once it is acknowledged."""
        self._after(self.wan.links[link].path.rtt_s, partial(self._take, (link, place)))

    def _take(self, place: tuple[int, int], _: simpy.Event) -> None:
        if place in self._waiting:
            self._close(self._waiting.pop(place))
        else:
            self._free.add(place)

    def _left(self, k: int, _: simpy.Event) -> None:
        """All of a transfer has left, but for what has not come yet."""
        wan = self.wan
        link, need = wan.link_of[k], wan.problem.routes[k].need
        if wan.tracer is not None:
            row = f"link {wan.problem.links[link].name}"
            wan.tracer.span(row, "flows", self.name, self._ready[k], wan.env.now)
        wan.dequeue(link)
        if need is None:
            self._after(self._delay[k], partial(self._arrive, k))
        elif self._came[need] == inf:
            self._trickles[k] = True
            wan.trickle(link, 1, wan.env.now)
        else:
            self._cross(k, max(0.0, self._came[need] + wan.law(link, self.plan).slice_s - wan.env.now))

    def _cross(self, k: int, last_s: float) -> None:
        """The last byte leaves so much later, and crosses."""
        self.wan.talks(self.wan.link_of[k], self.wan.env.now + last_s)
        self._after(last_s + self._delay[k], partial(self._arrive, k))

    def _arrive(self, k: int, _: simpy.Event) -> None:
        """A transfer's last byte is there."""
        wan = self.wan
        self._came[k] = wan.env.now
        self._close(wan.problem.routes[k].target)
        for later in wan.later[k]:
            if self._trickles[later]:
                link = wan.link_of[later]
                wan.trickle(link, -1, wan.env.now)
                self._cross(later, wan.law(link, self.plan).slice_s)

    def _close(self, site: int) -> None:
        self._open[site] -= 1
        if self._open[site] == 0:
            self.done[site].succeed()
