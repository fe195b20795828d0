"""What joins the accelerators of one site."""

from typing import Annotated

from pydantic import AfterValidator

from geosim.spec import BytesPerSecond, Seconds, Spec, not_negative, positive


class Hop(Spec):
    """One tier of a fabric: bandwidth an accelerator and a direction, and the latency of one message."""

    bandwidth_bytes_per_s: Annotated[BytesPerSecond, AfterValidator(positive)]
    latency_s: Annotated[Seconds, AfterValidator(not_negative)]


class Fabric(Spec):
    """`intra_node` joins accelerators inside a node (NVLink), `inter_node` joins nodes (RoCE, InfiniBand)."""

    intra_node: Hop
    inter_node: Hop | None = None
