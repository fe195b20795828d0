"""A data centre: nodes of accelerators, a fabric, and the way out."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from geosim.errors import UsageError
from geosim.scenario.accelerator import Accelerator, accelerators, resolve_accelerator
from geosim.scenario.fabric import Fabric
from geosim.scenario.ranges import Rate, StepTime
from geosim.spec import Spec


class Site(Spec):
    """One data centre.

    Attributes:
        name: short, without blanks; links name it.
        accelerator: a catalog name or an accelerator written out.
        nodes, accelerators_per_node: how many.
        fabric: what joins them.
        uplink_bytes_per_s, downlink_bytes_per_s: limits that all WAN links of the site share; None: none.
        step_time_s: measured compute time of a step of `workload.batch_per_accelerator` sequences here;
            None: the workload's.
        batch_per_accelerator: sequences an accelerator and step here; None: the workload's. Compute time
            grows in proportion.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=40)]
    accelerator: Annotated[Accelerator, BeforeValidator(resolve_accelerator)]
    nodes: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    accelerators_per_node: Annotated[int, Field(ge=1, le=1024)] = 8
    fabric: Fabric
    uplink_bytes_per_s: Rate | None = None
    downlink_bytes_per_s: Rate | None = None
    step_time_s: StepTime | None = None
    batch_per_accelerator: Annotated[int, Field(ge=1, le=10_000_000)] | None = None

    @property
    def ranks(self) -> int:
        """Accelerators in the site."""
        return self.nodes * self.accelerators_per_node

    @model_validator(mode="after")
    def _inter_node(self) -> "Site":
        if self.nodes > 1 and self.fabric.inter_node is None:
            raise UsageError(
                f"fabric.inter_node: site {self.name} has {self.nodes} nodes and needs what joins them"
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """Plain data; a catalog accelerator goes by its name."""
        out = super().to_dict()
        if accelerators().get(self.accelerator.name) == self.accelerator:
            out["accelerator"] = self.accelerator.name
        return out
