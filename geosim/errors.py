"""The few exceptions a user meets. Each message is one line: field, value, remedy."""


class GeosimError(Exception):
    """Base of everything geosim raises on purpose. `exit_status` is what a command ends with."""

    exit_status = 1


class UsageError(GeosimError, ValueError):
    """What the user typed or wrote cannot be used as it is (exit status 2)."""

    exit_status = 2


class RunError(GeosimError):
    """Something failed while it ran: a peer that left, a payload that does not fit (exit status 1)."""


class PayloadError(RunError):
    """A payload from the WAN that cannot be trusted; the message names peer, round and reason.

    Attributes:
        site: the peer's number; -1 where that is not known.
    """

    def __init__(self, message: str, site: int = -1) -> None:
        super().__init__(message)
        self.site = site


class NotFiniteError(RunError):
    """An update that holds a NaN or an infinity, or whose weighted sum with the residual does."""
