"""Scaling laws for DiLoCo (arXiv 2503.09799), appendix A: the idealised wall-clock model."""
