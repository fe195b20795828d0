"""Field report A: hierarchical error-feedback SGD between two sites."""
