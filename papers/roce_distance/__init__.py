"""RoCEv2 between data centres, as a router vendor measured it."""
