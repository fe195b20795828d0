"""Mean absolute errors of predicted MFU against llm-foundry's table."""

import numpy as np

from papers.errors import mean_percent, rate_errors, worst_percent
from papers.llm_foundry.rows import load


def reproduce() -> dict[str, float]:
    """Our value of every claim, in the claim's unit."""
    rows = load()
    off = rate_errors(rows)
    fitted_model = np.isin(rows.model, ["125m", "1b", "7b", "30b"])
    forty = np.array(["40GB" in cluster for cluster in rows.cluster])
    fp8 = np.array(["FP8" in cluster for cluster in rows.cluster])
    return {
        "L1": mean_percent(off),
        "L1-worst": worst_percent(off),
        "L2": mean_percent(off[~fitted_model]),
        "L3": mean_percent(off[forty]),
        "L4": mean_percent(off[fp8]),
    }
