"""Exchanges over links that no two payloads share, as arrays: what stays, what one leaves to the next, what is
under way."""

import math
from typing import NamedTuple

import numpy as np

_COLUMNS = 17  # of a flow


class Net(NamedTuple):
    """What stays as it is in a run: of links [L], of transfers [R], of sites; lists of lists as two arrays.

    Attributes:
        rate, rtt, rto, restarts, delay, jitter, back, load: of links; `back`: the way back or -1; `load`:
        payloads of an exchange; `place`: where a link's places begin among all.
        sender: of links, the site that they come from.
        link_of, source, target, missing: of transfers; `missing`: how many things each waits for.
        out_of, into, later: transfers out of and into sites, and those that a transfer lets go on; entry i
        is what lies between entries i and i + 1 of `.._at`.
    """

    rate: np.ndarray
    rtt: np.ndarray
    rto: np.ndarray
    restarts: np.ndarray
    delay: np.ndarray
    jitter: np.ndarray
    back: np.ndarray
    load: np.ndarray
    place: np.ndarray
    sender: np.ndarray
    link_of: np.ndarray
    source: np.ndarray
    target: np.ndarray
    missing: np.ndarray
    out_of: np.ndarray
    out_of_at: np.ndarray
    into: np.ndarray
    into_at: np.ndarray
    later: np.ndarray
    later_at: np.ndarray


class Laws(NamedTuple):
    """Of one fragment on each link [L]: bytes on the wire, windows, rates, payloads that a buffer holds."""

    flows: int
    size: np.ndarray
    limit: np.ndarray
    first: np.ndarray
    stream: np.ndarray
    opposed: np.ndarray
    held: np.ndarray


class State(NamedTuple):
    """What one exchange leaves to the next.

    Attributes:
        window, silent, free, carried: of links; window -1: none yet; `free`: when the last byte has left.
        ready, missing: of fragments and transfers [F, R].
        normals, drawn: of links, standard normal numbers [L, n] and how many of them are used up.
    """

    window: np.ndarray
    silent: np.ndarray
    free: np.ndarray
    carried: np.ndarray
    ready: np.ndarray
    missing: np.ndarray
    normals: np.ndarray
    drawn: np.ndarray

    def copy(self) -> "State":
        """Another of its own; random numbers, which nothing changes, are shared."""
        own = [a if name == "normals" else a.copy() for name, a in self._asdict().items()]
        return State(*own)


class Play(NamedTuple):
    """What is under way.

    Attributes:
        flow: [L + 1, columns], the last row for looking ahead. on: the transfer on a link, or -1.
        busy, head, tail, following: queues of transfers, by link.
        alarm: which of a link's alarms counts. ready_count, sent_count: of links.
        is_free, waits: of places in the order of links: whether the buffer has room, and is waited for.
        mark_place: of links, the place whose payload is taken once what is under way has passed its mark.
        asked: of transfers. changed, is_changed: transfers that get their rates anew.
        open_: what sites still wait for. done, order: when and in which order they are through.
        count: of events, of changed transfers and of sites that are through.
    """

    flow: np.ndarray
    on: np.ndarray
    busy: np.ndarray
    head: np.ndarray
    tail: np.ndarray
    following: np.ndarray
    alarm: np.ndarray
    ready_count: np.ndarray
    sent_count: np.ndarray
    is_free: np.ndarray
    waits: np.ndarray
    mark_place: np.ndarray
    asked: np.ndarray
    changed: np.ndarray
    is_changed: np.ndarray
    open_: np.ndarray
    done: np.ndarray
    order: np.ndarray
    count: np.ndarray


def make_play(net: Net) -> Play:
    """An exchange of which nothing has happened yet."""
    links, routes = len(net.rate), len(net.link_of)
    opened = np.diff(net.out_of_at) + np.diff(net.into_at)

    def whole(n: int, value: int = 0) -> np.ndarray:
        return np.full(n, value, np.int64)

    return Play(
        flow=np.zeros((links + 1, _COLUMNS)), on=whole(links, -1), busy=whole(links), head=whole(links, -1),
        tail=whole(links, -1), following=whole(routes, -1), alarm=whole(links), ready_count=whole(links),
        sent_count=whole(links), is_free=whole(routes), waits=whole(routes), mark_place=whole(links),
        asked=np.zeros(routes), changed=whole(routes), is_changed=whole(routes), open_=opened,
        done=np.full(len(opened), math.inf), order=whole(len(opened)), count=whole(3),
    )  # fmt: skip
