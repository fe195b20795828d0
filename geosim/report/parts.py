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


def parts_of(result: Mapping[str, Any]) -> dict[str, float]:
    """Seconds a step of each part that a result knows; what it leaves unexplained is `other`.

    A measured result without a breakdown is split by its utilization and its exposed WAN time.
    """
    step = result["step_time_s"]["mean"]
    given = result.get("parts") or {
        "compute": result["compute_utilization"] * step,
        "wait": result["exposed_wan_s_per_step"],
    }
    out = {key: float(given[key]) for key in PARTS if given.get(key)}
    rest = step - sum(out.values())
    if rest > 0.001 * step:
        out["other"] = out.get("other", 0.0) + rest
    return out
