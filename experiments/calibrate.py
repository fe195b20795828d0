"""One co-located run in, a `Calibration` out: what steps and codecs take here with no WAN in the way.

The sites' ranks run on this machine and talk over loopback, blocking, under a codec of the kind that is to
be predicted. Nothing of it is fitted to a run over a WAN.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from geosim.cost import Calibration
from geosim.policy import Blocking, Local, SyncPolicy, make_layout
from geosim.scenario import Scenario
from runtime.launch import emulate

INTERVAL = 2
STEPS = 32


@dataclass(frozen=True)
class Calibrated:
    """A calibration, the scenario with its measured step time, and the run that both come from."""

    calibration: Calibration
    scenario: Scenario
    run: dict[str, Any]


def calibrate(
    scenario: Scenario,
    policy: SyncPolicy,
    *,
    pace_s: float | None,
    steps: int = STEPS,
    data: str | None = None,
    seed: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
) -> Calibrated:
    """Measure this machine under one policy's update rule and codec.

    Args:
        scenario: its sites and workload are run as they are, without its WAN.
        policy: only its update rule, codec and groups matter; it runs blocking with a short interval.
        pace_s: declared step time, as in the runs to be predicted.
        steps: of the calibration run.
        data, seed, progress: as for `runtime.launch.emulate`.

    Raises:
        RunError: if the run fails.
    """
    probe = policy.model_copy(
        update={"interval": INTERVAL, "overlap": Blocking(), "groups": (), "topology": SyncPolicy().topology}
    )
    run = emulate(scenario, probe, steps, wan="none", pace_s=pace_s, data=data, seed=seed, progress=progress)
    return Calibrated(constants(scenario, probe, run), with_step_time(scenario, run), run)


def with_step_time(scenario: Scenario, run: dict[str, Any]) -> Scenario:
    """The scenario with the compute time of a step that a run measured."""
    work = scenario.workload.model_copy(update={"step_time_s": run["parts"]["compute"], "step_jitter": 0.0})
    return scenario.model_copy(update={"workload": work})


def constants(scenario: Scenario, policy: SyncPolicy, run: dict[str, Any]) -> Calibration:
    """A calibration from the parts of a co-located run under a policy."""
    layout = make_layout(scenario.workload.model.param_table(), policy, scenario.sites[0].ranks)
    numel = sum(layout.fragment_numel(f) for f in range(len(layout.fragments)))
    share = numel / layout.shards
    inside, window = run["parts_inside"], run["parts_of_window"]
    parts = run["parts"]
    local = isinstance(policy.update, Local)
    return Calibration(
        step_overhead_s=max(0.0, run["step_time_s"]["mean"] - _main_thread(parts)),
        site_collective_s=inside["site_collective"],
        accumulate_s=None if local else inside["apply"],
        optimizer_s=inside["apply"] if local else window["apply"],
        outer_s=window["apply"] if local else None,
        flag_s=0.0,
        encode_s_per_element=window["encode"] / share,
        decode_s_per_value=0.0,
        decode_s_per_element=window["decode"] / share,
        gather_s_per_byte=window["gather"] / (4 * numel),
        backend="gloo",
    )


def _main_thread(parts: dict[str, float]) -> float:
    return sum(seconds for name, seconds in parts.items() if name != "decode")
