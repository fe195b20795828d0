"""Random shapes, splits and machines, and the two large runs, for the tests of the step model."""

from hypothesis import strategies as st

from geosim.cost.step.numbers import Machine, Shape, Split
from geosim.scenario import Fabric, Hop, Parallel, Site, Workload

POWERS = st.sampled_from([1, 2, 4, 8, 16])


@st.composite
def shapes(draw) -> Shape:
    """Transformers whose parameter counts follow from their sizes; some lack two layers for even stages."""
    layers, heads = draw(st.integers(1, 8)) * 16 - draw(st.sampled_from([0, 2])), 16 * draw(st.integers(1, 8))
    hidden, kv = heads * 128, 128 * draw(st.sampled_from([1, heads]))
    ffn, matrices = 4 * hidden, draw(st.sampled_from([2, 3]))
    experts, vocabulary = draw(st.sampled_from([1, 1, 16])), draw(st.integers(1000, 2_000_000))
    inner = layers * matrices * hidden * ffn
    rest = layers * (2 * hidden + 2 * kv) * hidden + vocabulary * hidden
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        head_width=128,
        kv_width=kv,
        ffn=ffn,
        matrices=matrices,
        vocabulary=vocabulary,
        sequence=draw(st.sampled_from([128, 1024, 8192])),
        dense_parameters=float(rest + (inner if experts == 1 else 0)),
        expert_parameters=float(inner * experts if experts > 1 else 0),
        experts=experts,
        top_k=1 if experts == 1 else draw(st.integers(1, 4)),
        dropout=draw(st.booleans()),
    )


@st.composite
def splits(draw, experts: bool = False) -> Split:
    """Splits whose degrees are powers of two."""
    full = draw(st.booleans())
    pipeline = draw(POWERS)
    data = draw(POWERS)
    return Split(
        tensor=draw(POWERS),
        pipeline=pipeline,
        data=data,
        micro_batch=draw(st.integers(1, 8)),
        micro_batches=16 * draw(st.integers(1, 8)),
        expert=min(data, draw(POWERS)) if experts else 1,
        chunks=draw(st.integers(1, 4)) if pipeline > 1 else 1,
        all_held=draw(st.booleans()),
        full=full,
        selective=not full and draw(st.booleans()),
        sequence_parallel=draw(st.booleans()),
        zero=draw(st.integers(0, 3 if pipeline == 1 else 1)),
        fused_attention=draw(st.booleans()),
        overlap=draw(st.booleans()),
        gradient_bytes=draw(st.sampled_from([2.0, 4.0])),
    )


@st.composite
def machines(draw) -> Machine:
    """From a processor core to beyond what is sold."""
    peak = draw(st.floats(1e11, 1e16))
    return Machine(
        peak_flops=peak,
        attention_flops=peak * draw(st.sampled_from([0.5, 1.0])),
        memory_bytes_per_s=draw(st.floats(1e10, 2e13)),
        per_node=draw(st.sampled_from([1, 2, 3, 4, 6, 8, 16, 72])),
        intra_bytes_per_s=draw(st.floats(1e9, 1e12)),
        intra_latency_s=draw(st.floats(0, 1)),
        inter_bytes_per_s=draw(st.floats(1e8, 1e11)),
        inter_latency_s=draw(st.floats(0, 3600)),
    )


def site(accelerator: str = "H100", nodes: int = 64) -> Site:
    """Nodes of eight with NVLink, and 400 Gbit/s an accelerator between them."""
    fabric = Fabric(
        intra_node=Hop(bandwidth_bytes_per_s=450e9, latency_s=2e-6),
        inter_node=Hop(bandwidth_bytes_per_s=50e9, latency_s=5e-6),
    )
    return Site(name="here", accelerator=accelerator, nodes=nodes, accelerators_per_node=8, fabric=fabric)


def workload(model: str = "llama-3-70b", **fields: object) -> Workload:
    """Llama at 8192 tokens; `fields` that Parallel knows go there."""
    own = {name: fields.pop(name) for name in list(fields) if name in Parallel.model_fields}
    known = {"sequence": 8192, "batch_per_accelerator": 1, **fields}
    return Workload(model=model, parallel=Parallel(**own), **known)
