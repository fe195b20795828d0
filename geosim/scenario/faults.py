"""What fails, how often, and what a run does about it. A rate that is left out is zero.

Rates are of Poisson processes: `mtbf` is the mean time between failures of one accelerator, site or link.
How long a fault lasts is exponential with the stated mean.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from geosim.scenario.ranges import RunTime
from geosim.spec import Seconds, Spec, within
from geosim.units import TIME

Between = Annotated[Seconds, AfterValidator(within("1 s", "1000000 h", TIME))]
Lasting = Annotated[Seconds, AfterValidator(within("10 ms", "1000000 h", TIME))]


class AcceleratorLoss(Spec):
    """A rank dies: the run restarts from its last checkpoint. `mtbf_s` is of one accelerator."""

    mtbf_s: Between


class SiteLoss(Spec):
    """A whole site goes away, comes back after `lasts_s`, and the run restarts. `mtbf_s` is of one site."""

    mtbf_s: Between
    lasts_s: Lasting = 3600.0


class LinkLoss(Spec):
    """A WAN link carries nothing for `lasts_s`, both ways. `mtbf_s` is of one link."""

    mtbf_s: Between
    lasts_s: Lasting = 60.0


class Straggler(Spec):
    """A slow accelerator: its site computes `slowdown` times as long. `mtbf_s` is of one accelerator."""

    mtbf_s: Between
    lasts_s: Lasting = 600.0
    slowdown: Annotated[float, Field(gt=1, le=1000)] = 1.5


class Checkpoint(Spec):
    """The state is saved every `interval_s`, rounded to whole steps, while all wait for `time_s`."""

    interval_s: Between = 1800.0
    time_s: RunTime = 0.0


class Timeout(Spec):
    """An exchange that stalls for `after_s` fails and is tried anew, `retries` times, all of it sent again.

    Waits between tries begin with `backoff_s` and double. When the last try has failed, the run restarts.
    """

    after_s: Between
    retries: Annotated[int, Field(ge=0, le=20)] = 3
    backoff_s: RunTime = 1.0


class Faults(Spec):
    """Failure rates and their consequences.

    Attributes:
        accelerator, site, link, straggler: what happens how often; None: never.
        restart_s: from a loss (for sites: from their return) until all compute again.
        checkpoint: how often the state is saved.
        timeout: of exchanges; None: they wait as long as it takes.
        on_site_loss: `wait` stops all sites until all are back, as the runtime does. `continue` is of the
            simulator alone: the sites that are left go on with sums over those present, and a lost site comes
            back at a window's start with their parameters. A lost accelerator then takes its site away until
            it has restarted.
    """

    accelerator: AcceleratorLoss | None = None
    site: SiteLoss | None = None
    link: LinkLoss | None = None
    straggler: Straggler | None = None
    restart_s: RunTime = 300.0
    checkpoint: Checkpoint = Checkpoint()
    timeout: Timeout | None = None
    on_site_loss: Literal["wait", "continue"] = "wait"
