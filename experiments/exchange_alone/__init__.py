"""One exchange alone over the emulated WAN, no training around it: measured, and held against the model."""
