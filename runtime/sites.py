"""Who am I: this process's site and its rank in it, the other sites, and the ways to reach them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import TCPStore

from geosim.errors import RunError, UsageError
from runtime.gloo import Stream, open_stream
from runtime.rendezvous import Address, Greeting, agree, gather, local_address, open_store


class Sites:
    """One process among R of a site, and its site among M.

    Inside a site torch's default process group is the site's own, so the user's DDP code stays as it is.
    Across sites, rank s of each site talks to rank s of the others, over a store that the first site's rank
    0 hosts and one process group a stream. Groups carry an epoch, so that a new one can stand up over the
    same store.

    Attributes:
        names: all sites, in the order that numbers them.
        index: this site's number.
        rank, ranks: of this process in its site, and how many there are.
        ranks_of: how many each site has. WAN ranks there are as many as the smallest has, unless set.
        timeout_s: how long a rendezvous may take.
    """

    def __init__(
        self,
        names: Sequence[str],
        site: str,
        store: TCPStore | None,
        *,
        rank: int = 0,
        ranks: int = 1,
        ranks_of: Sequence[int] | None = None,
        wan_address: str = "127.0.0.1",
        timeout_s: float = 60.0,
    ) -> None:
        if site not in names:
            raise UsageError(f"site {site}: no such site: use one of {', '.join(names)}")
        if len(set(names)) != len(names):
            raise UsageError(f"sites {', '.join(names)}: one is there twice")
        if len(names) > 1 and store is None:
            raise UsageError(f"sites {', '.join(names)}: several sites need a rendezvous")
        self.names = tuple(names)
        self.index = self.names.index(site)
        self.rank = rank
        self.ranks = ranks
        self.ranks_of = tuple(ranks_of) if ranks_of is not None else (ranks,) * len(self.names)
        if len(self.ranks_of) != len(self.names) or self.ranks_of[self.index] != ranks:
            raise UsageError(
                f"ranks_of: {self.ranks_of} for sites {', '.join(self.names)}: must be one number each, and "
                f"{ranks} for '{site}', which has so many"
            )
        self.timeout_s = timeout_s
        self._store = store
        self._wan_address = wan_address
        self._agreements = 0

    @classmethod
    def connect(
        cls,
        names: Sequence[str],
        site: str,
        rendezvous: str,
        *,
        wan_address: str | None = None,
        timeout_s: float = 60.0,
        listen_fd: int | None = None,
        place: tuple[int, int] | None = None,
        ranks_of: Sequence[int] | None = None,
    ) -> Sites:
        """Join the other sites; call it after the site's `torch.distributed.init_process_group`.

        Args:
            names: all sites; the first one's rank 0 hosts the store.
            site: this one.
            rendezvous: HOST:PORT of the store.
            wan_address: the address that other sites reach this process by; None: the one that leads to the
                store.
            timeout_s: how long to wait for the store, and later for each agreement.
            listen_fd: a listening socket for the store, where the caller made one.
            place: this process's rank in the site and the number of ranks; None: as the default group says.
            ranks_of: the number of ranks of every site; None: all have as many as this one.

        Raises:
            UsageError: for names or an address that cannot be; or where `place` is None, the environment's
                WORLD_SIZE tells of several ranks, and there is no default group yet.
            RunError: if the store cannot be reached within `timeout_s`.
        """
        if site not in names:
            raise UsageError(f"site {site}: no such site: use one of {', '.join(names)}")
        if place is None:
            _check_group()
            place = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        rank, ranks = place
        address = Address.parse(rendezvous)
        host = site == names[0] and rank == 0
        store = open_store(address, host=host, first_site=names[0], timeout_s=timeout_s, listen_fd=listen_fd)
        return cls(
            names, site, store, rank=rank, ranks=ranks, ranks_of=ranks_of, timeout_s=timeout_s,
            wan_address=wan_address or local_address(address),
        )  # fmt: skip

    @property
    def count(self) -> int:
        """M, the number of sites."""
        return len(self.names)

    @property
    def name(self) -> str:
        """This site's."""
        return self.names[self.index]

    @property
    def everyone(self) -> list[tuple[str, int]]:
        """(site, rank) of all."""
        return [
            (name, r) for name, ranks in zip(self.names, self.ranks_of, strict=True) for r in range(ranks)
        ]

    @property
    def least_ranks(self) -> int:
        """Of the smallest site."""
        return min(self.ranks_of)

    @property
    def world(self) -> int:
        """Ranks of all sites together."""
        return sum(self.ranks_of)

    @property
    def place(self) -> int:
        """This process's number among the ranks of all sites."""
        return sum(self.ranks_of[: self.index]) + self.rank

    @property
    def others(self) -> tuple[int, ...]:
        """Numbers of the other sites."""
        return tuple(m for m in range(self.count) if m != self.index)

    def store(self, prefix: str) -> dist.Store:
        """The sites' store, under a prefix of one's own.

        Raises:
            UsageError: if there is only one site, which has none.
        """
        if self._store is None:
            raise UsageError(f"site '{self.name}' is alone and has no store")
        return dist.PrefixStore(prefix, self._store)

    def agree(self, facts: Mapping[str, str | int], shards: int) -> None:
        """Compare `facts` with the same WAN rank of every other site (ranks beyond the shards: with rank 0).

        Inside a site every rank is compared with rank 0, in all but what belongs to a shard. Every rank of
        every site calls it, equally often.

        Raises:
            RunError: one line that names both sites and the field in which they differ, or the site that
                never came.
        """
        if self._store is None:
            return
        shard = self.rank if self.rank < shards else 0
        full = {"sites": " ".join(self.names), "ranks": " ".join(map(str, self.ranks_of)), **facts}
        topic = f"agreement-{self._agreements}"
        self._agreements += 1
        me = (self.name, self.rank)
        within = [(self.name, r) for r in (range(1, self.ranks) if self.rank == 0 else (0,))]
        agree(
            self._store, Greeting(*me, full), [*((self.names[m], shard) for m in self.others), *within],
            topic=topic, timeout_s=self.timeout_s, host=self.names[0],
            readers=[who for who in self.everyone if who != me] if self._hosts else (),
        )  # fmt: skip

    def gather(self, topic: str, value: Any) -> dict[tuple[str, int], Any]:
        """What every rank of every site says on a topic, by (site, rank); plain data.

        Every rank of every site calls it, equally often.

        Raises:
            RunError: naming the site and rank that never came.
        """
        if self._store is None:
            said = [value]
            if self.ranks > 1:
                said = [None] * self.ranks
                dist.all_gather_object(said, value)
            return dict(zip(self.everyone, said, strict=True))
        self._agreements += 1
        return gather(
            self._store, (self.name, self.rank), value, self.everyone, topic=f"{topic}-{self._agreements}",
            timeout_s=self.timeout_s, serves=self._hosts, host=self.names[0],
        )  # fmt: skip

    def post(self, topic: str, value: int) -> int:
        """Tell all ranks a number that only rises, without waiting, and learn the least of theirs so far.

        One that has not said anything counts as 0, and so do all where nobody answers any more.
        """
        key = f"{topic}/{{}}/{{}}".format
        if self._store is None:
            return value if self.ranks == 1 else 0
        with contextlib.suppress(RuntimeError):
            self._store.set(key(self.name, self.rank), str(value))
            keys = [key(*who) for who in self.everyone]
            if self._store.check(keys):
                return min(int(said) for said in self._store.multi_get(keys))
        return 0

    def open_streams(self, count: int, *, timeout_s: float, epoch: int = 0) -> list[Stream]:
        """`count` groups of this rank and the same rank of every other site, each with own connections.

        Args:
            count: parallel streams.
            timeout_s: how long one send or receive may take.
            epoch: counts the groups that have stood on this store.

        Raises:
            RunError: if a site does not come.
        """
        streams = []
        for number in range(count):
            store = self.store(f"wan/epoch-{epoch}/shard-{self.rank}/stream-{number}")
            try:
                streams.append(
                    open_stream(store, self.index, self.count, address=self._wan_address, timeout_s=timeout_s)
                )
            except RuntimeError as error:
                line = str(error).strip().split("\n")[0][:200]
                raise RunError(f"site '{self.name}': cannot connect to the other sites ({line})") from None
        return streams

    def part(self, streams: Sequence[Stream]) -> None:
        """Leave together: nobody closes connections that another one still reads from."""
        for stream in streams:
            try:
                stream.barrier().wait(timedelta(seconds=self.timeout_s))
            except RuntimeError:
                return  # a peer that has gone reads no more

    @property
    def _hosts(self) -> bool:
        return self.index == 0 and self.rank == 0


def _check_group() -> None:
    """Refuse to take one rank of several for a site of its own."""
    world = os.environ.get("WORLD_SIZE", "1")
    if world.isdigit() and int(world) > 1 and not dist.is_initialized():
        raise UsageError(
            f"Sites.connect: WORLD_SIZE is {world} and torch.distributed has no default group: call "
            "torch.distributed.init_process_group for the site's ranks first"
        )
