"""What training costs in money: accelerator hours and the traffic that leaves sites."""

from collections.abc import Mapping
from dataclasses import dataclass

from geosim.errors import UsageError
from geosim.scenario import Scenario

_TERABYTE = 1e12
_MILLION = 1e6


@dataclass(frozen=True)
class Money:
    """Cost of a million tokens, in `currency`, and the accelerator hours they take."""

    currency: str
    accelerator_hours_per_million_tokens: float
    compute_per_million_tokens: float
    egress_per_million_tokens: float

    @property
    def per_million_tokens(self) -> float:
        """Compute and egress."""
        return self.compute_per_million_tokens + self.egress_per_million_tokens


def money(
    scenario: Scenario, step_time_s: float, tokens_per_step: float, egress_bytes_per_step: Mapping[str, float]
) -> Money:
    """Cost of a million tokens.

    Args:
        scenario: with `prices`.
        step_time_s: of a step, all waiting included: idle accelerators are paid for too.
        tokens_per_step: of all sites together.
        egress_bytes_per_step: by site, bytes a step that leave it, headers included.

    Raises:
        UsageError: if the scenario states no prices.
    """
    prices = scenario.prices
    if prices is None:
        raise UsageError(
            "prices: this scenario states none: add prices with accelerator_hour and egress_per_terabyte"
        )
    steps = _MILLION / tokens_per_step
    hours = {site.name: site.ranks * steps * step_time_s / 3600 for site in scenario.sites}
    return Money(
        prices.currency,
        sum(hours.values()),
        sum(hours[name] * prices.hour(name) for name in hours),
        sum(
            steps * amount / _TERABYTE * prices.terabyte(name)
            for name, amount in egress_bytes_per_step.items()
        ),
    )
