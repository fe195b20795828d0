"""Models to train when the user brings none."""

from runtime.models.gpt import GPT, PRESETS, GPTConfig, build, from_config

__all__ = ["GPT", "PRESETS", "GPTConfig", "build", "from_config"]
