"""What `sensitivity` prints: each change's worth by both models, and where not to trust them."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType

from geosim.policy import SyncPolicy
from geosim.questions.sensitivity import Sensitivity, Worth
from geosim.report import words
from geosim.report.style import BLUE, GREY, INK, RED, drawing
from geosim.report.tables import heading, listing, plain_table
from geosim.scenario import Scenario
from geosim.units import TIME, show

_APART = 0.01


def data(found: Sensitivity) -> dict[str, Any]:
    """For `--json`."""
    worths = [asdict(worth) | {"disagreement": worth.disagreement} for worth in found.worths]
    return {
        "scenario": found.result.scenario,
        "policy": found.result.policy,
        "step_time_s": {"engine": found.result.step_time_s.mean, "closed_form": found.step_s},
        "tokens_per_s": found.result.tokens_per_s,
        "closed_form_applies": found.applies,
        "reason": found.reason,
        "gradients": "jax" if found.has_jax else "central differences",
        "changes": worths,
    }


def screen(scenario: Scenario, policy: SyncPolicy, found: Sensitivity) -> RenderableType:
    """The table, and notes for what the figures do not say by themselves."""
    table = plain_table(
        "change", "closed\nform", "engine", "apart", "tokens/s", "", right=range(1, 6), wrapped=[0]
    )
    for worth in found.worths:
        if _is_idle(worth):
            continue
        closed = "-" if worth.closed_s is None else signed(worth.closed_s)
        if worth.method == "gradient":
            closed += " d"
        elif worth.closed_s is not None:
            closed += "  "
        table.add_row(
            worth.change,
            closed,
            signed(worth.engine_s) + ("" if worth.smooth else " *"),
            "-" if worth.disagreement is None else words.percent(worth.disagreement, 2),
            _tokens(worth),
            _share(worth),
        )
    step = show(found.result.step_time_s.mean, TIME)
    rate = words.rate(found.result.tokens_per_s)
    line = f"a step takes {step}, which makes {rate} tokens/s; it would change by"
    return Group(heading(scenario, policy), "", line, "", table, listing("Notes", notes(found)))


def notes(found: Sensitivity) -> list[str]:
    """What one has to know to read the table."""
    out = []
    if any(worth.method == "gradient" for worth in found.worths):
        out.append("d: derivative of the closed form (JAX) times the change; otherwise a difference.")
    elif not found.has_jax:
        out.append("JAX is not installed: differences instead of derivatives (pip install -e '.[jax]').")
    if not found.applies:
        out.append(
            f"The closed form does not hold here ({found.reason}): it estimates, and the engine decides."
        )
    if not all(worth.smooth for worth in found.worths):
        out.append(
            "*: a kink or a jump lies here, such as a round trip of slow start more or less: the engine's "
            "differences to both sides disagree, and a derivative holds for one of them."
        )
    far = [w for w in found.worths if w.smooth and (w.disagreement or 0.0) > _APART]
    if far and found.applies:
        names = "; ".join(worth.change for worth in far)
        out.append(f"Closed form and engine are more than {words.percent(_APART)} apart: {names}.")
    if any(worth.closed_s is None and not _is_idle(worth) for worth in found.worths):
        out.append("The closed form takes links as alike: one link alone is the engine's to say.")
    idle = [worth.change for worth in found.worths if _is_idle(worth)]
    if idle:
        out.append(f"Of single links nothing comes of: {'; '.join(idle)}.")
    if any(worth.tokens_per_step_change for worth in found.worths):
        out.append("One more accelerator or node adds tokens to a step: look at tokens/s.")
    return out or ["Closed form and engine agree."]


def figure(found: Sensitivity, path: Path) -> None:
    """Bars of what each change adds to the tokens a second, the largest on top."""
    worths = sorted((w for w in found.worths if not _is_idle(w)), key=lambda worth: worth.share)
    with drawing(path, 1, 1, (6.6, 1.2 + 0.28 * len(worths))) as (ax,):
        shares = [100 * worth.share for worth in worths]
        colours = [BLUE if share >= 0 else RED for share in shares]
        ax.barh(range(len(worths)), shares, height=0.65, color=colours)
        reach = max((abs(share) for share in shares), default=0.0) or 1.0
        for y, share in enumerate(shares):
            ax.text(
                max(share, 0.0) + 0.01 * reach, y, f"{share:+.2g} %" if share else "0", va="center",
                fontsize=8, color=INK if share else GREY,
            )  # fmt: skip
        ax.set_yticks(range(len(worths)), [worth.change for worth in worths])
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(min(0.0, 1.1 * min(shares)), 1.18 * max(max(shares), 0.02 * reach))
        ax.axvline(0, color=GREY, lw=0.8)
        ax.set_xlabel("more tokens a second (%)")
        ax.set_title(f"What a change is worth: {found.result.scenario} under {found.result.policy}")


def _is_idle(worth: Worth) -> bool:
    """Whether this is one link of several that changes nothing."""
    return worth.closed_s is None and not worth.engine_s


def signed(seconds: float) -> str:
    """A difference of times with its sign; 0 as such."""
    if not seconds:
        return "0"
    return f"{'+' if seconds > 0 else '-'}{show(abs(seconds), TIME)}"


def _tokens(worth: Worth) -> str:
    if abs(worth.share) < 1e-9:
        return "0"
    return f"{'+' if worth.tokens_per_s > 0 else '-'}{words.rate(abs(worth.tokens_per_s))}"


def _share(worth: Worth) -> str:
    if abs(worth.share) < 1e-9:
        return ""
    return f"{'+' if worth.share > 0 else '-'}{words.percent(abs(worth.share), 2)}"
