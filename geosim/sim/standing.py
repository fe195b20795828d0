"""The link that stands for all in the closed form, and what of a batch's row follows from it."""

from typing import Any

from geosim.cost import Problem
from geosim.cost.problem import LinkPlan


def slowest_link(problem: Problem) -> LinkPlan:
    """The link that stands for all: the one that takes longest for all of a policy's fragments."""
    size = sum(f.payload_bytes for f in problem.fragments)
    return max(
        problem.links, key=lambda k: k.path.rtt_s + size * k.wire_per_payload / shared_rate(problem, k)
    )


def link_columns(problem: Problem, link: LinkPlan) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Columns of one row that follow from the link that stands for all: scalars, and lists over fragments."""
    path = link.path
    scalars = {
        "rate": shared_rate(problem, link),
        "rtt_s": path.rtt_s,
        "rto_s": path.rto_s,
        "restarts": path.restarts,
        "paced": path.paced,
    }
    paths = [(link.path_of(f), f.flows) for f in problem.fragments]
    lists = {
        "size_bytes": [f.payload_bytes * link.wire_per_payload for f in problem.fragments],
        "slice_bytes": [f.slice_share * f.payload_bytes * link.wire_per_payload for f in problem.fragments],
        "window_limit": [path.window_limit(flows) for path, flows in paths],
        "window_first": [path.initial_window(flows) for path, flows in paths],
        "stream": [path.share_rate(flows) for path, flows in paths],
    }
    return scalars, lists


def shared_rate(problem: Problem, link: LinkPlan) -> float:
    """What one of a site's links gets when the site's own limits, and trunks, are shared evenly."""
    out = sum(1 for other in problem.links if other.source == link.source)
    back = sum(1 for other in problem.links if other.target == link.target)
    site = problem.sites[link.source]
    other = problem.sites[link.target]
    trunks = [
        problem.trunks[trunk] / sum(trunk in each.trunks for each in problem.links) for trunk in link.trunks
    ]
    return min(
        link.path.rate_bytes_per_s,
        site.uplink_bytes_per_s / out,
        other.downlink_bytes_per_s / back,
        *trunks,
    )
