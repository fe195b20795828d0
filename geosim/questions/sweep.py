"""A grid over fields of a scenario and a policy: its points, and the row that each of them gives."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from geosim.cost.calibration import Calibration
from geosim.errors import UsageError
from geosim.policy import SyncPolicy, policy_from_dict
from geosim.questions.grid import Axis, check_size, parse_grid
from geosim.scenario import Scenario, change_scenario
from geosim.settings import apply_settings
from geosim.sim import Result, simulate
from geosim.sim.simulate import WINDOWS
from geosim.spec import Spec

Row = dict[str, Any]
Values = Sequence[tuple[str, Any]]

_POLICY = "policy."
_SUFFIX = {"time": "_s", "size": "_bytes", "bandwidth": "_bytes_per_s", "compute rate": "_flops"}
METRICS = (
    "step_time_s", "step_time_p95_s", "compute_utilization", "exchange_time_s", "exposed_wan_s_per_step",
    "tokens_per_s", "relative_to_colocated", "wan_bytes_per_step", "wan_bytes_vs_ddp",
)  # fmt: skip


@dataclass(frozen=True)
class Around:
    """What a grid lies around: all that one point needs besides its own values.

    Attributes:
        scenario, policy: what the fields that are not varied are taken from.
        seeds, windows: of each simulation, as in `simulate`.
        calibration: measured constants.
    """

    scenario: Scenario
    policy: SyncPolicy
    seeds: int
    windows: int
    calibration: Calibration | None

    def world(self, values: Values) -> tuple[Scenario, SyncPolicy]:
        """Scenario and policy with some fields set.

        Raises:
            UsageError: an unknown field, or a value that does not fit.
        """
        mine = {field.removeprefix(_POLICY): v for field, v in values if field.startswith(_POLICY)}
        theirs = {field: v for field, v in values if not field.startswith(_POLICY)}
        scenario = change_scenario(self.scenario, theirs) if theirs else self.scenario
        if not mine:
            return scenario, self.policy
        data = apply_settings(SyncPolicy, self.policy.to_dict(), mine)
        return scenario, policy_from_dict(data, f"policy {self.policy.name}")

    def simulate(self, values: Values) -> Row:
        """Metrics with some fields set; none, but an `error`, where the values do not fit."""
        try:
            scenario, policy = self.world(values)
            found = simulate(
                scenario, policy, seeds=self.seeds, windows=self.windows, calibration=self.calibration
            )
        except UsageError as error:
            return dict.fromkeys(METRICS) | {"error": " ".join(str(error).split())}
        return _metrics(found) | {"error": ""}


@dataclass(frozen=True)
class Sweep:
    """A grid. Points count with the last axis first."""

    around: Around
    axes: tuple[Axis, ...]

    def __len__(self) -> int:
        return math.prod(len(axis) for axis in self.axes)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that its rows follow from."""
        around = self.around
        axes = [(axis.field, axis.texts) for axis in self.axes]
        data: list[Any] = [_version(), around.scenario.to_dict(), around.policy.to_dict(), axes]
        data += [around.seeds, around.windows, (around.calibration or Calibration()).to_dict()]
        return hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=8).hexdigest()

    @cached_property
    def columns(self) -> list[str]:
        """Names of a row's cells: what is varied (quantities in SI too), metrics, error, fingerprint."""
        return [*(name for axis in self.axes for name in _columns(axis)), *METRICS, "error", "sweep"]

    def values(self, point: int) -> list[tuple[str, Any]]:
        """Field and value of each axis at a point."""
        return [(axis.field, axis.values[i]) for axis, i in zip(self.axes, self._indices(point), strict=True)]

    def row(self, point: int, metrics: Row) -> Row:
        """The row of a point from what `Around.simulate` says of it."""
        return self.place(point) | metrics | {"sweep": self.fingerprint}

    def place(self, point: int) -> Row:
        """The cells of a point's row that say where it lies."""
        cells: Row = {}
        for axis, index in zip(self.axes, self._indices(point), strict=True):
            value = axis.values[index]
            cells[axis.field] = value if _is_number(value) else axis.texts[index]
            if axis.dimension is not None and axis.numbers is not None:
                cells[axis.field + _SUFFIX[axis.dimension.name]] = axis.numbers[index]
        return cells

    def _indices(self, point: int) -> list[int]:
        out = []
        for axis in reversed(self.axes):
            point, index = divmod(point, len(axis))
            out.append(index)
        return out[::-1]


def make_sweep(
    scenario: Scenario,
    policy: SyncPolicy,
    specs: Sequence[str],
    seeds: int = 3,
    windows: int = WINDOWS,
    calibration: Calibration | None = None,
    yes: bool = False,
) -> Sweep:
    """A sweep whose axes are checked: every value is one that its field takes.

    Raises:
        UsageError: as `parse_grid`; more points than `MOST_POINTS`, unless `yes`; an unknown field; or a
            value that fits at no corner of the grid.
    """

    def is_whole(field: str) -> bool | None:
        mine = field.startswith(_POLICY)
        value = _now(policy if mine else scenario, field.removeprefix(_POLICY))
        return None if value is None else isinstance(value, int) and not isinstance(value, bool)

    axes = parse_grid(specs, is_whole, yes)
    check_size(axes, yes)
    around = Around(scenario, policy, seeds, windows, calibration)
    corners = [[(a.field, a.values[end]) for a in axes] for end in (0, -1)]
    for axis in axes:
        for value in axis.values:
            _check(around, axis.field, value, corners)
    return Sweep(around, axes)


def _check(around: Around, field: str, value: Any, corners: Sequence[Values]) -> None:
    """See that a value fits: alone, or where other axes are at an end, since fields may need each other."""
    refused = []
    for others in ([], *corners):
        try:
            around.world([*((f, v) for f, v in others if f != field), (field, value)])
        except UsageError as error:
            refused.append(str(error))
        else:
            return
    # A field that exists only along with another axis is unknown without it: that is not what is wrong.
    said = next((text for text in refused if "unknown key" not in text), refused[0])
    raise UsageError(f"--grid {field}: {said.removeprefix(f'--set {field}: ')}")


def _now(spec: Any, path: str) -> Any:
    """What a field holds; None if there is none by that path."""
    for part in path.split("."):
        if isinstance(spec, tuple):
            spec = spec[int(part)] if part.isdecimal() and int(part) < len(spec) else None
        elif isinstance(spec, Spec):
            name = spec.quantities()[part][0] if part in spec.quantities() else part
            spec = getattr(spec, name, None)
        else:
            return None
    return spec


def _version() -> str:
    try:
        return version("geosim")
    except PackageNotFoundError:
        return ""  # a checkout that is not installed


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _columns(axis: Axis) -> Iterator[str]:
    yield axis.field
    if axis.dimension is not None:
        yield axis.field + _SUFFIX[axis.dimension.name]


def _metrics(result: Result) -> Row:
    found = (
        result.step_time_s.mean, result.step_time_s.p95, result.compute_utilization,
        result.exchange_time_s.mean, result.exposed_wan_s_per_step, result.tokens_per_s,
        result.relative_to_colocated, sum(use.bytes_per_step for use in result.links.values()),
        result.wan_bytes_vs_ddp,
    )  # fmt: skip
    return dict(zip(METRICS, (float(value) for value in found), strict=True))
