"""The points of the prediction grid: what each is, what the simulator says of it, and its real run."""

from dataclasses import asdict, dataclass
from typing import Any

from experiments.calibrate import Calibrated, calibrate
from experiments.console import progress_of
from geosim.policy import SyncPolicy, policy_from_dict
from geosim.scenario import Scenario
from geosim.sim import Tracer, simulate
from geosim.spec import from_dict
from runtime.launch import emulate

FLAT = "flat"
_LEAST_SHARE = 0.02
_LEAST_STEPS = 24


@dataclass(frozen=True)
class Point:
    """One run: how the sites exchange, and what lies between them."""

    interval: int
    ratio: float
    bits: str
    overlap: str
    bandwidth: str
    rtt: str
    streams: int = 1
    update: str = "accumulate"
    congestion_control: str = "cubic"

    def scenario(self, base: Scenario) -> Scenario:
        """The base scenario with this point's links."""
        data = base.to_dict()
        for link in data["wan"]:
            link |= {
                "bandwidth": self.bandwidth,
                "rtt": self.rtt,
                "congestion_control": self.congestion_control,
            }
        return from_dict(Scenario, data, "point")

    def policy(self) -> SyncPolicy:
        """This point's policy."""
        if self.overlap == FLAT:
            return policy_from_dict({"name": "ddp", "topology": "flat-ring"})
        dense = self.ratio == 1
        lossy = not (dense and self.bits == "fp32")
        codec: dict[str, Any] = {
            "select": "dense" if dense else {"kind": "topk", "ratio": self.ratio, "scope": "piece"},
            "quantize": self.bits,
            "residual": "feedback" if lossy and self.update == "accumulate" else "none",
        }
        data = {
            "name": self.words(),
            "interval": self.interval,
            "codec": codec,
            "overlap": self.overlap,
            "streams": self.streams,
            "update": self.update,
        }
        return policy_from_dict(data, "point")

    def words(self) -> str:
        """For tables."""
        if self.overlap == FLAT:
            return "flat DDP"
        sends = f"dense {self.bits}" if self.ratio == 1 else f"{100 * self.ratio:g} % {self.bits}"
        rule = "" if self.update == "accumulate" else f"{self.update}, "
        return f"{rule}K = {self.interval}, {sends}, {self.overlap}" + (
            f", {self.streams} streams" if self.streams > 1 else ""
        )


ONE = Point(4, 0.01, "int8", "blocking", "50 Mbit/s", "40 ms")
GRID = (
    Point(1, 0.01, "int8", "blocking", "100 Mbit/s", "40 ms"),
    Point(1, 0.01, "int8", "blocking", "100 Mbit/s", "250 ms"),
    Point(1, 0.1, "int8", "blocking", "50 Mbit/s", "40 ms"),
    Point(2, 0.1, "int8", "blocking", "20 Mbit/s", "80 ms"),
    ONE,
    Point(8, 0.01, "int8", "delayed", "50 Mbit/s", "80 ms"),
    Point(2, 1.0, "int8", "blocking", "100 Mbit/s", "40 ms"),
    Point(2, 1.0, "int8", "blocking", "100 Mbit/s", "40 ms", congestion_control="bbr"),
    Point(4, 1.0, "fp32", "blocking", "200 Mbit/s", "40 ms"),
    Point(4, 1.0, "fp32", "blocking", "200 Mbit/s", "40 ms", streams=4, congestion_control="bbr"),
    Point(4, 1.0, "int8", "delayed", "20 Mbit/s", "40 ms"),
    Point(2, 1.0, "fp32", "delayed", "100 Mbit/s", "20 ms", congestion_control="bbr"),
    Point(4, 1.0, "bf16", "delayed", "100 Mbit/s", "80 ms"),
    Point(4, 1.0, "fp32", "blocking", "100 Mbit/s", "40 ms", update="local"),
    Point(
        8, 1.0, "bf16", "blocking", "50 Mbit/s", "100 ms", streams=2, update="local", congestion_control="bbr"
    ),
    Point(1, 1.0, "fp32", FLAT, "200 Mbit/s", "20 ms"),
    Point(1, 1.0, "fp32", FLAT, "100 Mbit/s", "60 ms"),
)


class Predictor:
    """Simulates points from co-located calibrations: one a kind of codec and update rule, when needed."""

    def __init__(self, base: Scenario, pace_s: float | None, seed: int) -> None:
        self._base = base
        self._pace_s = pace_s
        self._seed = seed
        self._known: dict[tuple[str, ...], Calibrated] = {}
        self.step_time_s: float | None = None

    def calibration(self, point: Point) -> Calibrated:
        """The calibration of a point's kind."""
        policy = point.policy()
        kind = (policy.update.kind, policy.codec.select.kind, policy.codec.quantize.kind)
        if kind not in self._known:
            with progress_of(f"calibrate, co-located: {' '.join(kind)}") as progress:
                self._known[kind] = calibrate(
                    self._base, policy, pace_s=self._pace_s, seed=self._seed, progress=progress
                )
        return self._known[kind]

    def predict(self, point: Point, trace: Tracer | None = None) -> dict[str, Any]:
        """What the simulator says; `trace` takes down its run."""
        known = self.calibration(point)
        if self.step_time_s is None:
            self.step_time_s = known.scenario.workload.step_time_s
        world = point.scenario(known.scenario)
        work = world.workload.model_copy(update={"step_time_s": self.step_time_s})
        world = world.model_copy(update={"workload": work})
        return simulate(world, point.policy(), calibration=known.calibration, trace=trace).to_dict()


def run_point(
    point: Point, predictor: Predictor, base: Scenario, windows: int, **common: Any
) -> dict[str, Any]:
    """Predict, run for real, compare."""
    said = predictor.predict(point)
    steps = point.interval * max(windows, -(-_LEAST_STEPS // point.interval))
    with progress_of(f"{point.words()}, {point.bandwidth}, {point.rtt}") as progress:
        was = emulate(point.scenario(base), point.policy(), steps, wan="tun", progress=progress, **common)
    step_said, step_was = said["step_time_s"]["mean"], was["step_time_s"]["mean"]
    wait_said, wait_was = said["exposed_wan_s_per_step"], was["exposed_wan_s_per_step"]
    return {
        **asdict(point),
        "policy": point.words(),
        "step_predicted_s": step_said,
        "step_measured_s": step_was,
        "step_error": step_said / step_was - 1,
        "exposed_predicted_s": wait_said,
        "exposed_measured_s": wait_was,
        "exposed_share": wait_was / step_was,
        "exposed_error": wait_said / wait_was - 1 if wait_was / step_was >= _LEAST_SHARE else None,
        "exchange_predicted_s": said["exchange_time_s"]["mean"],
        "exchange_measured_s": was["exchange_time_s"]["mean"],
        "parts_predicted": said["parts"],
        "parts_measured": was["parts"],
        "steps": steps,
        "measured_steps": was["measured_steps"],
    }
