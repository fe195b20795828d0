"""Field report B: NCCL and 8-bit gradients between Hong Kong and Silicon Valley."""
