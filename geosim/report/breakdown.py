"""Where each millisecond of a step goes, site by site."""

from collections.abc import Mapping
from typing import Any

from geosim.cost.compute import site_compute_parts
from geosim.report.parts import COMPUTE
from geosim.scenario import Scenario

_ALIKE = 0.005  # of a step: sites whose parts differ by less are shown as one


def by_site(scenario: Scenario, result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A result for each site, as `report.parts.parts_of` reads it.

    `parts` add up to the site's own time a step, and `compute_parts`, empty where the step model does not
    know them, to its compute.
    """
    out = {}
    for site in scenario.sites:
        parts = result["site_parts"][site.name]
        inside = site_compute_parts(scenario.workload, site)
        share = parts["compute"] / sum(inside.values()) if inside else 0.0
        out[site.name] = {
            "step_time_s": {"mean": sum(parts.values())},
            "parts": dict(parts),
            "compute_parts": {name: share * seconds for name, seconds in inside.items()},
        }
    return out


def words_of_compute(scenario: Scenario) -> dict[str, dict[str, float]]:
    """What a step's compute is made of at each site where that is known, in words -> seconds."""
    inside = {site.name: site_compute_parts(scenario.workload, site) for site in scenario.sites}
    return {
        name: {COMPUTE[key][0]: seconds for key, seconds in parts.items()}
        for name, parts in inside.items()
        if parts
    }


def alike(sites: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the sites spend their steps alike."""
    first, *others = sites.values()
    step = first["step_time_s"]["mean"]
    return all(
        abs(other[kind].get(key, 0.0) - seconds) <= _ALIKE * step
        for other in others
        for kind in ("parts", "compute_parts")
        for key, seconds in first[kind].items()
    )
