"""What a window's steps do, what leaves at its end, and what a result changes: one rule a file."""

from runtime.update.accumulate import AccumulateRule
from runtime.update.local import LocalRule
from runtime.update.rule import Rule, copy_into

__all__ = ["AccumulateRule", "LocalRule", "Rule", "copy_into", "rule_for"]


def rule_for(kind: str) -> type[Rule]:
    """The rule of an update's kind."""
    return {"accumulate": AccumulateRule, "local": LocalRule}[kind]
