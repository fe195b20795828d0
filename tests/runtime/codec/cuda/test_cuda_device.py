"""The same bytes, residuals and sums as the reference on a real GPU; skipped where there is none."""

import pytest
import torch
from cases import OTHERS, edge_inputs, layout_of, preset_codecs

from runtime.codec.cuda import TritonCodec
from runtime.codec.reference import ReferenceCodec

CODECS = preset_codecs() | OTHERS
SHAPES = [("a", (1 << 20,)), ("b", (300, 4099)), ("c", (40,)), ("d", (70, 65))]

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("name", CODECS)
def test_a_gpu_agrees_with_the_reference(name: str) -> None:
    layout = layout_of(CODECS[name], SHAPES)
    ours, theirs = TritonCodec(layout, 0, 0, 1), ReferenceCodec(layout, 0, 0, 1)
    noise = torch.randn(ours.numel, generator=torch.Generator().manual_seed(0))
    for what, values in [("noise", noise), *edge_inputs(ours.numel)]:
        residuals = [None, None]
        if ours.decay is not None:
            residuals = [torch.zeros(ours.numel, device="cuda"), torch.zeros(ours.numel)]
        one = torch.empty(ours.payload_bytes, dtype=torch.uint8, pin_memory=True)
        two = torch.empty(ours.payload_bytes, dtype=torch.uint8)
        ours.encode(values.cuda(), 0.7, residuals[0], 3, one)
        theirs.encode(values, 0.7, residuals[1], 3, two)
        for coder, payload in ((ours, one), (theirs, two)):
            coder.seal(payload, 3)
        assert torch.equal(one, two), what
        if residuals[0] is not None:
            assert torch.equal(residuals[0].cpu().view(torch.int32), residuals[1].view(torch.int32)), what
        c = ours.decode(one, 1, 3, "cuda").values.cpu()
        assert torch.equal(c.view(torch.int32), theirs.decode(two, 1, 3).values.view(torch.int32)), what
