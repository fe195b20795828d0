"""What was read, put into a scenario: one link, some sites' fabric, the workload."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geosim.calibrate.combine import Choice
from geosim.calibrate.fabric_fit import short_name
from geosim.calibrate.reading import Value
from geosim.cost.collective import site_cluster
from geosim.cost.compute import step_time
from geosim.errors import UsageError
from geosim.scenario import Scenario, Site, WanLink
from geosim.spec import from_dict

_ALIKE = 0.02  # both ways within this share are one bandwidth


@dataclass(frozen=True)
class Change:
    """A field of the scenario, as text before and after, and the files that say so."""

    path: str
    before: str
    after: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Filled:
    """A scenario with what was read in it.

    Attributes:
        scenario: the new one.
        changes: what is new in it.
        unknown: what stays as it was and may not fit any more, each in a sentence.
        notes: what the values amount to, likewise.
    """

    scenario: Scenario
    changes: tuple[Change, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...] = ()


def fill(scenario: Scenario, choices: Sequence[Choice], link: str | None, sites: Sequence[str]) -> Filled:
    """A scenario with the chosen values.

    Args:
        scenario: to start from.
        choices: of `combine`.
        link: two sites, as in ``east-west``: where the client (iperf3 -c, ping) ran, then the server.
        sites: whose fabric was measured; empty: the scenario's only site.

    Raises:
        UsageError: no link or site named though there are values for one, or one that is not there: one line.
    """
    data = scenario.to_dict()
    parts = {
        part: [c for c in choices if c.value.field.startswith(f"{part}.")]
        for part in ("link", "fabric", "workload")
    }
    if link is not None and not parts["link"]:
        raise UsageError(f"--link {link}: no file has values of a link")
    if sites and not parts["fabric"]:
        raise UsageError(f"--site {sites[0]}: no file has values of a fabric")
    changes: list[Change] = []
    unknown: list[str] = []
    if parts["link"]:
        _fill_link(scenario, data, parts["link"], link, changes)
    if parts["fabric"]:
        _fill_fabric(scenario, data, parts["fabric"], sites, changes, unknown)
    for choice in parts["workload"]:
        _put(data["workload"], "workload", choice, changes)
    unknown += _stale(scenario, parts["workload"])
    files = dict.fromkeys(Path(file).name for choice in choices for file in choice.files)
    if files:
        data["about"] = f"{scenario.about} Calibrated from {', '.join(files)}.".strip()
    made = from_dict(Scenario, data, f"scenario {scenario.name}")
    timed = any(choice.value.field == "workload.step_time" for choice in parts["workload"])
    return Filled(made, tuple(changes), tuple(unknown), _utilizations(made) if timed else ())


def _utilizations(scenario: Scenario) -> tuple[str, ...]:
    """What the step time makes of each kind of accelerator."""
    work = scenario.workload
    at_peak = work.model_copy(update={"step_time_s": None, "mfu": 1.0})
    out = []
    for device in dict.fromkeys(site.accelerator for site in scenario.sites):
        try:
            mfu = step_time(at_peak, device) / (work.step_time_s or 1.0)
        except UsageError:
            continue
        peak = f"the peak of {device.name} with the scenario's model and batch"
        if mfu <= 1:
            out.append(f"The step time is {100 * mfu:.3g} % of {peak}.")
        else:
            out.append(f"The step time is {mfu:.3g} times {peak}: they are not those of the trace.")
    return tuple(out)


def _put(here: dict[str, Any], path: str, choice: Choice, changes: list[Change], key: str = "") -> None:
    """Set one field of a mapping, and note it if that is a change."""
    key = key or choice.value.field.rpartition(".")[2]
    before, here[key] = here.get(key), choice.value.plain
    if before != here[key]:
        changes.append(Change(f"{path}.{key}", _said(before), _said(here[key]), choice.files))


def _said(value: Any) -> str:
    if value is None:
        return "not given"
    return str(value.get("name")) if isinstance(value, dict) else str(value)


def _fill_link(
    scenario: Scenario, data: dict[str, Any], choices: list[Choice], name: str | None, changes: list[Change]
) -> None:
    if name is None:
        raise UsageError("--link: say which link was measured, like --link east-west: client first")
    client, server = _ends(scenario, name)
    index = next((i for i, w in enumerate(scenario.wan) if set(w.between) == {client, server}), None)
    by_field = {choice.value.field.removeprefix("link."): choice for choice in choices}
    if index is None:
        missing = [] if "rtt" in by_field else ["its RTT"]
        missing += [] if {"bandwidth", "back_bandwidth"} & by_field.keys() else ["its bandwidth"]
        if missing:
            what = " and ".join(missing)
            raise UsageError(f"--link {name}: there is no such link, and to make one the files lack {what}")
        index = len(scenario.wan)
        data["wan"].append({"between": [client, server]})
    elif scenario.wan[index].trace and {"bandwidth", "back_bandwidth"} & by_field.keys():
        raise UsageError(
            f"wan.{index}.trace: says the bandwidth of {scenario.wan[index].name}: take it out first"
        )
    here, path = data["wan"][index], f"wan.{index}"
    for key, choice in by_field.items():
        if key not in ("bandwidth", "back_bandwidth"):
            _put(here, path, choice, changes)
    old = scenario.wan[index] if index < len(scenario.wan) else None
    _fill_bandwidths(here, path, by_field, old, client, changes)


def _fill_bandwidths(
    here: dict[str, Any],
    path: str,
    by_field: dict[str, Choice],
    old: WanLink | None,
    client: str,
    changes: list[Change],
) -> None:
    """Both ways as the link names its ends. What was alike both ways and is measured one way stays alike."""
    out, back = by_field.get("bandwidth"), by_field.get("back_bandwidth")
    if old is not None and old.between[0] != client:
        out, back = back, out
    if out is None and back is not None and (old is None or old.back_bandwidth_bytes_per_s is None):
        out, back = back, None
    if out is not None:
        _put(here, path, out, changes, "bandwidth")
    if back is None:
        return
    if out is None or not _alike(out.value, back.value):
        _put(here, path, back, changes, "back_bandwidth")
    elif here.get("back_bandwidth") is not None:
        changes.append(Change(f"{path}.back_bandwidth", here["back_bandwidth"], "the same", back.files))
        here["back_bandwidth"] = None


def _alike(a: Value, b: Value) -> bool:
    return isinstance(a.value, float) and isinstance(b.value, float) and abs(a.value / b.value - 1) <= _ALIKE


def _ends(scenario: Scenario, name: str) -> tuple[str, str]:
    """The two sites of ``a-b``; their names may hold dashes themselves."""
    names = [site.name for site in scenario.sites]
    found = [(a, b) for a in names for b in names if a != b and f"{a}-{b}" == name]
    if len(found) != 1:
        links = ", ".join(w.name for w in scenario.wan) or "none"
        raise UsageError(
            f"--link {name}: name two of the sites {', '.join(names)}, client first; links are {links}"
        )
    return found[0]


def _fill_fabric(
    scenario: Scenario, data: dict[str, Any], choices: list[Choice], names: Sequence[str],
    changes: list[Change], unknown: list[str],
) -> None:  # fmt: skip
    known = [site.name for site in scenario.sites]
    if not names and len(known) > 1:
        raise UsageError(f"--site: say whose fabric was measured: sites are {', '.join(known)}")
    for name in names or known:
        if name not in known:
            raise UsageError(f"--site {name}: sites are {', '.join(known)}")
        index = known.index(name)
        site, fabric = scenario.sites[index], data["sites"][index]["fabric"]
        for choice in choices:
            _, tier, _ = choice.value.field.split(".")
            _check_law(site, choice.value)
            if fabric.get(tier) is None:
                fabric[tier] = {}
            _put(fabric[tier], f"sites.{index}.fabric.{tier}", choice, changes)
        for tier, hop in fabric.items():
            missing = [key for key in ("bandwidth", "latency") if hop is not None and hop.get(key) is None]
            if missing:
                raise UsageError(
                    f"sites.{index}.fabric.{tier}.{missing[0]}: neither the files nor the scenario have it"
                )
        if site.nodes > 1 and all(c.value.field.startswith("fabric.intra_node") for c in choices):
            unknown.append(f"what joins the nodes of {name}: stays as it was")


def _check_law(site: Site, value: Value) -> None:
    law = "ring" if site_cluster(site) is None else "nccl"
    if value.law != law:
        runs = {"nccl": "NCCL over NVLink", "ring": "plain rings"}
        raise UsageError(
            f"--site {site.name}: {short_name(site.accelerator.name)} runs {runs[law]} in geosim, "
            f"and the file was fitted to {runs[value.law]}: it is of another accelerator"
        )


def _stale(scenario: Scenario, choices: list[Choice]) -> list[str]:
    """A step time that belongs to another model."""
    fields = {choice.value.field for choice in choices}
    work = scenario.workload
    if "workload.model" in fields and "workload.step_time" not in fields and work.step_time_s is not None:
        return ["workload.step_time stays as it was, and was not measured with this model: set it, or null"]
    return []
