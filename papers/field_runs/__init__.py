"""Training over real wide-area links: INTELLECT-1, OpenDiLoCo, Covenant, Templar, Decoupled DiLoCo."""
