"""Real text to train on, as bytes: the Python standard library, or what the user gives.

A corpus is split into training and validation text **by file**: a file's relative path is hashed
and the lowest 5 % of hash values go to validation (more files, in the order of their hashes,
until it holds `SMALLEST_SPLIT` bytes; at least one file trains). A corpus of one file is split by
position: its first 95 % train, the rest validates.

Sampling is a pure function of (step, rank, seed): there is no state to save, so a resumed run
sees the same bytes, and any division of the global batch among ranks covers the same samples.
"""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from geosim.errors import UsageError
from runtime.shuffle import counter, mix, shuffled

if TYPE_CHECKING:
    from torch import Tensor

VALIDATION_SHARE = 0.05
SMALLEST_SPLIT = 1024
TEXT_PROBE_BYTES = 8000
REMEDY = "give --data a text file or folder, or leave it out for the Python standard library"

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Bytes to train on and bytes to validate on.

    `train` and `validation` are read-only uint8 vectors: the files of a split one after another,
    in the order of `train_files` and `validation_files`. `fingerprint` covers both vectors, so
    sites that hold the same fingerprint train on the same data.
    """

    source: str
    train: Bytes
    validation: Bytes
    train_files: tuple[str, ...]
    validation_files: tuple[str, ...]
    fingerprint: str

    def batch(
        self, step: int, *, rank: int, world: int, batch_size: int, sequence: int, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Tokens and targets, each [batch_size, sequence] (int64), of one rank at one step.

        `rank` and `world` count over all sites, and all ranks name the same `batch_size`. The
        global batch is sample `step * world * batch_size` and those that follow; rank r takes
        the r-th run of `batch_size`. It depends on the product of `world` and `batch_size` only.
        """
        if step < 0 or not 0 <= rank < world or batch_size < 1 or sequence < 1:
            raise ValueError(f"no batch: {step=}, {rank=}, {world=}, {batch_size=}, {sequence=}")
        return self.samples((step * world + rank) * batch_size, batch_size, sequence=sequence, seed=seed)

    def samples(self, first: int, count: int, *, sequence: int, seed: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets, each [count, sequence] (int64): samples `first` to `first + count`.

        The training text is cut into windows of `sequence` bytes. An epoch visits each once, in an
        order drawn from the seed and the epoch, and the cuts shift from epoch to epoch.
        """
        windows = _train_windows(self.source, len(self.train), sequence)
        sample = np.arange(first, first + count, dtype=np.uint64)
        epoch, slot = np.divmod(sample, np.uint64(windows))
        key = mix(mix(epoch) + counter(seed))
        start = shuffled(slot, windows, key) * np.uint64(sequence) + key % np.uint64(sequence)
        return _windows(self.train, start.astype(np.int64), sequence)

    def validation_batches(
        self, count: int, *, batch_size: int, sequence: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """`count` fixed batches, each tokens and targets [batch_size, sequence] (int64).

        The windows are spread evenly over the validation text, from its first byte to its last;
        they overlap where it is shorter than all of them together.
        """
        last = _last_validation_window(self.source, len(self.validation), sequence)
        total = count * batch_size
        starts = np.arange(total, dtype=np.int64) * last // max(total - 1, 1)
        return (
            _windows(self.validation, starts[i : i + batch_size], sequence)
            for i in range(0, total, batch_size)
        )


def load(path: str | os.PathLike[str] | None = None) -> Corpus:
    """The corpus at `path`, or the standard library's source where no path is given."""
    return stdlib_text() if path is None else user_text(path)


def check(path: str | os.PathLike[str], sequence: int) -> None:
    """Refuse what `load` would, and text too short for `sequence`, without reading all of it or torch.

    Raises:
        UsageError: one line that names what is wrong with the text at `path`.
    """
    root = _existing(path)
    source = str(root)
    sizes = _text_sizes(source, root, _file_names(root)) if root.is_dir() else {"": _text_size(root)}
    total = sum(sizes.values())
    held = sum(sizes[name] for name in _held_out(sizes)) if len(sizes) > 1 else _held_bytes(total)
    _check_split(source, total - held, held)
    _train_windows(source, total - held, sequence)
    _last_validation_window(source, held, sequence)


def stdlib_text() -> Corpus:
    """The source of the running Python's standard library, `test/` included: 31 MB in 3.11.

    Installed packages and the build's own `_sysconfigdata` are left out. Python's patch versions
    differ, and some distributions ship no `test/`: compare fingerprints between sites.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    names = [
        name
        for name in _file_names(root, skip=("site-packages", "dist-packages"))
        if name.endswith(".py") and not name.rpartition("/")[2].startswith("_sysconfigdata")
    ]
    return _from_folder(f"Python {platform.python_version()} standard library", root, names)


def user_text(path: str | os.PathLike[str]) -> Corpus:
    """The text file at `path`, memory-mapped, or all text files of the folder at `path`.

    Of a folder, hidden files and folders and files that are not text (a zero byte among the first
    8000) are left out; links to folders are not followed.
    """
    root = _existing(path)
    if root.is_dir():
        return _from_folder(str(root), root, _file_names(root))
    return _from_file(str(root), root)


def _existing(path: str | os.PathLike[str]) -> Path:
    root = Path(path)
    if not root.exists():
        raise UsageError(f"data {str(root)!r} does not exist: {REMEDY}")
    return root


def _text_sizes(source: str, root: Path, names: list[str]) -> dict[str, int]:
    """Bytes of each file that is text, at least one."""
    sizes: dict[str, int] = {}
    for name in names:
        head, size = _read(root / name, TEXT_PROBE_BYTES)
        if _is_text(head):
            sizes[name] = size
    if not sizes:
        raise UsageError(f"data {source!r} holds no text files: {REMEDY}")
    return sizes


def _text_size(path: Path) -> int:
    """Bytes of a file that must be text."""
    head, size = _read(path, TEXT_PROBE_BYTES)
    if not _is_text(head):
        raise UsageError(f"data {str(path)!r} is not text, it has zero bytes: {REMEDY}")
    return size


def _from_folder(source: str, root: Path, names: list[str]) -> Corpus:
    sizes = _text_sizes(source, root, names)
    if len(sizes) == 1:
        return _from_file(source, root / next(iter(sizes)))
    held_out = _held_out(sizes)
    splits: tuple[bytearray, bytearray] = (bytearray(), bytearray())
    files: tuple[list[str], list[str]] = ([], [])
    for name in sizes:
        splits[name in held_out].extend(_read(root / name)[0])
        files[name in held_out].append(name)
    train, validation = (np.frombuffer(split, dtype=np.uint8) for split in splits)
    return _corpus(source, train, validation, *files)


def _from_file(source: str, path: Path) -> Corpus:
    text = np.memmap(path, dtype=np.uint8, mode="r") if _text_size(path) else np.zeros(0, np.uint8)
    cut = len(text) - _held_bytes(len(text))
    return _corpus(source, text[:cut], text[cut:], [path.name], [path.name])


def _corpus(
    source: str, train: Bytes, validation: Bytes, train_files: list[str], held_out: list[str]
) -> Corpus:
    _check_split(source, len(train), len(validation))
    train.setflags(write=False)
    validation.setflags(write=False)
    digest = blake2b(len(train).to_bytes(8, "little"), digest_size=16)
    digest.update(train.data)
    digest.update(validation.data)
    files = tuple(train_files), tuple(held_out)
    return Corpus(source, train, validation, *files, fingerprint=digest.hexdigest())


def _held_bytes(size: int) -> int:
    """Of a corpus of one file: those that validate."""
    return int(size * VALIDATION_SHARE)


def _check_split(source: str, train: int, validation: int) -> None:
    if min(train, validation) < SMALLEST_SPLIT:
        least = round(SMALLEST_SPLIT / VALIDATION_SHARE)
        raise UsageError(
            f"data {source!r} is too small, {train} bytes to train on and {validation} "
            f"to validate on: give at least {least} bytes of text, and {SMALLEST_SPLIT} of each"
        )


def _train_windows(source: str, size: int, sequence: int) -> int:
    """How many windows an epoch has."""
    if size // sequence < 2:
        raise UsageError(_too_few(source, size, "train", sequence))
    return size // sequence - 1


def _last_validation_window(source: str, size: int, sequence: int) -> int:
    """Where the last window begins."""
    if size <= sequence:
        raise UsageError(_too_few(source, size, "validate", sequence))
    return size - sequence - 1


def _too_few(source: str, size: int, purpose: str, sequence: int) -> str:
    return (
        f"data {source!r} has {size} bytes to {purpose} on, too few for sequences of {sequence}: give more "
        "text or a shorter sequence"
    )


def _held_out(sizes: dict[str, int]) -> set[str]:
    """The files, of at least two, that validate; `sizes` in bytes by relative path."""
    place = {
        name: int.from_bytes(blake2b(os.fsencode(name), digest_size=8).digest(), "big") / 2**64
        for name in sizes
    }
    chosen: set[str] = set()
    held_bytes = 0
    for name in sorted(sizes, key=place.__getitem__)[:-1]:
        if place[name] >= VALIDATION_SHARE and held_bytes >= SMALLEST_SPLIT:
            break
        chosen.add(name)
        held_bytes += sizes[name]
    return chosen


def _file_names(root: Path, skip: tuple[str, ...] = ()) -> list[str]:
    """Relative paths, with forward slashes and sorted, of the files under `root`."""

    def fail(error: OSError) -> None:
        raise _unreadable(Path(error.filename or root), error) from error

    found = []
    for folder, subfolders, names in os.walk(root, onerror=fail):
        subfolders[:] = [name for name in subfolders if name[0] != "." and name not in skip]
        prefix = Path(folder).relative_to(root).as_posix()
        found += [name if prefix == "." else f"{prefix}/{name}" for name in names if name[0] != "."]
    return sorted(found)


def _read(path: Path, most: int = -1) -> tuple[bytes, int]:
    """The first `most` bytes of a file, or all of them, and the file's size."""
    try:
        if not path.is_file():
            raise OSError("a broken link or not a regular file")
        with path.open("rb") as file:
            return file.read(most), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> UsageError:
    reason = error.strerror or str(error)
    return UsageError(f"data {str(path)!r} cannot be read ({reason}): mend or remove it, or {REMEDY}")


def _is_text(head: bytes) -> bool:
    return 0 not in head


def _windows(text: Bytes, start: NDArray[np.int64], sequence: int) -> tuple[Tensor, Tensor]:
    """Tokens and targets, each [len(start), sequence] (int64): targets are one byte ahead."""
    import torch

    window = text[start[:, None] + np.arange(sequence + 1)].astype(np.int64)
    pair = torch.from_numpy(window)
    return pair[:, :-1].contiguous(), pair[:, 1:].contiguous()
