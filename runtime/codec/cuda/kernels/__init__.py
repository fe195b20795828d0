"""Triton kernels. Nothing outside `runtime.codec.cuda` imports them; importing them imports triton."""
