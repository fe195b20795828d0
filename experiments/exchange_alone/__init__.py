"""One exchange alone over the emulated WAN, with no training around it: measured, and held against the model."""
