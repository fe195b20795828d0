"""How NCCL is set: its environment variables as fields, with NCCL's own defaults."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geosim.spec import Bytes, Spec, within
from geosim.units import SIZE

# NCCL keeps the size in 32 bits.
Buffer = Annotated[Bytes, AfterValidator(within("1 B", "2147483647 B", SIZE))]

_ECN_BITS = 0b11
DEFAULT_BUFFER_BYTES = 4.0 * 1024 * 1024


class Nccl(Spec):
    """Settings of NCCL on all ranks. They decide flat collectives over the WAN and those inside sites.

    Defaults are those of NCCL 2.23 (src/transport/net_ib.cc, src/init.cc; user guide, "Environment
    Variables"), but for `net`: a scenario does not say whether its sites can do RDMA across the WAN.

    Attributes:
        net: NCCL_NET: `socket` is TCP, `ib` is RDMA, over Ethernet RoCEv2.
        algorithm: NCCL_ALGO; `auto`: across the WAN a ring, inside a site the fastest.
        protocol: NCCL_PROTO; `auto`: across the WAN Simple, inside a site the fastest.
        buffer_size_bytes: NCCL_BUFFSIZE, of a channel under Simple: what it has in flight to a peer at most.
        min_channels: NCCL_MIN_NCHANNELS (NCCL_MIN_NRINGS): rings or trees side by side, where NCCL has fewer.
        threads: NCCL_NTHREADS, of a channel's kernel.
        sockets: TCP connections of a channel: NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD.
        queue_pairs: NCCL_IB_QPS_PER_CONNECTION, of a channel.
        timeout: NCCL_IB_TIMEOUT: a queue pair waits 4.096 us x 2^timeout for an acknowledgement.
        retry_count: NCCL_IB_RETRY_CNT: timeouts in a row after which a queue pair gives up.
        traffic_class: NCCL_IB_TC: the IP header's byte, six bits DSCP and two of ECN.
        gdr_level: NCCL_NET_GDR_LEVEL: how far apart accelerator and NIC may be for GPUDirect; LOC: never;
            None: NCCL looks.
        gid_index: NCCL_IB_GID_INDEX; -1: NCCL looks for a RoCEv2 one. As most NICs have it, even ones are
            RoCEv1, which no router passes on, and odd ones RoCEv2.
        async_error_handling: TORCH_NCCL_ASYNC_ERROR_HANDLING: a failed collective ends the process.
        retransmission: what the NICs do about a lost packet; no variable of NCCL's.
    """

    net: Literal["socket", "ib"] = "socket"
    algorithm: Literal["auto", "ring", "tree", "nvls", "nvls-tree"] = "auto"
    protocol: Literal["auto", "LL", "LL128", "Simple"] = "auto"
    buffer_size_bytes: Buffer = DEFAULT_BUFFER_BYTES
    min_channels: Annotated[int, Field(ge=1, le=64)] = 1
    threads: Literal[64, 128, 256, 512] = 512
    sockets: Annotated[int, Field(ge=1, le=64)] = 1
    queue_pairs: Annotated[int, Field(ge=1, le=128)] = 1
    timeout: Annotated[int, Field(ge=1, le=31)] = 20
    retry_count: Annotated[int, Field(ge=0, le=7)] = 7
    traffic_class: Annotated[int, Field(ge=0, le=255)] = 0
    gdr_level: Literal["LOC", "PIX", "PXB", "PHB", "SYS"] | None = None
    gid_index: Annotated[int, Field(ge=-1, le=255)] = -1
    async_error_handling: bool = True
    retransmission: Literal["go-back-n", "selective-repeat"] = "go-back-n"

    @property
    def answers_ecn(self) -> bool:
        """Whether packets say that their queue pair slows down when marked (RFC 3168: ECT)."""
        return self.traffic_class & _ECN_BITS in (0b01, 0b10)

    @property
    def routed_rdma(self) -> bool:
        """Whether RDMA crosses the WAN; NCCL falls back to sockets where it does not."""
        return self.net == "ib" and (self.gid_index < 0 or self.gid_index % 2 == 1)
