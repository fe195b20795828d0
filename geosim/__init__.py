"""geosim: simulate, tune and run the training of large models across data centres."""
