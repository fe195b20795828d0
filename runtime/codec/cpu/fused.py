"""Selection and writing of many small scopes, some at a time, so that what was selected is still in cache."""

from typing import Any

import numpy as np

from runtime.codec.cpu.kernel import kernel
from runtime.codec.cpu.positions import end_high, write_high, write_low
from runtime.codec.cpu.select import select_scopes
from runtime.codec.cpu.write import write_item


@kernel
def select_and_write(
    values: Any,
    kind: int,
    weight: Any,
    residual: Any,
    has_residual: bool,
    decay: Any,
    starts: Any,
    sizes: Any,
    keeps: Any,
    bases: Any,
    outs: Any,
    found_out: Any,
    words_out: Any,
    few: int,
    step: int,
    begin: int,
    low: int,
    lower: Any,
    first_bit: int,
    upper: Any,
    ends: Any,
    shifts: Any,
    form: int,
    width: int,
    bump: bool,
    stochastic: bool,
    first: Any,
    second: Any,
    scales: Any,
    data: Any,
) -> Any:
    """`select_scopes` of a few scopes at a time; the groups that they fill are written.

    Args:
        few: so many scopes.
        step: values that are written together: a multiple of 8, and whole groups.
        begin: where among all that travels the section's values begin.
        low, lower: of positions, as `write_low` takes them.
        first_bit, upper: of their upper bits, as `write_high` takes them. The others are as the kernels
            have them.

    Returns:
        (scopes finished, elements of the next one added, where in the outputs those begin that are not
        written): all, unless an element is not finite.
    """
    fixed = residual if has_residual else residual[:0]
    written = outs[0]
    upper[:] = 0
    begun = np.zeros(2, np.uint64)
    for at in range(0, len(starts), few):
        end = min(len(starts), at + few)
        done, more = select_scopes(
            values, kind, weight, residual, has_residual, decay,
            starts[at:end], sizes[at:end], keeps[at:end], bases[at:end], outs[at:end], found_out, words_out,
        )  # fmt: skip
        if done < end - at:
            return at + done, more, written
        filled = outs[end - 1] + keeps[end - 1]
        stop = filled if end == len(starts) else filled - (filled - written) % step
        found, place = found_out[written:stop], written - begin
        write_low(found, low, place, lower)
        write_high(found, low, place, first_bit, upper, begun)
        write_item(
            words_out[written:stop].view(np.float32), found, ends, shifts, fixed, decay,
            form, width, bump, stochastic, first, second, place, scales, data,
            starts[end - 1] + 2 * sizes[end - 1],
        )  # fmt: skip
        written = stop
    end_high(begun, upper)
    return len(starts), 0, written
