"""The codecs that there are, and whether what they need is installed. Loads neither torch nor kernels."""

from importlib.util import find_spec

from geosim.errors import UsageError

# Fastest first, and the package that each needs.
CODECS = {"triton": "triton", "cpu": "numba", "reference": "torch"}


def check_codec(name: str) -> None:
    """Refuse a codec that is not known or not installed; "auto" is always there.

    Raises:
        UsageError: one line that names the codec and the remedy.
    """
    if name == "auto":
        return
    if name not in CODECS:
        raise UsageError(f"codec {name}: there is none of this name: use auto, {', '.join(CODECS)}")
    if not installed(name):
        raise UsageError(
            f"codec {name}: needs {CODECS[name]}, which is not installed: "
            "pip install -e '.[kernels]', or use auto"
        )


def installed(name: str) -> bool:
    """Whether the package that a codec needs is here."""
    return find_spec(CODECS[name]) is not None
