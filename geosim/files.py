"""Files that are there whole, or as they were."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write, so that `path` holds all of it once the block ends, or what it held before if it fails.

    Yields:
        A file beside the target, of the same suffix; the path itself if it is no plain file, leads to what is
        open already (`/dev/stdout`), or its folder takes no other files.
    """
    target = path.resolve()  # a link stays one
    is_open = path.absolute().parts[1] in ("dev", "proc")
    if is_open or (path.exists() and not path.is_file()) or not os.access(target.parent, os.W_OK):
        yield path
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
