"""What the fixtures of torch.profiler are known to hold."""

SLEEP_S = 0.02  # in each step
STEPS = 6
