"""How kernels are compiled, and kept while their source, that of the rounding laws too, is as it was."""

from pathlib import Path

from geosim.machine_code import compiler
from geosim.policy.maths import quantize

_HERE = Path(__file__).resolve().parent

kernel = compiler(_HERE, (*sorted(_HERE.glob("*.py")), Path(quantize.__file__)))
