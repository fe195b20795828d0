"""What a run is told, the same for all ranks: typed, complete, and plain data between processes."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from geosim.errors import UsageError
from geosim.policy import SyncPolicy, policy_from_dict
from geosim.policy.routes import make_routes
from geosim.scenario import Scenario, site_batches, site_tokens
from geosim.spec import from_dict
from runtime.backends import check_codec
from runtime.differences import DOCUMENT
from runtime.supported import check_steps, check_supported


@dataclass(frozen=True)
class Job:
    """One training run.

    Attributes:
        scenario, policy: who trains, and how they exchange.
        steps: a multiple of the policy's interval.
        pace_s: declared step time; None: as fast as the machine computes.
        site_pace_s: of single sites, by name, in place of `pace_s`.
        data: a text file or folder; None: the Python standard library.
        seed: of the parameters and the order of the data.
        lr: peak learning rate; it warms up over a tenth of the steps, then falls along a cosine to a tenth.
        validations: measurements of the validation loss before the last step, spread evenly.
        save, save_every: a folder, and after how many steps all ranks write a checkpoint there; 0: only at
            the end, where they always do.
        resume: a folder of checkpoints to go on from.
        timeout_s: how long a site, or an exchange, is waited for.
        codec: which implementation writes the payloads; all write the same.
        trace: whether the ranks take down what happens when.
    """

    scenario: Scenario
    policy: SyncPolicy
    steps: int
    pace_s: float | None = None
    data: str | None = None
    seed: int = 0
    lr: float = 2e-3
    validations: int = 0
    save: str | None = None
    save_every: int = 0
    resume: str | None = None
    timeout_s: float = 60.0
    codec: str = "auto"
    trace: bool = False
    site_pace_s: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Refuse what cannot run, before anything starts.

        Raises:
            UsageError: one line that names the field, the value and the remedy.
        """
        check_codec(self.codec)
        check_supported(self.policy)
        check_steps(self.steps, self.policy.interval)
        make_routes(self.policy.topology, self.sites)
        least = min(self.all_ranks)
        if self.policy.shards is not None and self.policy.shards > least:
            raise UsageError(f"shards: {self.policy.shards} is more than the {least} ranks of a site")
        for site in self.site_pace_s:
            if site not in self.sites:
                raise UsageError(f"--pace {site}: no such site: use one of {', '.join(self.sites)}")
        paces = [("--pace", pace) for pace in (self.pace_s, *self.site_pace_s.values())]
        for name, value in (*paces, ("--timeout", self.timeout_s), ("--lr", self.lr)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} {value:g}: must be finite and above 0")
        for name, path in (("--data", self.data), ("--save", self.save), ("--resume", self.resume)):
            if path is not None and not path.strip():
                raise UsageError(f"{name} '{path}': names nothing: give a path, or leave the option out")
        for name, count in (("--save-every", self.save_every), ("--validations", self.validations)):
            if count < 0:
                raise UsageError(f"{name} {count}: must be 0 or more")
        if self.save_every and self.save is None:
            raise UsageError(f"--save-every {self.save_every}: names no folder: add --save FOLDER")
        check_model(self.scenario)

    def facts(self) -> dict[str, str | int]:
        """What must be the same at all sites; each may pace its own computation."""
        workload = json.dumps([self.scenario.workload.to_dict(), self.batches], sort_keys=True)
        return {
            "policy": self.policy.fingerprint(),
            f"policy{DOCUMENT}": json.dumps(self.policy.to_dict()),
            "workload": blake2b(workload.encode(), digest_size=8).hexdigest(),
            f"workload{DOCUMENT}": workload,
            "steps": self.steps,
            "lr": repr(self.lr),
            "seed": self.seed,
            "validations": self.validations,
            "resume": "yes" if self.resume else "no",
            "trace": "yes" if self.trace else "no",
        }

    @property
    def sites(self) -> tuple[str, ...]:
        """Names, in order."""
        return tuple(site.name for site in self.scenario.sites)

    @property
    def all_ranks(self) -> tuple[int, ...]:
        """Of each site, in order."""
        return tuple(site.ranks for site in self.scenario.sites)

    def ranks_of(self, site: str) -> int:
        """Of one site."""
        return self.all_ranks[self.sites.index(site)]

    @property
    def batches(self) -> tuple[int, ...]:
        """Sequences of a rank and step at each site."""
        return site_batches(self.scenario)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Of each site in a step."""
        return site_tokens(self.scenario)

    @property
    def tokens_per_step(self) -> int:
        """Of all sites together."""
        return sum(self.tokens)

    def pace_of(self, site: str) -> float | None:
        """Declared step time of a site."""
        return self.site_pace_s.get(site, self.pace_s)

    @property
    def is_paced(self) -> bool:
        """Whether any site is."""
        return self.pace_s is not None or bool(self.site_pace_s)

    @property
    def longest_pace_s(self) -> float | None:
        """Of the slowest site that declares one."""
        return max((pace for pace in (self.pace_s, *self.site_pace_s.values()) if pace), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for `from_dict`."""
        plain = {name: value for name, value in vars(self).items() if name not in ("scenario", "policy")}
        return {"scenario": self.scenario.to_dict(), "policy": self.policy.to_dict(), **plain}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Job:
        """What `to_dict` returned."""
        rest = {name: value for name, value in data.items() if name not in ("scenario", "policy")}
        return cls(
            from_dict(Scenario, data["scenario"], "scenario"), policy_from_dict(data["policy"]), **rest
        )


def check_model(scenario: Scenario) -> None:
    """Refuse a model that a byte-level GPT cannot stand for.

    Raises:
        UsageError: one line that names the field.
    """
    model, sequence = scenario.workload.model, scenario.workload.sequence
    wrong = [
        ("vocabulary", model.vocabulary, 256),
        ("ffn", model.ffn, 4 * model.d_model),
        ("gated", model.gated, False),
        ("tied", model.tied, True),
        ("biases", model.biases, False),
        ("kv_heads", model.kv_heads or model.heads, model.heads),
        ("head_dim", model.head_width, model.d_model // model.heads),
    ]
    for field, value, want in wrong:
        if value != want:
            raise UsageError(
                f"workload.model.{field}: {value}: `georun` trains a byte-level GPT and needs {want}: use a "
                f"byte-gpt model, or bring your own training loop and GeoOptimizer"
            )
    if not model.positions:
        raise UsageError(
            f"workload.model.positions: 0: `georun` trains a GPT with learned positions: give it "
            f"{sequence} or more"
        )
    if model.positions < sequence:
        raise UsageError(
            f"workload.sequence: {sequence} is more than the model's {model.positions} positions"
        )


def warmup_cosine(steps: int) -> Callable[[int], float]:
    """Factor of the peak learning rate by step: up for a tenth of the run, then a cosine to a tenth."""
    warmup = max(1, steps // 10)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        along = min(1.0, (step - warmup) / max(1, steps - warmup))
        return 0.1 + 0.45 * (1 + math.cos(math.pi * along))

    return factor
