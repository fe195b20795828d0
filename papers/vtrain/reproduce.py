"""Mean absolute errors of predicted step times against vTrain's measured ones."""

import numpy as np

from papers.errors import mean_percent, time_errors, worst_percent
from papers.vtrain.rows import load


def reproduce() -> dict[str, float]:
    """Our value of every claim, in the claim's unit."""
    single, multi = load("single_node"), load("multi_node")
    one, many = time_errors(single), time_errors(multi)
    return {
        "V1": mean_percent(one),
        "V1-worst": worst_percent(one),
        "V2": mean_percent(many),
        "V2-worst": worst_percent(many),
        "V3": mean_percent(one[np.isin(single.shape.layers, (16, 24))]),
        "V4": mean_percent(many[np.isin(multi.shape.hidden, (6144, 12288))]),
    }
