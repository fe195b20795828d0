"""What we decide: SyncPolicy and its parts, the layout of what is exchanged, and the schedule."""

from geosim.policy.adapt import Adapt, Fixed, HideExchange, next_interval
from geosim.policy.codec import Codec, Feedback, NoResidual, wire_bytes
from geosim.policy.layout import Fragment, Layout, Piece, make_layout
from geosim.policy.overlap import Blocking, Delayed, Eager, Group, Overlap, Streaming
from geosim.policy.policy import SyncPolicy, policy_from_dict
from geosim.policy.presets import load_policy, preset_names
from geosim.policy.quantize import E3M0, Cast, Integer, Quantize, Sign
from geosim.policy.select import Dense, RandomK, Select, TopK
from geosim.policy.topology import Direct, FlatRing, Hub, Ring, Topology, Tree
from geosim.policy.update import Accumulate, Local, OuterMomentum, OuterSGD, Update

__all__ = [
    "E3M0",
    "Accumulate",
    "Adapt",
    "Blocking",
    "Cast",
    "Codec",
    "Delayed",
    "Dense",
    "Direct",
    "Eager",
    "Feedback",
    "Fixed",
    "FlatRing",
    "Fragment",
    "Group",
    "HideExchange",
    "Hub",
    "Integer",
    "Layout",
    "Local",
    "NoResidual",
    "OuterMomentum",
    "OuterSGD",
    "Overlap",
    "Piece",
    "Quantize",
    "RandomK",
    "Ring",
    "Select",
    "Sign",
    "Streaming",
    "SyncPolicy",
    "TopK",
    "Topology",
    "Tree",
    "Update",
    "load_policy",
    "make_layout",
    "next_interval",
    "policy_from_dict",
    "preset_names",
    "wire_bytes",
]
