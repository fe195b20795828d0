"""1-bit Adam (Tang et al., arXiv 2102.02888): throughput against the number of GPUs on slow Ethernet."""
