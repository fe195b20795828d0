"""Samples per second of Adam and 1-bit Adam on slow Ethernet (DeepSpeed's report of arXiv 2102.02888).

A step is compute, then communication, nothing overlapped. Adam: NCCL's ring over all GPUs, fp16 gradients.
1-bit Adam: one bit a parameter, first all-to-all (every GPU averages its part), then an all-gather (section 5
of the paper). Five constants, all stated below; two of them are the compute times of the two tasks.
"""

from dataclasses import dataclass
from pathlib import Path

from geosim.cost.collective import all_gather, all_to_all, ring_all_reduce
from geosim.policy import Cast, Codec, Sign
from geosim.policy.codec import section_bytes
from geosim.scenario import Fabric, Hop
from papers.tables import rows

_DATA = Path(__file__).parent / "throughput.csv"
PARAMETERS = 336_000_000  # BERT-Large
_PER_NODE = 4
_BATCH = {"BERT-Large": 16, "SQuAD": 3}
# Seconds of a step on one GPU. BERT-Large: the table's single-GPU entries. SQuAD: fitted to its 4-GPU ones.
_COMPUTE_S = {"BERT-Large": 16 / 95, "SQuAD": 0.155}
# Fitted to Adam on 2 and 4 GPUs of one node.
_INSIDE = Hop(bandwidth_bytes_per_s=3.8e9, latency_s=1e-5)
# Fitted to 1-bit Adam on 2 and 4 GPUs: compression in unfused kernels, a fixed cost a parameter.
_COMPRESS_S = 0.48e-9 * PARAMETERS
# iperf's 4.1 Gbit/s, of one flow on a 40 Gbit/s NIC; the all-to-all has many flows: fitted to 8 and 16 GPUs.
_ONE_FLOW = 4.1e9 / 8
_MANY_FLOWS = 1.5


@dataclass(frozen=True)
class Row:
    """One entry of the table, samples per second."""

    task: str
    gpus: int
    method: str
    published: float
    ours: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.ours / self.published - 1


def _across(bandwidth: float) -> Hop:
    return Hop(bandwidth_bytes_per_s=bandwidth, latency_s=5e-5)


def _ring_hop(gpus: int, across: float) -> Hop:
    """The slowest edge of a ring."""
    return _INSIDE if gpus <= _PER_NODE else _across(min(across, _INSIDE.bandwidth_bytes_per_s))


def adam_s(gpus: int, one_flow: float = _ONE_FLOW) -> float:
    """Communication of a step of Adam, seconds."""
    size = float(section_bytes(PARAMETERS, Codec(quantize=Cast(kind="fp16"))))
    return ring_all_reduce(size, gpus, _ring_hop(gpus, one_flow))


def onebit_s(gpus: int, one_flow: float = _ONE_FLOW, many_flows: float = _MANY_FLOWS) -> float:
    """Compression and communication of a step of 1-bit Adam, seconds."""
    if gpus == 1:
        return 0.0
    size = float(section_bytes(PARAMETERS, Codec(quantize=Sign(group="section"))))
    per_node = min(gpus, _PER_NODE)
    rate = one_flow * many_flows
    fabric = Fabric(intra_node=_INSIDE, inter_node=_across(rate / per_node))
    spread = all_to_all(size, -(-gpus // per_node), per_node, fabric)
    gather = all_gather(size, gpus, _ring_hop(gpus, rate))
    return _COMPRESS_S + spread + gather


def table(many_flows: float = _MANY_FLOWS) -> list[Row]:
    """Every entry, published and ours."""
    out = []
    for row in rows(_DATA):
        gpus, task = int(row["gpus"]), row["task"]
        for method, seconds in (("adam", adam_s(gpus)), ("onebit", onebit_s(gpus, many_flows=many_flows))):
            ours = gpus * _BATCH[task] / (_COMPUTE_S[task] + seconds)
            out.append(Row(task, gpus, method, float(row[f"{method}_samples_s"]), ours))
    return out


def reproduce() -> dict[str, float]:
    """Our value of every claim."""
    found = table()
    plain = [abs(row.error) for row in table(many_flows=1.0)]
    half, one = (
        section_bytes(PARAMETERS, Codec(quantize=q)) for q in (Cast(kind="fp16"), Sign(group="section"))
    )
    warm_up = 0.15
    out = {f"OB-{r.task[0]}{r.gpus}-{r.method}": r.ours for r in found}
    return out | {
        "OB-mean": 100 * sum(abs(row.error) for row in found) / len(found),
        "OB-worst": 100 * max(abs(row.error) for row in found),
        "OB-volume": half / one,
        "OB-total": 1 / (warm_up + (1 - warm_up) * one / half),
        "plain_mean": 100 * sum(plain) / len(plain),
        "plain_worst": 100 * max(plain),
    }
