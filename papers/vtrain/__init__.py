"""vTrain: measured iteration times of Megatron-LM on A100s."""
