"""The processes of a run: started together, watched together, and never left behind."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from geosim.errors import GeosimError, RunError, UsageError

_GRACE_S = 1.0  # after the first failure, for the process that caused it to be heard too
_POLL_S = 0.05
_TAIL_LINES = 20


@dataclass(eq=False)
class Member:
    """One rank's process and what it last said."""

    site: str
    rank: int
    process: subprocess.Popen[str]
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    error: dict[str, Any] | None = None
    done: bool = False
    readers: list[threading.Thread] = field(default_factory=list)

    @property
    def name(self) -> str:
        """For messages."""
        return f"site '{self.site}' rank {self.rank}"


class Crew:
    """A context manager: however its block ends, every process has ended after it."""

    def __init__(self, stall_s: float, start_s: float = 0.0) -> None:
        """`stall_s`: how long all may stay silent; `start_s`: how much longer until the first speaks."""
        self.members: list[Member] = []
        self._stall_s = stall_s
        self._start_s = start_s
        self._events: queue.SimpleQueue[tuple[Member, dict[str, Any]]] = queue.SimpleQueue()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
        for member in self.members:
            member.process.wait()
            if member.process.stdin is not None:
                member.process.stdin.close()
        for member in self.members:
            for reader in member.readers:
                reader.join()

    def add(self, site: str, rank: int, process: subprocess.Popen[str], order: dict[str, Any]) -> None:
        """Take in a process, started with text pipes, and give it its order; its input stays open."""
        member = Member(site, rank, process)
        self.members.append(member)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for target, stream in ((self._read_events, process.stdout), (self._read_errors, process.stderr)):
            reader = threading.Thread(target=target, args=(member, stream), daemon=True)
            reader.start()
            member.readers.append(reader)
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which `events` will say
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()

    def events(self, check: Callable[[], None] = lambda: None) -> Iterator[tuple[Member, dict[str, Any]]]:
        """What the processes say, until all have ended well.

        Args:
            check: called while nobody says anything; may raise what ends the run.

        Raises:
            GeosimError: one line on the first process that failed, or if none says anything for too long.
        """
        heard, stall_s = time.monotonic(), self._stall_s + self._start_s
        while True:
            try:
                member, event = self._events.get(timeout=_POLL_S)
            except queue.Empty:
                if self._failed():
                    raise self._diagnosis() from None
                if all(m.process.poll() is not None for m in self.members) and self._events.empty():
                    return
                check()
                if time.monotonic() - heard > stall_s:
                    raise RunError(f"no rank has made progress for {stall_s:g} s: raise --timeout") from None
                continue
            heard, stall_s = time.monotonic(), self._stall_s
            if event["event"] == "error":
                member.error = event
                raise self._diagnosis()
            if event["event"] == "result":
                member.done = True
            yield member, event
            if self._failed():
                raise self._diagnosis()

    def _failed(self) -> bool:
        return any(m.process.poll() not in (None, 0) for m in self.members)

    def _diagnosis(self) -> GeosimError:
        """The error of the process that failed of itself, rather than because another one had."""
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline:
            # Whose output has ended says no more, so all that it has said is here after collecting.
            ended = [member for member in self.members if not member.readers[0].is_alive()]
            self._collect()
            found = self._cause(ended)
            if found is not None:
                return found
        found = self._cause(self.members)
        if found is not None:
            return found
        follower = next((m for m in self.members if m.error is not None), None)
        if follower is not None and follower.error is not None:
            return RunError(f"{follower.name}: {follower.error['message']}")
        return RunError("a rank ended without a word")

    def _collect(self) -> None:
        try:
            while True:
                member, event = self._events.get(timeout=_POLL_S)
                if event["event"] == "error":
                    member.error = event
        except queue.Empty:
            pass

    def _cause(self, ended: Sequence[Member]) -> GeosimError | None:
        """The error that no other explains; `ended`: those who will say no more, whose silence tells."""
        for member in ended:
            code = member.process.poll()
            if code is not None and code != 0 and member.error is None:
                return RunError(f"{member.name} {_ended(code)}; {self._last_words(member)}")
        for member in self.members:
            if member.error is not None and not member.error["follows"]:
                if member.error["status"] == UsageError.exit_status:
                    return UsageError(member.error["message"])
                return RunError(f"{member.name}: {member.error['message']}")
        return None

    def _last_words(self, member: Member) -> str:
        said = [line for line in member.tail if line.strip()]
        return f"its last line: {said[-1].strip()[:200]}" if said else "it said nothing"

    def _read_events(self, member: Member, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                try:
                    event = json.loads(line)
                except ValueError:
                    member.tail.append(line)  # cut off by its end
                    continue
                self._events.put((member, event))

    def _read_errors(self, member: Member, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                member.tail.append(line)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
