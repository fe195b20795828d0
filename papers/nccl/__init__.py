"""NCCL: its tuner's constants, published bus bandwidths, an all-reduce size sweep."""
