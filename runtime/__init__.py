"""Real training over several sites, as a policy says."""
