"""Random scenarios with random policies: what the engine and the closed form are held against each other on.

Every draw follows from its seed alone. Sites differ in compute and size, links in bandwidth (each way), round
trip, loss and congestion control; all topologies, overlaps and updates come up, and a few of each of what the
closed form leaves out: random times, varying links, shared ways out, intervals that adapt.
"""

from typing import Any

import numpy as np

from geosim.policy import SyncPolicy, policy_from_dict
from geosim.scenario import Accelerator, Fabric, Hop, Model, Scenario, Site, WanLink, Workload

Pair = tuple[Scenario, SyncPolicy]

_NO_RAMP_BYTES = 1e15
_CODECS: tuple[dict[str, Any], ...] = (
    {},
    {"quantize": "bf16"},
    {"quantize": "int8"},
    {"select": {"kind": "topk", "ratio": 0.01}, "quantize": "int8", "residual": "feedback"},
    {"select": {"kind": "topk", "ratio": 0.1, "scope": 4096}, "quantize": "int4", "residual": "feedback"},
    {"select": {"kind": "randomk", "ratio": 0.05}, "quantize": "fp16", "residual": "feedback"},
)


def draw(seed: int, ramp: bool) -> Pair:
    """The pair of one seed; without `ramp` windows are full from the first byte on."""
    random = np.random.default_rng([seed, int(ramp)])
    scenario = _scenario(random, ramp)
    return scenario, _policy(random, scenario.workload.model.layers)


def _log(random: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def _scenario(random: np.random.Generator, ramp: bool) -> Scenario:
    sites = int(random.integers(2, 9))
    same_sites, same_links, one_way_alike = random.random(3) < (0.4, 0.4, 0.6)
    width = int(random.choice([64, 128, 256]))
    model = Model(
        name="random", layers=int(random.integers(2, 13)), d_model=width, heads=4, ffn=4 * width,
        vocabulary=int(random.choice([256, 4096])), tied=bool(random.random() < 0.5),
    )  # fmt: skip

    def site(name: str) -> Site:
        device = Accelerator(
            name="random", fp32_flops=_log(random, 3e10, 3e11), memory_bytes=1e12,
            memory_bandwidth_bytes_per_s=_log(random, 1e10, 1e12), source="drawn",
        )  # fmt: skip
        fabric = Fabric(intra_node=Hop(bandwidth_bytes_per_s=_log(random, 1e9, 1e11), latency_s=2e-5))
        return Site(
            name=name,
            accelerator=device,
            accelerators_per_node=int(random.choice([1, 2, 4, 8])),
            fabric=fabric,
        )

    def link(a: str, b: str) -> dict[str, Any]:
        rate = _log(random, 1e6, 1e9)
        return {
            "between": (a, b),
            "bandwidth_bytes_per_s": rate,
            "back_bandwidth_bytes_per_s": None if one_way_alike else rate * _log(random, 0.2, 5),
            "rtt_s": _log(random, 1e-3, 0.3),
            "loss": _log(random, 1e-5, 1e-2) if random.random() < 0.25 else 0.0,
            "congestion_control": str(random.choice(["cubic", "reno", "bbr"])),
            "mtu_bytes": float(random.choice([1500, 9000])),
            "window_bytes": _log(random, 1e6, 1e8) if ramp else _NO_RAMP_BYTES,
            "initial_window_bytes": 14480.0 if ramp else _NO_RAMP_BYTES,
        }

    names = [f"s{m}" for m in range(sites)]
    made = [site(n) for n in names]
    if same_sites:
        made = [made[0].model_copy(update={"name": n}) for n in names]
    ways = [link(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    if same_links:
        ways = [{**ways[0], "between": w["between"]} for w in ways]
    rare = random.random(4) < 0.04
    if rare[0]:
        made = [s.model_copy(update={"uplink_bytes_per_s": ways[0]["bandwidth_bytes_per_s"]}) for s in made]
    if rare[1]:
        ways[0]["jitter_s"] = 0.1 * ways[0]["rtt_s"]
    if rare[2]:
        half = 0.5 * ways[0]["bandwidth_bytes_per_s"]
        ways[0]["trace"] = ({"at": "0 s", "bandwidth": f"{half:.0f} B/s"},)
    return Scenario(
        name="random",
        sites=tuple(made),
        wan=tuple(WanLink(**w) for w in ways),
        workload=Workload(
            model=model,
            precision="fp32",
            sequence=int(random.choice([128, 512])),
            batch_per_accelerator=int(random.choice([1, 4])),
            step_time_s=_log(random, 0.01, 1.0) if same_sites else None,
            step_jitter=0.1 if rare[3] else 0.0,
        ),
    )


def _policy(random: np.random.Generator, layers: int) -> SyncPolicy:
    topology = str(random.choice(["direct", "ring", "hub", "tree", "flat-ring"], p=[0.3, 0.2, 0.2, 0.2, 0.1]))
    if topology == "flat-ring":
        return policy_from_dict(
            {"topology": topology, "codec": {"quantize": str(random.choice(["fp32", "bf16"]))}}
        )
    interval = int(_log(random, 1, 512))
    windows = int(random.integers(1, 4))
    kind = str(random.choice(["blocking", "delayed", "eager", "streaming"]))
    update = str(random.choice(["accumulate", "local"]))
    overlap: dict[str, Any] = {"kind": kind}
    if kind in ("delayed", "eager"):
        overlap["windows"] = windows
    if kind == "eager" and update == "accumulate":
        update = "local"
    if kind == "streaming":
        update, interval = "local", max(interval, 2)
        overlap |= {
            "fragments": int(random.integers(1, min(interval, layers, 8) + 1)),
            "steps": int(random.integers(0, min(interval, 16))),
        }
    data: dict[str, Any] = {
        "update": update,
        "interval": interval,
        "overlap": overlap,
        "codec": _CODECS[random.integers(len(_CODECS))],
        "topology": topology,
        "streams": int(random.choice([1, 2, 4, 8])),
        "order": str(random.choice(["largest-first", "model"])),
    }
    if random.random() < 0.2:
        data["chunk"] = "256 KiB"
    if random.random() < 0.3:
        data["shards"] = 1
    if kind in ("blocking", "delayed") and random.random() < 0.1:
        data["groups"] = [{"share": 0.5, "overlap": str(random.choice(["blocking", "delayed"]))}]
    if kind != "streaming" and random.random() < 0.04:
        data["adapt"] = {"kind": "hide-exchange", "most": 64}
    return policy_from_dict(data)
