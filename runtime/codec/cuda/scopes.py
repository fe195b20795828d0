"""What selections are made of on their own, and the tiles that programs handle."""

import math
from collections.abc import Sequence

import numpy as np

from geosim.policy.codec import kept_in_section
from geosim.policy.maths import Section
from geosim.policy.select import Dense, RandomK, TopK, kept
from runtime.codec.cuda.tables import (
    AT,
    LENGTH,
    POS,
    ROOM,
    RUN,
    SCOPE,
    SCOPE_COLUMNS,
    SECTION,
    TAKEN,
    TILE,
    TILE_COLUMNS,
    Method,
)


def block_of(how: Dense | TopK | RandomK) -> int:
    """Elements of a selection block; 0 where the scope is a piece or the fragment."""
    return how.scope if not isinstance(how, Dense) and isinstance(how.scope, int) else 0


def cut(method: Method, sections: Sequence[Section]) -> tuple[np.ndarray, np.ndarray]:
    """The tables of tiles, and of scopes where the method is `whole`."""
    tiles: list[np.ndarray] = []
    scopes: list[tuple[int, ...]] = []
    samples = room = 0
    for s, section in enumerate(sections):
        n, block = section.numel, block_of(section.select)
        if method != "whole":
            whole = max(1, TILE >> (block - 1).bit_length()) * block if method == "blocks" else TILE
            tiles.append(_tiles(section, s, 0, 0, n, whole))
            continue
        block = block or n
        for begin in range(0, n, block):
            width = min(block, n - begin)
            k = width if isinstance(section.select, Dense) else kept(width, section.select.ratio)
            if isinstance(section.select, RandomK):
                scope = _drawn_scope(s, begin, width, k, room)
            elif block < n or kept_in_section(section.select, n) == n:
                scope = (s, begin, width, k, k, samples, 0, RUN, room, 0)
            else:
                scope = _scope(s, begin, width, k, samples, room)
            tiles.append(_tiles(section, s, len(scopes), begin, width, TILE))
            scopes.append(scope)
            samples += scope[TAKEN]
            room += scope[ROOM]
    return np.concatenate(tiles), np.array(scopes, np.int64).reshape(-1, SCOPE_COLUMNS)


def _scope(section: int, begin: int, n: int, k: int, samples: int, room: int) -> tuple[int, ...]:
    """A scope's row. A sample, n / 32 elements but 4,096 to 262,144 or n / 256, shows a threshold 10 % low.

    The threshold is below the true one, and the candidates fit, but for five standard deviations of a
    binomial; the 4 % on top allow for neighbours that are alike.
    """
    aim = max(min(n, TILE), min(n // 32, 1 << 18), n // 256)
    stride = min(TILE, max(RUN, n * RUN // aim // RUN * RUN))
    taken = -(-n // stride) * RUN
    if stride == RUN:
        return section, begin, n, k, k, samples, taken, stride, room, min(n, k + k // 4 + 64)
    wanted = taken * k / n
    guess = min(taken, math.ceil(1.04 * wanted + 5 * math.sqrt(wanted)))
    space = min(n, math.ceil((1.04 * guess + 5 * math.sqrt(guess)) * n / taken))
    return section, begin, n, k, guess, samples, taken, stride, room, space


def _drawn_scope(section: int, begin: int, n: int, k: int, room: int) -> tuple[int, ...]:
    """A scope's row for random-k, whose counter bits are uniform: GUESS is the threshold itself."""
    wanted = min(n, k + math.ceil(6 * math.sqrt(k)) + 8)
    space = min(n, wanted + math.ceil(6 * math.sqrt(wanted)) + 8)
    return section, begin, n, k, ((n - wanted) << 32) // n, 0, 0, RUN, room, space


def _tiles(section: Section, number: int, scope: int, begin: int, width: int, size: int) -> np.ndarray:
    """Tiles of positions [begin, begin + width) of a section: int64 [tiles, TILE_COLUMNS]."""
    out, at = [], 0
    for start, stop in section.spans:
        first, last = max(begin, at), min(begin + width, at + stop - start)
        if first < last:
            pos = np.arange(first, last, size, dtype=np.int64)
            tile = np.empty((len(pos), TILE_COLUMNS), np.int64)
            tile[:, AT] = start + pos - at
            tile[:, POS] = pos
            tile[:, LENGTH] = np.minimum(size, last - pos)
            tile[:, SECTION] = number
            tile[:, SCOPE] = scope
            out.append(tile)
        at += stop - start
    return np.concatenate(out)
