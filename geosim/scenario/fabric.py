"""What joins the accelerators of one site."""

from geosim.scenario.ranges import Delay, Rate
from geosim.spec import Spec


class Hop(Spec):
    """One tier of a fabric: bandwidth an accelerator and a direction, and the latency of one message."""

    bandwidth_bytes_per_s: Rate
    latency_s: Delay


class Fabric(Spec):
    """`intra_node` joins accelerators inside a node (NVLink), `inter_node` joins nodes (RoCE, InfiniBand)."""

    intra_node: Hop
    inter_node: Hop | None = None
