"""Topologies held against each other: the engine runs each under one policy, and the fastest comes first."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from geosim.cost.calibration import Calibration
from geosim.errors import UsageError
from geosim.policy import Blocking, Delayed, Direct, Eager, SyncPolicy, Topology
from geosim.policy.routes import make_routes
from geosim.scenario import Scenario
from geosim.sim import Result, simulate
from geosim.tune.search import TOLERANCE, Tuned, tune
from geosim.tune.ways import topologies, way_words
from geosim.units import TIME, show

_SCREENED = 12  # more candidates than this are screened first
_SHORTLIST = 6
_SCREEN_WINDOWS = 4
_WINDOWS = 24
_LEAST_GAIN = 0.03  # of an exchange's time, for the tuner to look at another topology
_KINDS = ("direct", "hub", "ring", "tree")


@dataclass(frozen=True)
class Option:
    """One topology and what the policy does under it."""

    topology: Topology
    result: Result


@dataclass(frozen=True)
class Ranking:
    """Topologies under one policy.

    Attributes:
        policy: with the topology that it came with.
        options: from the fastest on; those that the screening left.
        direct: the naive one; None where some sites have no link.
        tried: how many of each kind.
        payloads: of the best, how many payloads an exchange sends over each link, "from->to".
    """

    policy: SyncPolicy
    options: tuple[Option, ...]
    direct: Option | None
    tried: dict[str, int]
    payloads: dict[str, int]

    @property
    def best(self) -> Option:
        """The fastest; of several that are equally fast the one whose exchange is shortest."""
        return self.options[0]


def rank_topologies(
    scenario: Scenario,
    policy: SyncPolicy,
    calibration: Calibration | None = None,
    seeds: int = 3,
    windows: int = _WINDOWS,
) -> Ranking:
    """Run a policy under every topology that is worth trying.

    Where there are more than 12, each first runs a few windows without jitter; the six best of these, the
    best of each kind and direct then run in full.

    Raises:
        UsageError: for plain data parallelism, one site, or sites that links leave apart.
    """
    if policy.is_flat:
        raise UsageError(
            f"policy {policy.name}: topology 'flat-ring' is plain data parallelism: use another policy"
        )
    if len(scenario.sites) < 2:
        raise UsageError(f"scenario {scenario.name}: one site has nobody to send to")
    ways = topologies(scenario, policy)
    if not ways:
        raise UsageError(f"scenario {scenario.name}: its links leave sites apart: no topology reaches all")

    def run(world: Scenario, way: Topology, seeds: int, windows: int) -> Option:
        changed = policy.model_copy(update={"topology": way})
        return Option(way, simulate(world, changed, seeds=seeds, windows=windows, calibration=calibration))

    shortlist = ways
    if len(ways) > _SCREENED:
        calm = _calm(scenario)
        rough = _sorted([run(calm, way, 1, _SCREEN_WINDOWS) for way in ways])
        firsts = {kind: next((o for o in rough if o.topology.kind == kind), None) for kind in _KINDS}
        kept = [*rough[:_SHORTLIST], *(option for option in firsts.values() if option is not None)]
        shortlist = list(dict.fromkeys(option.topology for option in kept))
    options = _sorted([run(scenario, way, seeds, windows) for way in shortlist])
    names = tuple(site.name for site in scenario.sites)
    routes = make_routes(options[0].topology, names)
    return Ranking(
        policy=policy,
        options=tuple(options),
        direct=next((o for o in options if isinstance(o.topology, Direct)), None),
        tried=dict(Counter(way.kind for way in ways)),
        payloads=dict(Counter(f"{names[t.source]}->{names[t.target]}" for t in routes)),
    )


@dataclass(frozen=True)
class TunedWay:
    """What the tuner chose, topology included, and the ranking that it looked at; None: it was held."""

    tuned: Tuned
    ranking: Ranking | None

    @property
    def reason(self) -> list[str]:
        """Why this topology, in words."""
        if self.ranking is None:
            return []
        direct, way = self.ranking.direct, self.tuned.chosen.policy.topology
        chosen = next((o for o in self.ranking.options if o.topology == way), None)
        if chosen is None or direct is None:
            return [f"topology {way_words(way)}: not all sites have a link, as direct needs"]
        if chosen is direct:
            return []
        times = [show(option.result.exchange_time_s.mean, TIME) for option in (chosen, direct)]
        return [f"topology {way_words(way)}: an exchange takes {times[0]}, direct {times[1]}"]


def tune_way(
    scenario: Scenario,
    base: SyncPolicy,
    max_interval: int | None = None,
    calibration: Calibration | None = None,
    held: Collection[str] = (),
) -> TunedWay:
    """`tune`, and where there are three sites or more the topology too, unless the base or the user has one.

    A topology matters for how long an exchange takes, so those are ranked by that, for what was chosen under
    direct. Where another is 3 % shorter the tuner runs once more under it, and the less aggressive of the two
    choices that come within the tolerance of the better one stays.

    Raises:
        UsageError: as `tune` does.
    """
    free = isinstance(base.topology, Direct) and "topology" not in held and not base.is_flat

    def under(way: Topology) -> Tuned:
        changed = base.model_copy(update={"topology": way})
        return tune(scenario, changed, max_interval, calibration, held=held)

    if not free or len(scenario.sites) < 3:
        return TunedWay(under(base.topology), None)
    if not any(isinstance(way, Direct) for way in topologies(scenario, base)):
        ranking = rank_topologies(scenario, _exposed(base), calibration, seeds=1)
        return TunedWay(under(ranking.best.topology), ranking)
    tuned = under(Direct())
    ranking = rank_topologies(scenario, _exposed(tuned.chosen.policy), calibration, seeds=1)
    direct, best = ranking.direct, ranking.best
    assert direct is not None
    gain = direct.result.exchange_time_s.mean / best.result.exchange_time_s.mean - 1
    if gain < _LEAST_GAIN:
        return TunedWay(tuned, ranking)
    again = under(best.topology)
    floor = max(tuned.best, again.best) * (1 - TOLERANCE)
    within = [each for each in (tuned, again) if each.chosen.relative >= floor]
    return TunedWay(min(within, key=lambda each: each.chosen.rank), ranking)


def _exposed(policy: SyncPolicy) -> SyncPolicy:
    """The policy with nothing of its exchanges hidden, so that a step shows all of their time."""
    if isinstance(policy.overlap, Delayed | Eager):
        return policy.model_copy(update={"overlap": Blocking()})
    return policy


def _sorted(options: list[Option]) -> list[Option]:
    """By time of a step, then of an exchange, to a millionth; the simpler kind where both are equal."""
    step = min(option.result.step_time_s.mean for option in options)
    exchange = min(option.result.exchange_time_s.mean for option in options)
    return sorted(
        options,
        key=lambda o: (
            round(o.result.step_time_s.mean / step, 6),
            round(o.result.exchange_time_s.mean / exchange, 6),
            _KINDS.index(o.topology.kind),
        ),
    )


def _calm(scenario: Scenario) -> Scenario:
    """The scenario with nothing random in it."""
    return scenario.model_copy(
        update={
            "workload": scenario.workload.model_copy(update={"step_jitter": 0.0}),
            "wan": tuple(link.model_copy(update={"jitter_s": 0.0}) for link in scenario.wan),
        }
    )
