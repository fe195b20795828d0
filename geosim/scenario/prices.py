"""What compute and traffic cost. There are no defaults: prices differ by contract, and change."""

from typing import Annotated

from pydantic import Field, model_validator

from geosim.errors import UsageError
from geosim.spec import Spec

Price = Annotated[float, Field(ge=0, le=1e9)]


class SitePrices(Spec):
    """Prices of one site that differ from the others'; None: as everywhere."""

    site: str
    accelerator_hour: Price | None = None
    egress_per_terabyte: Price | None = None


class Prices(Spec):
    """Prices in one currency.

    Attributes:
        currency: a word printed beside every amount.
        accelerator_hour: for one accelerator and hour.
        egress_per_terabyte: for 10^12 bytes that leave a site over WAN links.
        sites: where a site has prices of its own.
    """

    currency: Annotated[str, Field(min_length=1, max_length=12)] = "USD"
    accelerator_hour: Price
    egress_per_terabyte: Price
    sites: tuple[SitePrices, ...] = ()

    @model_validator(mode="after")
    def _once(self) -> "Prices":
        names = [price.site for price in self.sites]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"sites: prices of site '{twice}' are there twice")
        return self

    def hour(self, site: str) -> float:
        """Price of an accelerator and hour at a site."""
        own = next((p.accelerator_hour for p in self.sites if p.site == site), None)
        return self.accelerator_hour if own is None else own

    def terabyte(self, site: str) -> float:
        """Price of 10^12 bytes that leave a site."""
        own = next((p.egress_per_terabyte for p in self.sites if p.site == site), None)
        return self.egress_per_terabyte if own is None else own
