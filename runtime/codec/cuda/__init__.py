"""The codec for CUDA devices, written in Triton.

The kernels' logic is tested bit for bit under triton's interpreter on the CPU and, where there is one, on a
GPU (docs/codecs.md has what an H200 measured). Every kernel is compiled ahead of time for sm_90 (those that
pass over all values for sm_80 and sm_100 too) and looked at: registers, spills, IEEE division, contraction,
flushing of denormals, 64-bit offsets. What follows is by design. Bytes are memory traffic an fp32 element;
values and residual are read and the residual is written, 12 bytes, in one pass:

- top-k of a piece or fragment: 12, some 1 % for a sample, then work in proportion to what travels. A decay
  below 1 costs 8 more; a scope whose sample was misleading some 24 more.
- blocks up to 8,192 elements: 12, whatever the decay. Larger ones are searched without a sample, some 36.
- dense: 12 and what travels, where scale groups are powers of two up to 4,096 or there are none. Other groups
  take two or three passes.
- random-k: as top-k; a decoder draws the positions again, without reading anything.

Extra memory of a top-1 % encode: below 5 % of the values' fp32 size in tensors of 2^24 elements and more.
"""

from runtime.codec.cuda.codec import TritonCodec

__all__ = ["TritonCodec"]
