"""How every command ends: a mistake is one line on standard error, and an exit status."""

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

from geosim.errors import GeosimError, RunError, UsageError
from geosim.units import Dimension, parse

_FULL = (errno.ENOSPC, errno.EDQUOT)
STOPPED = 130  # what a shell says of a command that Ctrl-C has ended


class _Terminated(BaseException):
    """SIGTERM, raised in the main thread."""


def _terminate(number: int, _: Any) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # closing is under way
    raise _Terminated


def run_quietly(command: Callable[[], Any], name: str) -> int:
    """The exit status of a command, its error told in one line that begins with the command's name.

    SIGTERM ends it as Ctrl-C does: what is open is closed, so that no process is left.

    Args:
        command: runs a typer app with ``standalone_mode=False``.
        name: of the command.
    """
    main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminate) if main_thread else None
    try:
        status = command()
    except _Terminated:
        _say(name, "stopped by SIGTERM")
        return 128 + signal.SIGTERM
    except GeosimError as error:
        _say(name, str(error))
        return error.exit_status
    except KeyboardInterrupt:
        status = STOPPED
    except OSError as error:
        if error.errno not in _FULL:
            raise
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - or Python writes what is left once more as it ends
        _say(name, f"cannot write: {error.strerror}")
        return RunError.exit_status
    except Exception as error:
        # What typer's own parser refuses; which module its class lives in depends on typer's release.
        if not hasattr(error, "format_message") or not hasattr(error, "exit_code"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]
        else:
            context = getattr(error, "ctx", None)
            asked = name if context is None else context.command_path
            _say(name, f"{error.format_message().rstrip(' .')}: see {asked} --help")
        return int(error.exit_code)
    finally:
        if main_thread:
            signal.signal(signal.SIGTERM, before)
        _let_go_of_notes()
    if status == STOPPED:
        _say(name, "stopped")
    return status if isinstance(status, int) else 0


def _let_go_of_notes() -> None:
    """What was said on the way and cannot be written fails no command; Python would try again at its end."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def parse_option(option: str, text: str, dimension: Dimension) -> float:
    """The SI value of an option's text, which must be above 0.

    Raises:
        UsageError: as `units.parse`, or for 0 and below, with the option named.
    """
    try:
        value = parse(text, dimension)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None
    if value <= 0:
        raise UsageError(f"{option} {text}: must be above 0")
    return value


def make_folder(option: str, folder: Path) -> None:
    """Make the folder that an option names, and see that files can be made in it, before the work starts.

    Raises:
        UsageError: if it cannot be made, is a file, or is read-only.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"{option} {folder}: a file is in the way: name a folder") from None
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{option} {folder}: cannot write there ({reason}): name another folder") from None


def _say(name: str, message: str) -> None:
    print(f"{name}: {' '.join(message.split())}", file=sys.stderr)
