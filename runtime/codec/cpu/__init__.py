"""The codec for CPUs, in numba."""

from runtime.codec.cpu.codec import CpuCodec

__all__ = ["CpuCodec"]
