"""Streaming DiLoCo (Douillard et al., arXiv 2501.18512): bandwidth needed for a compute utilization."""
