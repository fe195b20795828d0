"""How busy others keep the machine while something runs here."""

import os
import time
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE, _WAITING, _FIELDS = 3, 4, 8  # places in its first line: man 5 proc


class Load:
    """Around a block that starts processes and waits for them.

    Attributes:
        others: cores kept busy on average by what is neither this process nor one that the block waited for,
            the hypervisor included; None before the end, and where the machine does not say.
    """

    def __init__(self) -> None:
        self.others: float | None = None

    def __enter__(self) -> "Load":
        self._begun = (time.monotonic(), _busy_s(), _own_s())
        return self

    def __exit__(self, *_: object) -> None:
        begun, busy, own = self._begun
        now = _busy_s()
        if busy is not None and now is not None:
            self.others = max(0.0, (now - busy - (_own_s() - own)) / (time.monotonic() - begun))


def _busy_s() -> float | None:
    """Seconds that all cores together have been busy since the machine started."""
    try:
        values = [int(word) for word in _STAT.read_text().splitlines()[0].split()[1 : 1 + _FIELDS]]
    except (OSError, ValueError, IndexError):
        return None
    idle = values[_IDLE] + values[_WAITING]
    return (sum(values) - idle) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Seconds of this process and of those that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
