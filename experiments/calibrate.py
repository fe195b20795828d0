"""Co-located runs in, `Calibration`s out: what steps and codecs take here with no WAN in the way.

The sites' ranks run on this machine and talk over loopback, blocking, under a codec of the kind that is to
be predicted. Nothing of it is fitted to a run over a WAN.

Whatever else runs on a machine can slow all of one short run. So each kind runs several times, all kinds by
turns; it runs again if other programs were busy meanwhile, or its runs do not agree; and what is taken is the
median over the runs in which the machine was calm, or else the calmest ones. What no codec changes,
computation, the site's collective and adding gradients up, is the median over the runs of all kinds in the
same room.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from experiments.load import Load
from geosim.cost import Calibration
from geosim.policy import Blocking, Local, SyncPolicy, make_layout
from geosim.scenario import Scenario
from runtime.launch import emulate

INTERVAL = 2
STEPS = 16
REPEATS, MORE_REPEATS = 3, 2
_AGREE = 0.2  # runs agree that cost so much more or less than their median
_CALM = 0.25  # cores that other programs keep busy, at most


@dataclass(frozen=True)
class Kind:
    """What is measured together: sites and workload without their WAN, one policy's rule and codec, a pace.

    `pace_s`: declared step time, as in the runs to be predicted; None: as fast as the machine computes.
    """

    scenario: Scenario
    policy: SyncPolicy
    pace_s: float | None

    @property
    def probe(self) -> SyncPolicy:
        """The policy as it runs here: only its update rule and codec matter."""
        return self.policy.model_copy(
            update={
                "interval": INTERVAL,
                "overlap": Blocking(),
                "groups": (),
                "topology": SyncPolicy().topology,
            }
        )

    def shares(self, other: "Kind", figure: str) -> bool:
        """Whether a figure is the same for another kind."""
        if (self.scenario, self.pace_s) != (other.scenario, other.pace_s):
            return False
        if figure == "update":
            return self.policy.update.kind == other.policy.update.kind
        return figure in ("compute", "site_collective", "overhead") or self == other


@dataclass(frozen=True)
class Calibrated:
    """A calibration, and the scenario with its measured step time.

    Attributes:
        runs: those of this kind that were taken, with the cores that others kept busy as `other_load`.
        spread: how far they lie apart in what they cost, the longest less the shortest over the median.
    """

    calibration: Calibration
    scenario: Scenario
    runs: tuple[dict[str, Any], ...]
    spread: float


def calibrate(
    kinds: Sequence[Kind],
    *,
    steps: int = STEPS,
    repeats: int = REPEATS,
    data: str | None = None,
    seed: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
) -> list[Calibrated]:
    """Measure this machine under the update rules and codecs of some kinds, by turns.

    Args:
        kinds: all different.
        steps: of each run.
        repeats: runs of each kind; up to `MORE_REPEATS` more where these were disturbed.
        data, seed: as for `runtime.launch.emulate`.
        progress: called with (step, steps, loss), over all runs.

    Raises:
        RunError: if a run fails.
    """
    runs: list[list[dict[str, Any]]] = [[] for _ in kinds]
    planned = repeats * len(kinds)

    def measure(i: int) -> None:
        done = sum(map(len, runs))

        def tell(step: int, of: int, loss: float) -> None:
            if progress is not None:
                progress(done * of + step, max(planned, done + 1) * of, loss)

        kind = kinds[i]
        with Load() as load:
            run = emulate(
                kind.scenario, kind.probe, steps, wan="none", pace_s=kind.pace_s, data=data, seed=seed,
                progress=tell,
            )  # fmt: skip
        runs[i].append({**run, "other_load": load.others})

    for _ in range(repeats):
        for i in range(len(kinds)):
            measure(i)
    for _ in range(MORE_REPEATS):
        for i, row in enumerate(runs):
            if sum(map(_is_calm, row)) < repeats or not agree([cost(run) for run in _taken(row, repeats)]):
                measure(i)
    taken = [_taken(row, repeats) for row in runs]
    return [_calibrated(kind, kinds, taken) for kind in kinds]


def _is_calm(run: dict[str, Any]) -> bool:
    """Whether little else ran; where the machine does not say, nobody knows otherwise."""
    return (run["other_load"] or 0.0) <= _CALM


def _taken(row: Sequence[dict[str, Any]], least: int) -> list[dict[str, Any]]:
    """The calm runs, or where they are few the `least` calmest."""
    return sorted(row, key=lambda run: run["other_load"] or 0.0)[: max(least, sum(map(_is_calm, row)))]


def cost(run: dict[str, Any]) -> float:
    """Seconds of a window that a run's main threads spend on anything but computing and waiting."""
    inside, window = run["parts_inside"], run["parts_of_window"]
    each = INTERVAL * (inside["site_collective"] + inside["apply"])
    return float(each + sum(window[name] for name in ("encode", "gather", "apply")))


def agree(costs: Sequence[float]) -> bool:
    """Whether most lie close to their median."""
    middle = median(costs)
    return 2 * sum(abs(value - middle) <= _AGREE * middle for value in costs) > len(costs)


def _calibrated(kind: Kind, kinds: Sequence[Kind], runs: Sequence[Sequence[dict[str, Any]]]) -> Calibrated:
    figures = {}
    for name in figures_of(runs[0][0]):
        alike = [row for other, row in zip(kinds, runs, strict=True) if kind.shares(other, name)]
        figures[name] = median(figures_of(run)[name] for row in alike for run in row)
    own = runs[list(kinds).index(kind)]
    costs = [cost(run) for run in own]
    spread = (max(costs) - min(costs)) / median(costs)
    work = kind.scenario.workload.model_copy(update={"step_time_s": figures["compute"], "step_jitter": 0.0})
    world = kind.scenario.model_copy(update={"workload": work})
    return Calibrated(constants(kind.scenario, kind.probe, figures), world, tuple(own), spread)


def figures_of(run: dict[str, Any]) -> dict[str, float]:
    """What a calibration takes from a run, in seconds: of a step down to `update`, of a window after that."""
    inside, window, parts = run["parts_inside"], run["parts_of_window"], run["parts"]
    main_thread = sum(seconds for name, seconds in parts.items() if name != "decode")
    return {
        "compute": inside["compute"],
        "site_collective": inside["site_collective"],
        "overhead": max(0.0, run["step_time_s"]["mean"] - main_thread),
        "update": inside["apply"],
        **{name: window[name] for name in ("encode", "decode", "gather", "apply")},
    }


def constants(scenario: Scenario, policy: SyncPolicy, figures: dict[str, float]) -> Calibration:
    """A calibration from the figures of co-located runs under a policy."""
    layout = make_layout(scenario.workload.model.param_table(), policy, scenario.sites[0].ranks)
    numel = sum(layout.fragment_numel(f) for f in range(len(layout.fragments)))
    share = numel / layout.shards
    local = isinstance(policy.update, Local)
    return Calibration(
        step_overhead_s=figures["overhead"],
        site_collective_s=figures["site_collective"],
        accumulate_s=None if local else figures["update"],
        optimizer_s=figures["update"] if local else figures["apply"],
        outer_s=figures["apply"] if local else None,
        flag_s=0.0,
        encode_s_per_element=figures["encode"] / share,
        decode_s_per_value=0.0,
        decode_s_per_element=figures["decode"] / share,
        gather_s_per_byte=figures["gather"] / (4 * numel),
        backend="gloo",
    )
