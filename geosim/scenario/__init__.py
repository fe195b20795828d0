"""What exists: accelerators, fabrics, sites, links, workloads, and the catalog of scenarios."""

from geosim.scenario.accelerator import Accelerator, accelerators
from geosim.scenario.batch import site_batches, site_tokens
from geosim.scenario.fabric import Fabric, Hop
from geosim.scenario.faults import Faults
from geosim.scenario.link import TracePoint, Trunk, WanLink
from geosim.scenario.loader import change_scenario, load_scenario, scenario_names
from geosim.scenario.nccl import Nccl
from geosim.scenario.parallel import Parallel
from geosim.scenario.prices import Prices, SitePrices
from geosim.scenario.scenario import Scenario
from geosim.scenario.site import Site
from geosim.scenario.workload import Model, Workload, models

__all__ = [
    "Accelerator",
    "Fabric",
    "Faults",
    "Hop",
    "Model",
    "Nccl",
    "Parallel",
    "Prices",
    "Scenario",
    "Site",
    "SitePrices",
    "TracePoint",
    "Trunk",
    "WanLink",
    "Workload",
    "accelerators",
    "change_scenario",
    "load_scenario",
    "models",
    "scenario_names",
    "site_batches",
    "site_tokens",
]
