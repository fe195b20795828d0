"""The points of the grid: what goes over which path, in which state of the connections."""

import random
from dataclasses import dataclass, replace

KIB, MIB = 1024, 1024 * 1024
_BUDGET_S = 9.0  # a fresh point's repeats take about this long
_SETS, _IDLE_REPEATS = 5, 3
_SETTLED_AFTER, _SETTLED_REPEATS = 40, 5  # exchanges
_LOSSY_REPEATS = 40


@dataclass(frozen=True)
class Point:
    """One exchange between two sites over one link.

    Attributes:
        mbit_per_s, rtt_ms, loss: of the link, both ways; its queue holds one bandwidth-delay product, at
            least 256 KiB.
        size_bytes: payload each way.
        flows: TCP connections that share it evenly.
        algorithm: congestion control.
        fresh: every exchange on new connections, else all on the same, those of `before` left out.
        both: whether it goes both ways at once, as an exchange does.
        gap_s: silence before each exchange.
        carrier: "sockets", or "gloo": the runtime's own channel.
        before: exchanges that connections have carried, of points that are not fresh.
    """

    mbit_per_s: float
    rtt_ms: float
    size_bytes: int
    flows: int = 1
    algorithm: str = "cubic"
    fresh: bool = False
    both: bool = True
    loss: float = 0.0
    gap_s: float = 1.0
    carrier: str = "sockets"
    before: int = 1

    @property
    def settled(self) -> bool:
        """Whether connections have carried so much that how their first slow start ended no longer counts."""
        return not self.fresh and self.before >= _SETTLED_AFTER

    @property
    def name(self) -> str:
        """What `--point` takes."""
        unit, scale = ("MiB", MIB) if self.size_bytes >= MIB else ("KiB", KIB)
        parts = [
            self.algorithm, f"{self.mbit_per_s:g}M", f"{self.rtt_ms:g}ms",
            f"{self.size_bytes // scale}{unit}", f"x{self.flows}",
            "fresh" if self.fresh else "settled" if self.settled else "idle",
        ]  # fmt: skip
        if not self.both:
            parts.append("oneway")
        if self.loss:
            parts.append(f"loss{100 * self.loss:g}")
        if not self.fresh and self.gap_s != 1:
            parts.append(f"gap{1e3 * self.gap_s:g}")
        if self.carrier != "sockets":
            parts.append(self.carrier)
        return "-".join(parts)

    @property
    def rate_bytes_per_s(self) -> float:
        """Of the link, headers included."""
        return self.mbit_per_s * 125e3

    @property
    def rtt_s(self) -> float:
        """Round trip when idle."""
        return self.rtt_ms / 1e3

    @property
    def sets(self) -> int:
        """Sets of connections that are measured: young ones keep what HyStart found at first."""
        return 1 if self.fresh or self.settled else _SETS

    @property
    def repeats(self) -> int:
        """How many exchanges of each set are measured."""
        if self.loss:
            return _LOSSY_REPEATS
        if not self.fresh:
            return _SETTLED_REPEATS if self.settled else _IDLE_REPEATS
        about = self.size_bytes / self.rate_bytes_per_s / 0.6 + 4 * self.rtt_s + self.gap_s
        return max(3, min(9, int(_BUDGET_S / about)))


_PATHS = (
    (50, 5), (50, 40), (50, 200), (200, 5), (200, 20), (200, 100), (1000, 5), (1000, 40), (1000, 200),
)  # fmt: skip


def _plain() -> list[Point]:
    points = []
    for mbit, rtt in _PATHS:
        points += [
            Point(mbit, rtt, 64 * KIB, fresh=True, gap_s=0.2),
            Point(mbit, rtt, 1 * MIB, fresh=True, gap_s=0.2),
            Point(mbit, rtt, 4 * MIB),
            Point(mbit, rtt, 16 * MIB, 4),
            Point(mbit, rtt, 1 * MIB, algorithm="bbr"),
            Point(mbit, rtt, 16 * MIB, 2, "bbr", fresh=True, gap_s=0.2),
        ]
    points += [Point(1000, rtt, 64 * MIB) for rtt in (5, 40, 200)]
    points += [Point(mbit, rtt, 64 * MIB, 8, fresh=True) for mbit, rtt in ((200, 20), (1000, 5), (1000, 40))]
    points += [Point(mbit, rtt, 256 * KIB, 8) for mbit, rtt in ((50, 40), (200, 100), (1000, 40))]
    points += [Point(mbit, rtt, 64 * MIB, 8, "bbr") for mbit, rtt in ((200, 20), (1000, 40))]
    points += [Point(mbit, rtt, 4 * MIB, algorithm="reno") for mbit, rtt in ((50, 40), (200, 20), (200, 100))]
    points += [Point(200, 20, 16 * MIB, algorithm=name, both=False) for name in ("cubic", "reno", "bbr")] + [
        Point(1000, 40, 64 * MIB, both=False),
        Point(50, 40, 4 * MIB, both=False),
    ]
    points += [Point(mbit, rtt, 4 * MIB, gap_s=0.1) for mbit, rtt in ((50, 40), (200, 20))]
    points += [Point(20, 40, 4 * MIB, 2, gap_s=0.05), Point(100, 40, 8 * MIB, 2, gap_s=0.2)]
    points += [Point(100, 40, 8 * MIB, 2)]
    return points


def _lossy() -> list[Point]:
    return [
        Point(200, 20, 4 * MIB, fresh=True, gap_s=0.1, loss=1e-4),
        Point(100, 40, 1 * MIB, fresh=True, gap_s=0.1, loss=1e-3),
        Point(100, 40, 4 * MIB, 4, fresh=True, gap_s=0.1, loss=1e-3),
        Point(100, 20, 1 * MIB, 4, fresh=True, gap_s=0.1, loss=1e-2),
        Point(50, 20, 256 * KIB, fresh=True, gap_s=0.1, loss=1e-2),
        Point(100, 40, 1 * MIB, algorithm="reno", fresh=True, gap_s=0.1, loss=1e-3),
        Point(100, 20, 1 * MIB, algorithm="bbr", fresh=True, gap_s=0.1, loss=1e-3),
        Point(100, 20, 1 * MIB, algorithm="bbr", fresh=True, gap_s=0.1, loss=1e-2),
    ]


def _over_gloo() -> list[Point]:
    return [
        Point(50, 40, 4 * MIB, carrier="gloo"),
        Point(200, 20, 16 * MIB, 4, carrier="gloo"),
        Point(200, 100, 1 * MIB, algorithm="bbr", carrier="gloo"),
        Point(1000, 40, 256 * KIB, 8, carrier="gloo"),
    ] + [
        Point(100, 40, size, carrier="gloo", before=_SETTLED_AFTER)
        for size in (32 * KIB, 128 * KIB, 1 * MIB, 4 * MIB)
    ]


def _held_out() -> list[Point]:
    """Points that nothing was chosen by: drawn at random from values that the others lack."""
    draw = random.Random(8312)
    points = []
    for i in range(12):
        fresh, loss = i % 4 != 3, draw.choice((2e-4, 5e-4, 2e-3, 5e-3)) if i % 3 == 2 else 0.0
        points.append(
            Point(
                draw.choice((30, 75, 150, 400)), draw.choice((10, 30, 60, 150)),
                draw.choice((256, 512, 2048, 8192)) * KIB, draw.choice((1, 2, 3, 6)),
                draw.choice(("cubic", "cubic", "reno", "bbr")), fresh or loss > 0, loss=loss,
                gap_s=0.1 if loss else 0.2 if fresh else 1.0,
            )
        )  # fmt: skip
    return points


def _settled(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Idle points on connections that have carried exchanges for a while; BBR keeps no threshold."""
    return tuple(replace(p, before=_SETTLED_AFTER) for p in points if not p.fresh and p.algorithm != "bbr")


PLAIN = tuple(_plain())
SETTLED = _settled(PLAIN)
LOSSY = tuple(_lossy())
GLOO = tuple(_over_gloo())
_DRAWN = tuple(_held_out())
HELD_OUT = _DRAWN + _settled(_DRAWN)
GRID = PLAIN + SETTLED + LOSSY + GLOO + HELD_OUT
