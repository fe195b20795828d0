"""Exchanges over links that no two payloads share, as arrays: what stays, what the next one finds, what is
under way."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from geosim.cost.problem import FragmentPlan
from geosim.sim.exchange import Wan
from geosim.sim.lonely.heap import COUNTS

_FIXED = {
    "rate": float, "rtt": float, "rto": float, "restarts": int, "delay": float, "jitter": float,
    "back": int, "paced": int, "load": int, "place": int, "sender": int,
}  # fmt: skip
_LAWS = {
    "payload": float, "slice": float, "flows": float, "limit": float, "first": float, "stream": float,
    "opposed": float, "held": float,
}  # fmt: skip
_KEPT = {"window": float, "silent": float, "free": float, "carried": float, "drawn": int}
_FLOW = {
    "left": float, "burst": float, "body": float, "credit": float, "phase": int, "since": float,
    "speed": float, "round": float, "paused": float, "in_flight": float, "is_opposed": int,
    "mark_left": float, "has_mark": int,
}  # fmt: skip
_QUEUE = {
    "on": int, "is_busy": int, "head": int, "tail": int, "ready": int, "sent": int, "mark_place": int,
    "alarm": int, "trickles": int,
}  # fmt: skip

# A link. Fixed: `back` is the way back or -1, `load` the payloads of an exchange, `place` where the link's
# places begin among all, `sender` its site. Laws: of the exchange's fragment; `payload` and `slice` on the
# wire, `held`: how many payloads a buffer holds. Kept: `window` -1: none yet; `free`: when its last byte has
# left; `drawn`: random numbers used up. Flow: as `sim.flow.Flow`, its window `in_flight`. Queue: the transfer
# on the link and those that wait, -1: none; how many became ready and were sent; where its alarm is in the
# heap, 0: nowhere; how many transfers wait for their last slice.
LINK = np.dtype(list((_FIXED | _LAWS | _KEPT | _FLOW | _QUEUE).items()))

# A transfer, and (room, waits) for a place in the order of a link. `need`: the one that it passes on, or -1;
# `needs`: how many things it waits for; `later` to `later_end`: in `State.lists`, those that pass it on;
# `following`: in its queue. `delay`, `came`, `trickles`: as in `exchange.Exchange`.
TRANSFER = np.dtype(
    [(name, int) for name in ("link", "target", "need", "needs", "later", "later_end")]
    + [("asked", float), ("delay", float), ("came", float), ("trickles", int)]
    + [("following", int), ("is_changed", int), ("changed", int)]
    + [("has_room", int), ("waits", int)]
)

# A site: its transfers in `State.lists`; what it still waits for, and when and as how manieth it is through.
SITE = np.dtype(
    [(name, int) for name in ("out_of", "out_of_end", "into", "into_end", "waits_for")]
    + [("done", float), ("order", int)]
)

# Of a fragment and a transfer: when the notice is there, and how many things are missing.
NOTICE = np.dtype([("ready", float), ("missing", int)])

EVENT = np.dtype([("at", float), ("order", int), ("what", int), ("a", int), ("b", int)])


class State(NamedTuple):
    """All of a run's exchanges.

    Attributes:
        links [L + 1], the last for looking ahead; transfers [R]; sites [M]; lists: numbers of transfers.
        notices: [fragments, R].
        normals: standard normal numbers [L, n].
        heap, queue: events to come, and those of this instant; counts: see `heap`.
    """

    links: np.ndarray
    transfers: np.ndarray
    sites: np.ndarray
    lists: np.ndarray
    notices: np.ndarray
    normals: np.ndarray
    heap: np.ndarray
    queue: np.ndarray
    counts: np.ndarray

    def copy(self) -> "State":
        """Another of its own; what does not change is shared."""
        return self._replace(links=self.links.copy(), notices=self.notices.copy())


def make_state(wan: Wan) -> State:
    """All as it is at the start."""
    plans, routes = wan.problem.links, wan.problem.routes
    ways = {(plan.source, plan.target): i for i, plan in enumerate(plans)}
    load = [wan.load[i] for i in range(len(plans))]
    links = np.zeros(len(plans) + 1, LINK)
    fixed = links[:-1]
    for name, value in {
        "rate": [plan.path.rate_bytes_per_s for plan in plans],
        "rtt": [plan.path.rtt_s for plan in plans],
        "rto": [plan.path.rto_s for plan in plans],
        "restarts": [plan.path.restarts for plan in plans],
        "delay": [plan.path.rtt_s / 2 for plan in plans],
        "jitter": [plan.jitter_s for plan in plans],
        "paced": [plan.path.paced for plan in plans],
        "back": [ways.get((plan.target, plan.source), -1) for plan in plans],
        "load": load,
        "place": np.cumsum([0, *load[:-1]]),
        "sender": [plan.source for plan in plans],
        "window": -1.0,
    }.items():
        fixed[name] = value
    transfers, sites = np.zeros(len(routes), TRANSFER), np.zeros(len(wan.out_of), SITE)
    transfers["link"] = wan.link_of
    transfers["target"] = [t.target for t in routes]
    transfers["need"] = [-1 if t.need is None else t.need for t in routes]
    transfers["needs"] = [2 if t.need is None else 3 for t in routes]
    lists: list[int] = []
    for table, name, of in (
        (sites, "out_of", wan.out_of), (sites, "into", wan.into), (transfers, "later", wan.later),
    ):  # fmt: skip
        table[name], table[f"{name}_end"] = _laid_out(lists, of)
    notices = np.zeros((len(wan.problem.fragments), len(routes)), NOTICE)
    notices["missing"] = transfers["needs"]
    return State(
        links, transfers, sites, np.array(lists), notices, np.zeros((len(plans), 0)),
        heap=np.zeros(len(plans) + 3 * len(routes) + 2, EVENT), queue=np.zeros(2 * len(plans) + 1, EVENT),
        counts=np.zeros(COUNTS, int),
    )  # fmt: skip


def _laid_out(lists: list[int], of: Sequence[Iterable[int]]) -> tuple[list[int], list[int]]:
    """Add lists one after another; where each begins and ends."""
    begins, ends = [], []
    for each in of:
        begins.append(len(lists))
        lists += each
        ends.append(len(lists))
    return begins, ends


def laws_of(wan: Wan, fragment: FragmentPlan) -> dict[str, np.ndarray | float]:
    """Columns of the links that follow from the fragment."""
    plans, flows = wan.problem.links, fragment.flows
    paths = [plan.path_of(fragment) for plan in plans]
    payload = np.array([fragment.payload_bytes * plan.wire_per_payload for plan in plans])
    return {
        "payload": payload,
        "slice": fragment.slice_share * payload,
        "flows": float(flows),
        "limit": np.array([path.window_limit(flows) for path in paths]),
        "first": np.array([path.initial_window(flows) for path in paths]),
        "stream": np.array([path.share_rate(flows, alone=True) for path in paths]),
        "opposed": np.array([path.share_rate(flows) for path in paths]),
        "held": np.array([plan.payloads_buffered(fragment) for plan in plans]),
    }
