"""Files that are there whole, or as they were."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write, so that `path` holds all of it once the block ends, or what it held before if it fails.

    Yields:
        A file beside the target, of the same suffix; the target itself if that is no plain file
        (`/dev/stdout`) or its folder takes no other files.
    """
    target = path.resolve()  # a link stays one
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
        yield target
        return
    part = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        yield part
        if target.exists():
            part.chmod(target.stat().st_mode)
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
