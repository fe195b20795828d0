"""Whether the WAN hides behind compute, and with how much room, in one sentence."""

from collections.abc import Mapping
from typing import Any

from geosim.policy import Blocking, Streaming, SyncPolicy
from geosim.report.words import percent
from geosim.units import TIME, show

HIDDEN = 0.01


def cover_s(policy: SyncPolicy, result: Mapping[str, Any]) -> float:
    """Seconds of work between a fragment's leaving and its being due; 0 where training waits for it."""
    work = result["step_time_s"]["mean"] - result["exposed_wan_s_per_step"]
    overlap = policy.overlap
    if isinstance(overlap, Blocking):
        return 0.0
    if isinstance(overlap, Streaming):
        return overlap.steps * work
    return overlap.windows * policy.interval * work


def hiding(policy: SyncPolicy, result: Mapping[str, Any]) -> str:
    """One sentence for people."""
    if not any(link["bytes_per_step"] for link in result["links"].values()):
        return "nothing crosses a WAN"
    step, exposed = result["step_time_s"]["mean"], result["exposed_wan_s_per_step"]
    takes, cover = result["exchange_time_s"]["mean"], cover_s(policy, result)
    waits = f"each step waits {show(exposed, TIME)} on average, {percent(exposed / step)} of its time"
    if policy.is_flat:
        if exposed <= HIDDEN * step:
            return "hides behind the backward pass"
        return f"does not hide behind the backward pass: {waits}"
    if policy.groups:
        return waits
    if cover == 0:
        return f"does not hide, since the policy blocks: {waits}"
    if exposed > HIDDEN * step and takes < cover:
        fits = f"an exchange takes {show(takes, TIME)} of the {show(cover, TIME)} it has"
        return f"would hide, since {fits}, but the sites wait for the slower one: {waits}"
    if exposed > HIDDEN * step:
        return f"does not hide: an exchange takes {show(takes, TIME)}, compute {show(cover, TIME)}; {waits}"
    slack = f"{show(cover - takes, TIME)} slack" if cover > takes else "no slack"
    has = show(cover, TIME)
    return f"hides behind compute: an exchange takes {show(takes, TIME)} of the {has} it has, {slack}"
