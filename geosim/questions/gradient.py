"""Derivatives of the closed form with respect to what links are like, by JAX from its own lines.

The one module here that loads JAX, and only when it is asked for.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from geosim.cost import Problem
from geosim.cost.transport import make_path, wire_bytes
from geosim.errors import UsageError
from geosim.questions.knobs import Knob
from geosim.scenario import Scenario
from geosim.sim.closed_form import Batch, steady_state
from geosim.sim.standing import link_columns, slowest_link


def is_installed() -> bool:
    """Whether JAX can be loaded."""
    try:
        import jax  # noqa: F401
    except ImportError:
        return False
    return True


def step_gradient(scenario: Scenario, problem: Problem, batch: Batch, knob: Knob) -> float:
    """d(step time)/d(value of a knob), in seconds a unit of SI; in float64, forward mode.

    Where a law has a kink, of one side.

    Args:
        scenario: whose links are alike, or whose worst stands for all.
        problem, batch: of that scenario and one two-level policy; the batch has one row.
        knob: of all links.

    Raises:
        UsageError: if JAX is not installed.
    """
    try:
        import jax
        import jax.numpy as jnp
    except ImportError:
        raise UsageError("gradients need JAX: pip install -e '.[jax]'") from None
    standing = slowest_link(problem)
    source, target = problem.sites[standing.source].name, problem.sites[standing.target].name

    def step(value: float) -> jax.Array:
        link = knob.turned(scenario, value).link(source, target)
        assert link is not None
        link = link.average()
        moved = replace(
            standing,
            path=make_path(link, source, standing.two_way),
            wire_per_payload=wire_bytes(1.0, link),
        )
        scalars, lists = link_columns(problem, moved)
        columns: dict[str, Any] = {
            name: jnp.asarray([number], dtype=float) for name, number in scalars.items()
        }
        columns |= {name: jnp.asarray([numbers], dtype=float) for name, numbers in lists.items()}
        columns["restarts"] = np.asarray([moved.path.restarts])
        columns["paced"] = np.asarray([moved.path.paced])
        return steady_state(replace(batch, **columns)).step_s[0]

    with _in_float64():
        _, slope = jax.jvp(step, (knob.value(scenario),), (1.0,))
        return float(slope)


def _in_float64() -> Any:
    """A context in which JAX computes in float64, under its old name or its new one."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # type: ignore[attr-defined]

    return enable_x64(True)
