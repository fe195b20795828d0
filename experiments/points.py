"""The points of the prediction grid: what each is, what the simulator says of it, and its real run."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from experiments.calibrate import REPEATS, Calibrated, Kind, calibrate
from experiments.console import progress_of
from experiments.load import Load
from geosim.policy import SyncPolicy, policy_from_dict
from geosim.scenario import Scenario, site_batches
from geosim.sim import Tracer, simulate
from geosim.spec import from_dict
from runtime.launch import emulate

FLAT = "flat"
_LEAST_SHARE = 0.02
_LEAST_STEPS = 20
_MORE_SITES = ("north", "south", "centre", "coast")


@dataclass(frozen=True)
class Point:
    """One run: how the sites exchange, and what lies between them.

    Attributes:
        sites: two as the base has them; three and more have one rank each, and links alike between any two.
        topology: direct, ring, hub or tree.
        slow: step time of the last site over that of the others, for equal batches.
        batch: equal, or by-speed: faster sites take more of the same global batch.
        paced: whether computation rests until the declared step time has passed.
    """

    interval: int
    ratio: float
    bits: str
    overlap: str
    bandwidth: str
    rtt: str
    streams: int = 1
    update: str = "accumulate"
    congestion_control: str = "cubic"
    sites: int = 2
    topology: str = "direct"
    slow: float = 1.0
    batch: str = "equal"
    paced: bool = True

    def room(self, base: Scenario) -> Scenario:
        """The base scenario with this point's sites, all alike."""
        if self.sites == len(base.sites):
            return base
        names = [*(site.name for site in base.sites), *_MORE_SITES][: self.sites]
        site = base.sites[0].model_copy(update={"accelerators_per_node": 1})
        links = [
            base.wan[0].model_copy(update={"between": (a, b)})
            for i, a in enumerate(names)
            for b in names[i + 1 :]
        ]
        sites = [site.model_copy(update={"name": name}) for name in names]
        return base.model_copy(update={"sites": tuple(sites), "wan": tuple(links)})

    def scenario(self, base: Scenario) -> Scenario:
        """The scenario with this point's sites, links and shares of the batch."""
        data = self.room(base).to_dict()
        for link in data["wan"]:
            link |= {
                "bandwidth": self.bandwidth,
                "rtt": self.rtt,
                "congestion_control": self.congestion_control,
            }
        data["workload"]["batch"] = self.batch
        if self.slow != 1.0:
            step_s = base.workload.step_time_s
            assert step_s is not None
            data["sites"][-1]["step_time"] = f"{self.slow * step_s!r} s"
        return from_dict(Scenario, data, "point")

    def paces(self, scenario: Scenario, pace_s: float | None) -> dict[str, float]:
        """Declared step times of sites that differ: in proportion to their slowness and their batch."""
        if pace_s is None or not self.paced:
            return {}
        work = scenario.workload
        assert work.step_time_s is not None
        out = {}
        for site, batch in zip(scenario.sites, site_batches(scenario), strict=True):
            slowness = 1.0 if site.step_time_s is None else site.step_time_s / work.step_time_s
            factor = slowness * batch / work.batch_per_accelerator
            if factor != 1.0:
                out[site.name] = pace_s * factor
        return out

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
            "topology": self.topology,
        }
        return policy_from_dict(data, "point")

    def words(self) -> str:
        """For tables."""
        if self.overlap == FLAT:
            return "flat DDP"
        sends = f"dense {self.bits}" if self.ratio == 1 else f"{100 * self.ratio:g} % {self.bits}"
        rule = "" if self.update == "accumulate" else f"{self.update}, "
        more = [f"{self.streams} streams"] if self.streams > 1 else []
        if self.sites > 2:
            more.append(f"{self.sites} sites {self.topology}")
        if self.slow != 1.0:
            more.append(f"last site {self.slow:g} times slower")
        if self.batch != "equal":
            more.append("batch by speed")
        if not self.paced:
            more.append("unpaced")
        return ", ".join([f"{rule}K = {self.interval}, {sends}, {self.overlap}", *more])


ONE = Point(4, 0.01, "int8", "blocking", "50 Mbit/s", "40 ms")
_TWO = (
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
    Point(1, 1.0, "int8", "blocking", "200 Mbit/s", "20 ms", congestion_control="bbr"),
    Point(1, 0.01, "int8", "delayed", "50 Mbit/s", "100 ms"),
    Point(2, 0.1, "int8", "delayed", "10 Mbit/s", "80 ms"),
    Point(4, 0.1, "int8", "blocking", "10 Mbit/s", "150 ms", streams=4),
    Point(8, 1.0, "fp32", "blocking", "100 Mbit/s", "40 ms", congestion_control="bbr"),
    Point(2, 1.0, "bf16", "blocking", "200 Mbit/s", "5 ms"),
)
_THREE = tuple(
    replace(point, sites=3, topology=topology)
    for point, topologies in (
        (Point(2, 1.0, "int8", "blocking", "50 Mbit/s", "40 ms"), ("direct", "ring", "hub")),
        (Point(1, 0.1, "int8", "blocking", "20 Mbit/s", "60 ms", congestion_control="bbr"), ("ring", "hub")),
        (Point(4, 1.0, "int8", "delayed", "20 Mbit/s", "40 ms"), ("direct", "ring")),
        (Point(2, 0.1, "int8", "delayed", "10 Mbit/s", "80 ms"), ("hub",)),
        (Point(1, 0.01, "int8", "blocking", "100 Mbit/s", "150 ms", streams=2), ("direct",)),
    )
    for topology in topologies
)
_UNEQUAL = (
    Point(1, 0.1, "int8", "blocking", "50 Mbit/s", "40 ms", slow=1.6),
    Point(2, 1.0, "int8", "blocking", "100 Mbit/s", "40 ms", slow=1.6, congestion_control="bbr"),
    Point(4, 1.0, "int8", "delayed", "20 Mbit/s", "40 ms", slow=1.6),
    Point(2, 1.0, "int8", "blocking", "50 Mbit/s", "40 ms", slow=3.0, batch="by-speed"),
    Point(2, 0.1, "int8", "blocking", "20 Mbit/s", "40 ms", sites=3, topology="ring", slow=1.6),
    Point(2, 1.0, "int8", "blocking", "50 Mbit/s", "20 ms", sites=3, topology="hub", slow=1.6),
)
_UNPACED = tuple(
    replace(point, paced=False)
    for point in (
        Point(4, 0.01, "int8", "blocking", "50 Mbit/s", "40 ms"),
        Point(4, 0.1, "int8", "blocking", "20 Mbit/s", "80 ms"),
        Point(8, 0.1, "int8", "delayed", "20 Mbit/s", "40 ms"),
        Point(4, 1.0, "int8", "blocking", "100 Mbit/s", "40 ms", congestion_control="bbr"),
        Point(8, 1.0, "int8", "delayed", "50 Mbit/s", "40 ms"),
        Point(4, 0.1, "int8", "blocking", "20 Mbit/s", "40 ms", sites=3, topology="ring"),
    )
)
GRID = (*_TWO, *_THREE, *_UNEQUAL, *_UNPACED)


class Predictor:
    """Simulates points from co-located calibrations."""

    def __init__(self, base: Scenario, pace_s: float | None, seed: int, repeats: int = REPEATS) -> None:
        self._base = base
        self._pace_s = pace_s
        self._seed = seed
        self._repeats = repeats
        self._known: list[tuple[Kind, Calibrated]] = []

    def prepare(self, points: Iterable[Point]) -> None:
        """Measure the kinds of all these points together, by turns; else each is measured when needed."""
        wanted: list[Kind] = []
        for kind in map(self._kind, points):
            if kind not in wanted and all(kind != known for known, _ in self._known):
                wanted.append(kind)
        if wanted:
            title = f"calibrate, co-located: {len(wanted)} kinds by turns"
            with progress_of(title) as progress:
                found = calibrate(wanted, repeats=self._repeats, seed=self._seed, progress=progress)
            self._known += zip(wanted, found, strict=True)

    def calibration(self, point: Point) -> Calibrated:
        """The calibration of a point's kind."""
        self.prepare([point])
        kind = self._kind(point)
        return next(found for known, found in self._known if known == kind)

    def pace_of(self, point: Point) -> float | None:
        """The declared step time of a point's sites, but for a slower one."""
        return self._pace_s if point.paced else None

    def predict(self, point: Point, trace: Tracer | None = None) -> dict[str, Any]:
        """What the simulator says; `trace` takes down its run."""
        known = self.calibration(point)
        world = point.scenario(known.scenario)
        return simulate(world, point.policy(), calibration=known.calibration, trace=trace).to_dict()

    def _kind(self, point: Point) -> Kind:
        """Its room, update rule, codec and pace."""
        policy = point.policy()
        alike = SyncPolicy(name="calibrate", update=policy.update, codec=policy.codec)
        return Kind(point.room(self._base), alike, self.pace_of(point))


def run_point(
    point: Point, predictor: Predictor, base: Scenario, windows: int, **common: Any
) -> dict[str, Any]:
    """Predict, run for real, compare."""
    said = predictor.predict(point)
    steps = point.interval * max(windows, -(-_LEAST_STEPS // point.interval))
    pace_s, world = predictor.pace_of(point), point.scenario(base)
    with progress_of(f"{point.words()}, {point.bandwidth}, {point.rtt}") as progress, Load() as load:
        was = emulate(
            world, point.policy(), steps, wan="tun", progress=progress, pace_s=pace_s,
            site_pace_s=point.paces(world, pace_s), **common,
        )  # fmt: skip
    known = predictor.calibration(point)
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
        "sites_predicted": said["sites"],
        "sites_measured": was["sites"],
        "steps": steps,
        "measured_steps": was["measured_steps"],
        "late_steps": was["late_steps"],
        "other_load": load.others,
        "step_spread": was["step_time_s"]["p95"] / was["step_time_s"]["p50"] - 1,
        "calibration_spread": known.spread,
        "calibration_other_load": max(run["other_load"] or 0.0 for run in known.runs),
    }
