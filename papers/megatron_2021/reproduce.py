"""Mean absolute errors of predicted FLOP/s against Megatron-LM's weak scaling."""

from papers.errors import mean_percent, rate_errors
from papers.megatron_2021.rows import load


def reproduce() -> dict[str, float]:
    """Our value of every claim, in the claim's unit."""
    off = rate_errors(load(micro_batch=2, chunks=1))
    return {
        "M1": mean_percent(off),
        "M2": float(100 * abs(off).max()),
    }
