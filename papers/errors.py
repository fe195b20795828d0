"""How far the step model is from published rows."""

import numpy as np

from geosim.cost.step.step import step_time
from papers.rows import Rows


def time_errors(rows: Rows) -> np.ndarray:
    """Predicted over measured step time, less one."""
    return np.asarray(step_time(rows.shape, rows.split, rows.machine).total_s / rows.seconds - 1)


def rate_errors(rows: Rows) -> np.ndarray:
    """Predicted over measured throughput, FLOP/s or MFU, less one."""
    return 1 / (1 + time_errors(rows)) - 1


def mean_percent(errors: np.ndarray) -> float:
    """Mean absolute error in per cent."""
    return float(100 * np.abs(errors).mean())


def worst_percent(errors: np.ndarray) -> float:
    """Largest absolute error in per cent."""
    return float(100 * np.abs(errors).max())
