"""Field runs over wide-area links: how long an exchange takes, and what of the time is computing."""

import numpy as np

from geosim.params import ParamTable
from geosim.policy import Codec, policy_from_dict
from geosim.policy.codec import section_bytes
from geosim.scenario import models
from papers.field_runs import chips
from papers.field_runs.ring import COMPUTE_S, Ring, slowest_for

_MFU = 43.3  # of INTELLECT-1 without communication
_BLOCK = 4096
# The longest round trip of the ring: P95 between Azure regions of these areas (documentation, July 2026).
_RTT_S = {"USA": 0.074, "EU": 0.091, "GLB": 0.175}
_PUBLISHED_S = {"USA": 103.0, "EU": 382.0, "GLB": 469.0}
_MBIT = 1e6 / 8


def _share(compute_s: float, sync_s: float) -> float:
    return 100 * compute_s / (compute_s + sync_s)


def _intellect() -> dict[str, float]:
    out: dict[str, float] = {}
    for name, rtt in _RTT_S.items():
        sync, published = Ring(14, rtt).sync_s(), _PUBLISHED_S[name]
        out[f"FR-I1-{name}-sync"] = sync
        out[f"FR-I1-{name}-CU"] = _share(COMPUTE_S, sync)
        out[f"FR-I1-{name}-MFU"] = _MFU * _share(COMPUTE_S, sync) / 100
        out[f"FR-I1-{name}-CU-id"] = _share(COMPUTE_S, published)
        out[f"FR-I1-{name}-MFU-id"] = _MFU * _share(COMPUTE_S, published) / 100
        out[f"slowest_{name}"] = slowest_for(14, published)
        out[f"gloo_{name}"] = Ring(14, rtt, gloo=True).time(np.ones(14))
    out["usa_8"] = Ring(8, _RTT_S["USA"]).sync_s()
    table: ParamTable = models()["intellect-1-10b"].param_table()
    out["FR-I1-400"] = (
        100
        * 4
        * table.numel
        / section_bytes(table.numel, _codec("dense", {"kind": "int8", "group": "section"}))
    )
    return out


def _codec(select: object, quantize: object) -> Codec:
    return policy_from_dict(
        {"update": "local", "codec": {"select": select, "quantize": quantize, "residual": "feedback"}}
    ).codec


def _sparse() -> dict[str, float]:
    """Chunked top-k, 64 of 4096 in two bits; theirs has positions of 12 bits each."""
    codec = _codec({"kind": "topk", "ratio": 64 / _BLOCK, "scope": _BLOCK}, "int2")
    theirs = 64 * (12 + 2) / 8 / _BLOCK  # bytes a parameter
    covenant, templar8, templar70 = 72.7e9 * theirs, 8e9 * theirs, 70e9 * theirs
    return {
        "FR-CV-146": 4 * _BLOCK / section_bytes(_BLOCK, codec),
        "theirs": 4 / theirs,
        "FR-CV-CU": _share(1200, 70),
        "FR-CV-sync": covenant / (110 * _MBIT),
        "cv_down": 19 * covenant / (500 * _MBIT),
        "cv_up": covenant / 70 * 8e-6,
        "FR-T8-sync": 19 * templar8 / (500 * _MBIT),
        "t8_up": templar8 / (500 * _MBIT),
        "FR-T70-sync": 19 * templar70 / (500 * _MBIT),
        "t8_peers": 12 / (templar8 / (500 * _MBIT)),
        "t70_peers": 70 / (templar70 / (500 * _MBIT)),
        "t70_up": templar70 / (500 * _MBIT),
    }


def _decoupled() -> dict[str, float]:
    mtbf = chips.mtbf_for(0.27)
    return {
        "FR-DD-DP": 100 * chips.goodput(mtbf, False),
        "FR-DD-goodput": 100 * chips.goodput(mtbf, True),
        "mtbf": mtbf,
        "often": 100 * chips.goodput(chips.mtbf_for(0.27, 60.0), True, 60.0),
        "seldom": 100 * chips.goodput(chips.mtbf_for(0.27, 900.0), True, 900.0),
    }


def reproduce() -> dict[str, float]:
    """Our value of every claim."""
    return _intellect() | _sparse() | _decoupled() | {"FR-OD-CU": _share(93.1, 6.9)}
