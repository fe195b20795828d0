"""A scenario's WAN as the emulator's links."""

from __future__ import annotations

import math
from typing import Any

from geosim.errors import UsageError
from geosim.scenario import Scenario, WanLink
from runtime.emulate import EmulatedWan, LinkSpec

# The emulator draws delays uniformly and joins them by straight lines: their standard deviation is
# this part of the half width (1/sqrt(3) of a uniform draw, times sqrt(2/3) for the lines between draws).
_JITTER_DEVIATION = math.sqrt(2) / 3
_WINDOW_BYTES = 4 * 1024 * 1024  # as a link has it when nothing is said
# Of a send buffer's bytes the kernel counts about this part as data: the rest is its own bookkeeping.
_DATA_SHARE = 0.69
_MOST_BUFFER_BYTES = 2**31 - 1


def emulated_wan(scenario: Scenario, seed: int) -> EmulatedWan:
    """The emulated WAN of a scenario, not yet entered; bandwidths rest until `start_traces`.

    Raises:
        UsageError: for what one emulator cannot do at once, naming the field.
        RunError: where the machine cannot emulate; the line says what is missing.
    """
    links: dict[tuple[str, str], LinkSpec] = {}
    for i, link in enumerate(scenario.wan):
        if link.varies:
            raise UsageError(
                f"wan.{i}.varies: the emulator follows 'trace' alone: leave it out, or use --wan none"
            )
        a, b = link.between
        links[a, b] = _spec(link, a)
        links[b, a] = _spec(link, b)
    _check_ports(scenario)
    return EmulatedWan(
        [site.name for site in scenario.sites], links, seed=seed, mtu=int(_same(scenario, "mtu_bytes", 1500)),
        congestion_control=_same(scenario, "congestion_control", None), sysctls=_sysctls(scenario),
    )  # fmt: skip


def check_connected(scenario: Scenario) -> None:
    """Refuse sites that have no link: every site sends to every other.

    Raises:
        UsageError: naming the pair.
    """
    names = [site.name for site in scenario.sites]
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if scenario.link(a, b) is None:
                raise UsageError(f"wan: no link between '{a}' and '{b}': add one, or use --wan none")


def _spec(link: WanLink, source: str) -> LinkSpec:
    return LinkSpec(
        rate_bytes_per_s=link.bandwidth(source),
        delay_s=link.rtt_s / 2,
        jitter_s=link.jitter_s / _JITTER_DEVIATION,
        loss=link.loss,
        queue_bytes=None if link.queue_bytes is None else int(link.queue_bytes),
    )


def start_traces(scenario: Scenario, network: EmulatedWan) -> None:
    """Set the clocks of all bandwidth traces to zero: they run from here on."""
    for link in scenario.wan:
        for a, b in (link.between, link.between[::-1]):
            if link.trace:
                ratio = link.bandwidth(a) / link.bandwidth_bytes_per_s
                points = tuple((point.at_s, ratio * point.bandwidth_bytes_per_s) for point in link.trace)
                network.set_link(a, b, trace=points)


def _same(scenario: Scenario, field: str, default: Any) -> Any:
    values = {getattr(link, field) for link in scenario.wan}
    if len(values) > 1:
        shown = ", ".join(map(str, sorted(values)))
        raise UsageError(
            f"wan: {field} differs between links ({shown}): the emulator has one for all of them"
        )
    return values.pop() if values else default


def _sysctls(scenario: Scenario) -> dict[str, str]:
    """Socket buffers in which `window_bytes` of data are in flight."""
    window = int(_same(scenario, "window_bytes", _WINDOW_BYTES))
    buffer = min(math.ceil(window / _DATA_SHARE), _MOST_BUFFER_BYTES)
    return {
        "net.ipv4.tcp_wmem": f"4096 {min(buffer, 16384)} {buffer}",
        "net.ipv4.tcp_rmem": f"4096 131072 {min(max(3 * window, 262144), _MOST_BUFFER_BYTES)}",
    }


def _check_ports(scenario: Scenario) -> None:
    """A site's own limit, or a trunk's, is not emulated: it must not bind."""
    for trunk in scenario.trunks:
        for pairs in (trunk.links, [pair[::-1] for pair in trunk.links]):
            limit = trunk.carries(*pairs[0])
            need = sum(link.bandwidth(a) for a, b in pairs if (link := scenario.link(a, b)) is not None)
            if limit is not None and limit < need:
                raise UsageError(
                    f"trunks: '{trunk.name}' is narrower than its links together: the emulator knows links "
                    "only: lower their bandwidth, or use --wan none"
                )
    for site in scenario.sites:
        out = sum(link.bandwidth(site.name) for link in scenario.wan if site.name in link.between)
        into = sum(
            link.bandwidth(next(end for end in link.between if end != site.name))
            for link in scenario.wan
            if site.name in link.between
        )
        for field, limit, need in (
            ("uplink", site.uplink_bytes_per_s, out),
            ("downlink", site.downlink_bytes_per_s, into),
        ):
            if limit is not None and limit < need:
                raise UsageError(
                    f"sites: {field} of '{site.name}' is below what its links carry together: the "
                    f"emulator knows links only: lower their bandwidth, or use --wan none"
                )
