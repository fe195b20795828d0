"""What can be turned on a WAN link: bandwidth, round trip, loss; of one link or of all together."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from geosim import units
from geosim.errors import UsageError
from geosim.scenario import Scenario, WanLink

Kind = Literal["bandwidth", "rtt", "loss"]
KINDS: tuple[Kind, ...] = ("bandwidth", "rtt", "loss")
_FIELD = {"bandwidth": "bandwidth_bytes_per_s", "rtt": "rtt_s", "loss": "loss"}
_DIMENSION = {"bandwidth": units.BANDWIDTH, "rtt": units.TIME, "loss": None}


@dataclass(frozen=True)
class Knob:
    """One property of a link, or of all links.

    Of several links it is turned in proportion, and its value is that of the link that it is worst for: the
    narrowest, the longest, the most lossy. Where that value is 0, all links get the same.

    Attributes:
        kind: of property.
        link: number in `scenario.wan`; None: all.
    """

    kind: Kind
    link: int | None = None

    @property
    def path(self) -> str:
        """As `--vary` takes it; `wan.*.rtt` stands for all links."""
        return f"wan.{'*' if self.link is None else self.link}.{self.kind}"

    @property
    def dimension(self) -> units.Dimension | None:
        """Of its values; None for a loss."""
        return _DIMENSION[self.kind]

    def value(self, scenario: Scenario) -> float:
        """What it is set to."""
        held = [float(getattr(link, _FIELD[self.kind])) for link in self._links(scenario)]
        return min(held) if self.kind == "bandwidth" else max(held)

    def turned(self, scenario: Scenario, value: Any) -> Scenario:
        """The scenario with another value, and all else as it is.

        A link's way back and its trace keep their proportion to its bandwidth. A `value` may also be an
        array scalar that derivatives are taken of; nothing is checked then.
        """
        now = self.value(scenario)
        mine = self._links(scenario)
        wan = tuple(self._turn(link, value, now) if link in mine else link for link in scenario.wan)
        return scenario.model_copy(update={"wan": wan})

    def settings(self, scenario: Scenario) -> list[str]:
        """What `--set` takes to get the values of a scenario."""
        out = []
        for i, link in enumerate(scenario.wan):
            if self.link not in (None, i):
                continue
            fields: dict[str, float | None] = {self.kind: getattr(link, _FIELD[self.kind])}
            if self.kind == "bandwidth":
                fields["back_bandwidth"] = link.back_bandwidth_bytes_per_s
            for name, value in fields.items():
                if value is not None:
                    text = units.format_exact(value, self.dimension) if self.dimension else repr(value)
                    out.append(f"wan.{i}.{name}={text}")
        return out

    def _links(self, scenario: Scenario) -> tuple[WanLink, ...]:
        return scenario.wan if self.link is None else (scenario.wan[self.link],)

    def _turn(self, link: WanLink, value: Any, now: float) -> WanLink:
        held = getattr(link, _FIELD[self.kind])
        factor = value / now if now else 1.0
        update: dict[str, Any] = {_FIELD[self.kind]: value if now == 0 or held == now else held * factor}
        if self.kind == "bandwidth":
            back = link.back_bandwidth_bytes_per_s
            update["back_bandwidth_bytes_per_s"] = None if back is None else back * factor
            update["trace"] = tuple(
                p.model_copy(update={"bandwidth_bytes_per_s": p.bandwidth_bytes_per_s * factor})
                for p in link.trace
            )
            update["varies"] = tuple(v.scaled(factor) for v in link.varies)
        return link.model_copy(update=update)


def knobs_for(scenario: Scenario, paths: Iterable[str]) -> list[Knob]:
    """The knobs that paths name; without any, all kinds of all links, and of each where there are several.

    Raises:
        UsageError: a scenario without a WAN, or a path that is none of a link's.
    """
    if not scenario.wan:
        raise UsageError(f"scenario {scenario.name}: no WAN link joins its sites: there is nothing to vary")
    links: list[int | None] = [None]
    if len(scenario.wan) > 1:
        links += range(len(scenario.wan))
    named = [_knob(scenario, path) for path in paths]
    return named or [Knob(kind, link) for link in links for kind in KINDS]


def _knob(scenario: Scenario, path: str) -> Knob:
    parts = path.split(".")
    kind = next((kind for kind in KINDS if kind == parts[-1]), None)
    if len(parts) == 3 and parts[0] == "wan" and kind is not None:
        if parts[1] == "*":
            return Knob(kind)
        if parts[1].isdecimal() and int(parts[1]) < len(scenario.wan):
            return Knob(kind, int(parts[1]))
    last = len(scenario.wan) - 1
    raise UsageError(
        f"--vary {path}: use wan.N.bandwidth, wan.N.rtt or wan.N.loss with N from 0 to {last}, or * for all"
    )
