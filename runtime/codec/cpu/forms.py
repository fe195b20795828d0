"""The forms in which values travel, as numbers that kernels take."""

import numpy as np

from geosim.policy.maths.quantize import FP32_MAX, scale_limit
from geosim.policy.quantize import Integer

AS_FP32, AS_BF16, AS_FP16, AS_INT8, AS_INT4, AS_INT2, AS_E3M0, AS_SIGN = range(8)
NAMES = ("fp32", "bf16", "fp16", "int8", "int4", "int2", "e3m0", "sign")
BITS = np.array([32, 16, 16, 8, 4, 2, 4, 1])
TOP = np.array([1, 1, 1, 127, 7, 2, 1, 1], np.float32)
LIMIT = np.array(
    [FP32_MAX] * 3 + [scale_limit(Integer(kind=kind)) for kind in ("int8", "int4", "int2")] + [FP32_MAX] * 2,
    np.float32,
)
RUN = 2048
