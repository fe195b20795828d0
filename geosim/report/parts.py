"""The parts of a step, in the order in which they are shown, and what they are called."""

from collections.abc import Mapping
from typing import Any

from geosim.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, YELLOW

# key of `Result.parts` -> (words, colour in figures, colour on a terminal)
PARTS: dict[str, tuple[str, str, str]] = {
    "compute": ("compute", BLUE, "blue"),
    "site_collective": ("site collective", GREEN, "green"),
    "update": ("update", SKY, "cyan"),
    "encode": ("encode", ORANGE, "yellow"),
    "wait": ("exposed WAN", RED, "red"),
    "gather": ("gather in the site", PURPLE, "magenta"),
    "apply": ("apply", YELLOW, "bright_yellow"),
    "other": ("other", GREY, "bright_black"),
}

# key of `cost.step.parts.compute_parts` -> the same
COMPUTE: dict[str, tuple[str, str, str]] = {
    "matmul": ("matrix products", "#00456B", "blue"),
    "attention": ("attention", "#0072B2", "blue"),
    "memory": ("memory-bound", "#4A9CCB", "blue"),
    "recompute": ("recomputation", "#8CC1E0", "blue"),
    "launch": ("kernel launches", "#C4DFEF", "blue"),
    "messages": ("tensor and pipeline", "#5E5A9E", "blue"),
    "bubble": ("pipeline bubble", "#B7B4D8", "blue"),
}
ALL = {**COMPUTE, **PARTS}


def parts_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Seconds a step of each part that a result knows; what it leaves unexplained is `other`.

    Where the result knows what its compute is made of (`compute_parts`), that takes the place of compute.
    A measured result without a breakdown is split by its utilization and its exposed WAN time.
    """
    step = result["step_time_s"]["mean"]
    given = result.get("parts") or {
        "compute": result["compute_utilization"] * step,
        "wait": result["exposed_wan_s_per_step"],
    }
    inside = result.get("compute_parts")
    if inside:
        given = {**{key: value for key, value in given.items() if key != "compute"}, **inside}
    out = {key: float(given[key]) for key in ALL if given.get(key)}
    rest = step - sum(out.values())
    if rest > 0.001 * step:
        out["other"] = out.get("other", 0.0) + rest
    return out
