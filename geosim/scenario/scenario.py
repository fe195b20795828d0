"""Scenario: what exists. Sites, the links between them, and the workload."""

from typing import Annotated

from pydantic import Field, model_validator

from geosim.errors import UsageError
from geosim.scenario.faults import Faults
from geosim.scenario.link import Trunk, WanLink
from geosim.scenario.nccl import Nccl
from geosim.scenario.prices import Prices
from geosim.scenario.site import Site
from geosim.scenario.workload import Workload
from geosim.spec import Spec


class Scenario(Spec):
    """Everything a simulation needs to know about the world. Frozen; YAML in and out without loss."""

    name: str = "custom"
    about: str = ""
    sites: Annotated[tuple[Site, ...], Field(min_length=1)]
    wan: tuple[WanLink, ...] = ()
    trunks: tuple[Trunk, ...] = ()
    workload: Workload
    prices: Prices | None = None
    faults: Faults | None = None
    nccl: Nccl = Nccl()

    @model_validator(mode="after")
    def _consistent(self) -> "Scenario":
        names = [site.name for site in self.sites]
        if len(set(names)) != len(names):
            raise UsageError("sites: two sites have the same name")
        seen: set[frozenset[str]] = set()
        for i, link in enumerate(self.wan):
            for end in link.between:
                if end not in names:
                    raise UsageError(
                        f"wan.{i}.between: no site is called '{end}': sites are {', '.join(names)}"
                    )
            if frozenset(link.between) in seen:
                raise UsageError(f"wan.{i}.between: {link.name} is there twice")
            seen.add(frozenset(link.between))
        _check_trunks(self, seen)
        _check_batches(self)
        for i, price in enumerate(self.prices.sites if self.prices else ()):
            if price.site not in names:
                raise UsageError(
                    f"prices.sites.{i}.site: no site is called '{price.site}': sites are {', '.join(names)}"
                )
        return self

    def link(self, a: str, b: str) -> WanLink | None:
        """The link between two sites, if there is one."""
        return next((w for w in self.wan if set(w.between) == {a, b}), None)

    @property
    def ranks(self) -> int:
        """Accelerators in all."""
        return sum(site.ranks for site in self.sites)


def _check_trunks(scenario: Scenario, linked: set[frozenset[str]]) -> None:
    """Trunks carry links that exist, each once."""
    names = [trunk.name for trunk in scenario.trunks]
    for i, trunk in enumerate(scenario.trunks):
        if names.count(trunk.name) > 1:
            raise UsageError(f"trunks.{i}.name: two trunks are called '{trunk.name}'")
        ends = [frozenset(pair) for pair in trunk.links]
        for pair, end in zip(trunk.links, ends, strict=True):
            if end not in linked:
                raise UsageError(f"trunks.{i}.links: no WAN link joins {pair[0]} and {pair[1]}")
            if ends.count(end) > 1:
                raise UsageError(f"trunks.{i}.links: {pair[0]} and {pair[1]} are there twice")


def _check_batches(scenario: Scenario) -> None:
    """A batch is said once."""
    by_speed, parallel = scenario.workload.batch == "by-speed", scenario.workload.parallel is not None
    if by_speed and parallel:
        raise UsageError(
            "workload.batch: 'by-speed': workload.parallel says how many sequences: leave one out"
        )
    for i, site in enumerate(scenario.sites):
        other = "workload.batch 'by-speed'" if by_speed else "workload.parallel" if parallel else ""
        if site.batch_per_accelerator is not None and other:
            raise UsageError(f"sites.{i}.batch_per_accelerator: {other} says how many: leave one out")
