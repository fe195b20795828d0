"""Rounds in flight as plain data: completed and verified, their results kept until they are due."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from runtime.exchange import Flight


def save_flights(flights: Iterable[Flight]) -> list[dict[str, Any]]:
    """Wait for every flight and keep its result.

    What a site sent is kept only where a skipped round will give it back.

    Raises:
        RunError: if an exchange fails.
    """
    rows = []
    for flight in flights:
        total = flight.wait()
        returns = flight.skipped and flight.finite
        rows.append(
            {
                "fragment": flight.fragment,
                "round": flight.round,
                "total": total.clone(),
                "not_finite": list(flight.not_finite),
                "finite": flight.finite,
                "payload": flight.payload.clone() if returns else torch.empty(0, dtype=torch.uint8),
            }
        )
    return rows


def load_flights(rows: Iterable[dict[str, Any]]) -> dict[tuple[int, int], Flight]:
    """Flights that have landed, by (fragment, round)."""
    flights = {}
    for row in rows:
        flight = Flight(row["fragment"], row["round"], row["payload"], (), b"", 0, row["finite"])
        flight.finish(row["total"], tuple(row["not_finite"]))
        flight.received_s = flight.finished_s
        flights[flight.fragment, flight.round] = flight
    return flights
