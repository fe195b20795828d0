"""How a process of a run ends when something goes wrong: one line, an exit status, and no waiting."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

from geosim.errors import GeosimError, RunError

_GRACE_S = 1.0  # for the main thread to tell its own error when another rank's end has ours ended too
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def told(error: Exception, *, flat: bool) -> tuple[str, int]:
    """An error in one line, and the exit status; what nobody foresaw also leaves its traceback.

    `flat`: whether the group that may have waited in vain spans all sites.

    torch raises RuntimeError (gloo's of lost connections, its stores', the reducer's) for what goes wrong
    outside this process.
    """
    if isinstance(error, GeosimError):
        return " ".join(str(error).split()), error.exit_status
    if not isinstance(error, RuntimeError | OSError):
        traceback.print_exception(error)
    line = (str(error).strip() or type(error).__name__).split("\n")[0]
    if lost_connection(line):
        reason = line.split("] ", 1)[-1].split(". ")[0][:200]  # without gloo's source file and advice
        return f"another rank has gone ({reason}): look for the first error, then resume all sites", 1
    if "imed out waiting" in line:
        waited = re.search(r"imed out waiting (\d+) ?ms", line)
        since = f"{int(waited.group(1)) / 1000:g} s" if waited else "too long"
        who = "another rank" if flat else "another rank of the site"
        return f"{who} has said nothing for {since}: look for it, or raise --timeout", 1
    return line[:300], 1


def conclude(loss: float, val_loss: float, figures: Mapping[str, Any]) -> None:
    """Warn, in one line on standard error, of rounds that were skipped; refuse to call a lost run a success.

    Args:
        loss: of the last step.
        val_loss: of the parameters in the end.
        figures: `skipped_rounds` of `rounds`, and the sites that were `not_finite`.

    Raises:
        RunError: if no round was applied, or a loss in the end is not finite.
    """
    skipped, rounds = figures["skipped_rounds"], figures["rounds"]
    names = figures["not_finite"]
    sites = f"site{'s' if len(names) > 1 else ''} " + ", ".join(f"'{name}'" for name in names)
    were = f"{skipped} of {rounds} rounds skipped: {sites} {'were' if len(names) > 1 else 'was'} not finite"
    remedy = "lower the learning rate (--lr), or look at the data"
    if skipped and skipped == rounds:
        raise RunError(f"nothing was learnt: {were}: {remedy}")
    if not (math.isfinite(loss) and math.isfinite(val_loss)):
        raise RunError(
            f"the run has diverged: it ended with loss {loss:.4g} and validation loss {val_loss:.4g}"
            f"{f' ({were})' if skipped else ''}: {remedy}"
        )
    if skipped:
        print(f"georun: warning: {were}: {remedy}", file=sys.stderr)


def lost_connection(text: str) -> bool:
    """Whether an error tells of another process's end."""
    return any(words in text for words in ("onnection closed by peer", "onnection reset", "roken pipe"))


class LastWord:
    """Says one line, once, and ends the process, whichever of its threads comes first.

    Threads of groups that failed may never join, so the interpreter's own farewell is skipped.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._lock = threading.Lock()

    def watch_signals(self, who: str) -> None:
        """End at SIGTERM and SIGINT also while the main thread, which calls this, is inside torch."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.detach())  # written to at once, on whatever thread a signal arrives
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        threading.Thread(target=self._await_signal, args=(ours, who), daemon=True).start()

    def leave(self, line: str | None, status: int) -> NoReturn:
        """Say a line on standard error, and end."""
        self._lock.acquire()  # for ever: whoever comes second waits for the end
        if line is not None:
            print(f"{self._command}: {line}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def _await_signal(self, ours: socket.socket, who: str) -> None:
        number = 0
        while number not in _SIGNALS:
            number = ours.recv(1)[0]
        if number == signal.SIGTERM:
            time.sleep(_GRACE_S)
        self.leave(f"{who}: stopped by {signal.Signals(number).name}", 128 + number)
