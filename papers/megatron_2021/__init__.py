"""Megatron-LM, April 2021: FLOP/s from 1.7 to 1008 billion parameters on Selene."""
