"""How sites find each other and agree before the first step: one TCPStore that the first site hosts."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import DistError, TCPStore

from geosim.errors import RunError, UsageError
from runtime.differences import DOCUMENT, differences

_RETRY_S = 0.1
_FAREWELL_S = 5.0  # how long the host of the store waits for others to read what made it stop

# Field of a greeting -> (what it is, what to do where sites differ). In the order in which they are compared.
_FIELDS = {
    "wire": ("the wire version", "install the same geosim everywhere"),
    "sites": ("the sites", "name the same sites in the same order everywhere"),
    "ranks": ("the ranks of a site", "start as many as each site is to have, or name them (ranks_of)"),
    "policy": ("the policy", "give all sites the same policy file"),
    "workload": ("the workload", "give all sites the same scenario and --set"),
    "steps": ("--steps", "give all sites the same number of steps"),
    "lr": ("--lr", "give all sites the same learning rate"),
    "seed": ("--seed", "give all sites the same seed"),
    "validations": ("--validations", "give all sites the same number of validations"),
    "resume": ("--resume", "resume all sites or none"),
    "trace": ("--trace", "give it at all sites or at none"),
    "layout": ("the model's tensors", "build the same model everywhere"),
    "data": (
        "the data",
        "give all sites the same text, or the same release of Python for its standard library",
    ),
    "step": ("the step they stand at", "resume all sites from checkpoints of the same step"),
    "parameters": ("the parameters", "use the same seed, or load the same checkpoint everywhere"),
    "final": (
        "the parameters they have ended with",
        "their optimizers differ: resume all sites from a checkpoint, with the same settings",
    ),
}
_OF_A_SHARD = frozenset({"parameters", "final"})  # ranks of one site may differ in these


@dataclass(frozen=True)
class Address:
    """HOST:PORT of the store."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``HOST:PORT``.

        Raises:
            UsageError: where there is no host, no port, or a port that cannot be.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise UsageError(f"--rendezvous {text}: write HOST:PORT, like 10.0.0.1:29600")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def local_address(towards: Address) -> str:
    """The address of this machine that packets to `towards` leave from.

    Raises:
        RunError: if there is no way there.
    """
    try:
        family, kind, _, _, where = socket.getaddrinfo(towards.host, towards.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # sends nothing for a datagram socket, but picks the source address
            return str(probe.getsockname()[0])
    except OSError as error:
        raise RunError(
            f"rendezvous {towards}: no way there ({error.strerror or error}): check the host name"
        ) from None


def open_store(
    address: Address, *, host: bool, first_site: str, timeout_s: float, listen_fd: int | None
) -> TCPStore:
    """The store of all sites; `listen_fd` is a listening socket to serve it from, where the caller made one.

    Raises:
        RunError: if the address cannot be bound, or nobody answers there within `timeout_s`.
    """
    if not host:
        _await_listener(address, first_site, timeout_s)
    try:
        return TCPStore(
            address.host, address.port, is_master=host, wait_for_workers=False,
            timeout=timedelta(seconds=timeout_s), master_listen_fd=listen_fd if host else None,
        )  # fmt: skip
    except (DistError, RuntimeError) as error:
        why = _first_line(error)
        raise RunError(
            f"rendezvous {address}: cannot serve the sites' store there ({why}): name an address of this "
            "machine and a free port"
            if host
            else f"rendezvous {address}: site '{first_site}' stopped answering ({why}): look there"
        ) from None


def _await_listener(address: Address, first_site: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            patience = max(_RETRY_S, deadline - time.monotonic())
            with socket.create_connection((address.host, address.port), timeout=patience):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RunError(
                    f"waited {timeout_s:g} s for site '{first_site}', which hosts the rendezvous at "
                    f"{address}, and it never came ({error.strerror or error}): start it, or mend the address"
                ) from None
        time.sleep(_RETRY_S)


@dataclass(frozen=True)
class Greeting:
    """What one rank says of itself.

    `facts` has keys of `_FIELDS`, with values to be equal everywhere, and for some of them, with `DOCUMENT`
    at their end, what they are the hash of: it names what differs.
    """

    site: str
    rank: int
    facts: Mapping[str, str | int]


def agree(
    store: TCPStore,
    mine: Greeting,
    others: Sequence[tuple[str, int]],
    *,
    topic: str,
    timeout_s: float,
    readers: Sequence[tuple[str, int]] = (),
    host: str = "",
) -> None:
    """Publish `mine` and compare it with the greetings of `others`, (site, rank) each.

    Args:
        store: of all sites.
        mine: what this rank says.
        others: whom to compare with; ranks of one's own site may hold other shards.
        topic: what tells one agreement from the next.
        timeout_s: how long to wait for the others.
        readers: whom this process, which serves the store, waits for before it stops over a disagreement,
            so that they see the reason too; empty where it does not serve it.
        host: the site that serves the store, for messages.

    Raises:
        RunError: one line that names both sites and the field, or the site that never came.
    """
    begun = time.monotonic()
    try:
        _tell(store, f"{topic}/{mine.site}/{mine.rank}", dict(mine.facts), host)
        for who in others:
            try:
                theirs = json.loads(_read(store, f"{topic}/{who[0]}/{who[1]}", begun, timeout_s))
            except (DistError, RuntimeError) as error:
                readers = [reader for reader in readers if reader[0] != who[0]]
                raise _absent(who, error, begun, timeout_s, host) from None
            _compare(mine, Greeting(*who, theirs))
    except RunError:
        _stay(store, topic, readers)
        raise
    finally:
        _say(store, f"{topic}/read/{mine.site}/{mine.rank}")


def gather(
    store: TCPStore,
    me: tuple[str, int],
    value: Any,
    everyone: Sequence[tuple[str, int]],
    *,
    topic: str,
    timeout_s: float,
    serves: bool,
    host: str,
) -> dict[tuple[str, int], Any]:
    """What every rank of every site says on a topic; plain data. Who serves the store leaves last.

    Raises:
        RunError: naming the site and rank that never came.
    """
    begun = time.monotonic()
    said = {}
    try:
        _tell(store, f"{topic}/{me[0]}/{me[1]}", value, host)
        for who in everyone:
            try:
                said[who] = json.loads(_read(store, f"{topic}/{who[0]}/{who[1]}", begun, timeout_s))
            except (DistError, RuntimeError) as error:
                raise _absent(who, error, begun, timeout_s, host) from None
    finally:
        _say(store, f"{topic}/read/{me[0]}/{me[1]}")
    if serves:
        _stay(store, topic, [who for who in everyone if who != me])
    return said


def _tell(store: TCPStore, key: str, value: Any, host: str) -> None:
    try:
        store.set(key, json.dumps(value))
    except (DistError, RuntimeError) as error:
        raise RunError(
            f"the rendezvous has closed ({_first_line(error)}): look at why site '{host}', which "
            "hosts it, stopped"
        ) from None


def _read(store: TCPStore, key: str, begun: float, timeout_s: float) -> bytes:
    left = max(0.001, begun + timeout_s - time.monotonic())
    store.wait([key], timedelta(seconds=left))
    return bytes(store.get(key))


def _absent(
    who: tuple[str, int], error: BaseException, begun: float, timeout_s: float, host: str
) -> RunError:
    """Why there is no greeting: nobody came in time, or the store has gone."""
    waited = time.monotonic() - begun
    site, rank = who
    if waited < timeout_s - _RETRY_S:
        return RunError(
            f"the rendezvous closed after {waited:.1f} s, before site '{site}' (rank {rank}) was heard: "
            f"look at why site '{host}', which hosts it, stopped"
        )
    reason = _first_line(error)
    why = "" if reason.startswith("wait timeout") else f" ({reason})"  # which says no more
    return RunError(
        f"waited {timeout_s:g} s for site '{site}' (rank {rank}) and it never came{why}: start it, or "
        "look at why it stopped"
    )


def _say(store: TCPStore, key: str) -> None:
    # The host may be gone, and with it whoever would have read this.
    with contextlib.suppress(DistError, RuntimeError):
        store.add(key, 1)


def _stay(store: TCPStore, topic: str, readers: Sequence[tuple[str, int]]) -> None:
    """Serve until all readers have read the greetings, or `_FAREWELL_S` pass."""
    keys = [f"{topic}/read/{site}/{rank}" for site, rank in readers]
    with contextlib.suppress(DistError, RuntimeError):
        if keys:
            store.wait(keys, timedelta(seconds=_FAREWELL_S))


def _compare(mine: Greeting, theirs: Greeting) -> None:
    for field, (what, remedy) in _FIELDS.items():
        within = mine.site == theirs.site
        if field not in mine.facts or (within and field in _OF_A_SHARD):
            continue
        here, there = mine.facts[field], theirs.facts.get(field)
        if here != there:
            who = f"sites '{mine.site}' and '{theirs.site}'"
            if within:
                who = f"ranks {mine.rank} and {theirs.rank} of site '{mine.site}'"
            words = f"{here} and {there}"
            documents = mine.facts.get(f"{field}{DOCUMENT}"), theirs.facts.get(f"{field}{DOCUMENT}")
            if all(isinstance(document, str) for document in documents):
                words = differences(*(json.loads(str(document)) for document in documents)) or words
            raise RunError(f"{who} disagree on {what}: {words}: {remedy}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0][:200]
