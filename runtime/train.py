"""One rank's training run: a byte-level GPT on real text, under flat DDP or across sites."""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from geosim.errors import UsageError
from runtime import checkpoint, resume
from runtime.codec import wire
from runtime.data import Corpus, load
from runtime.job import Job, warmup_cosine
from runtime.measure import warm_steps
from runtime.method import FlatDDP, Hierarchical, Method, join_flat
from runtime.models import GPTConfig, from_config
from runtime.pace import Pacer
from runtime.sites import Sites
from runtime.trace import Recorder, noted

Emit = Callable[[dict[str, Any]], None]

_VALIDATION_BATCHES, _VALIDATION_SEQUENCES = 16, 8


class Run:
    """A job as one rank carries it out; `train` returns everything that it measured."""

    def __init__(self, job: Job, sites: Sites, *, device: torch.device, backend: str) -> None:
        """Join the others and build what trains.

        Args:
            job: what to do.
            sites: this process's place, connected; for a policy across sites the default group is the site's.
            device: where to compute.
            backend: of the default group, which a flat policy makes here.

        Raises:
            RunError: if the sites disagree, or one does not come.
        """
        self.job = job
        self.sites = sites
        self.device = device
        self.batch = job.batches[sites.index]
        of_sites = [r * b for r, b in zip(sites.ranks_of, job.batches, strict=True)]
        self.first_sample = sum(of_sites[: sites.index]) + sites.rank * self.batch
        self.samples = sum(of_sites)  # of all ranks in a step
        self.step = 0
        self.notes: list[str] = []
        sites.agree({"wire": wire.VERSION, **job.facts()}, shards=sites.least_ranks)
        self.corpus: Corpus = load(job.data)
        shape = job.scenario.workload.model
        config = GPTConfig(shape.layers, shape.d_model, shape.heads, shape.positions)
        self.model = from_config(config, job.seed).to(device)
        inner = AdamW(self.model.named_parameters(), lr=job.lr, betas=(0.9, 0.95), weight_decay=0.1)
        policy = job.policy
        dtype = str(getattr(policy.codec.quantize, "kind", "fp32")) if policy.is_flat else "fp32"
        self.pacer = Pacer(job.pace_of(sites.name), sum(p.numel() for p in self.model.parameters()), dtype)
        self.trace = Recorder(sites.name, sites.rank, sites.names) if job.trace else None
        self.weight = 1.0
        self.method: Method
        if policy.is_flat:
            self._agree_flat()
            join_flat(sites, backend, job.timeout_s)
            self.method = FlatDDP(self.model, inner, policy, sites, self.pacer, self.trace)
            # DDP takes a plain mean over all ranks, and what counts is the mean over all samples.
            self.weight = self.batch * sites.world / self.samples
        else:
            self.method = Hierarchical(
                self.model, inner, policy, sites, self.pacer,
                tokens=lambda step: job.tokens, data=self.corpus.fingerprint, timeout_s=job.timeout_s,
                codec=job.codec, trace=self.trace,
            )  # fmt: skip
        self.scheduler = LambdaLR(self.method.optimizer, warmup_cosine(job.steps))
        if job.resume is not None:
            self._resume(Path(job.resume))

    def train(self, emit: Emit) -> dict[str, Any]:
        """All steps, then what is in flight, then validation; `emit` is told of progress.

        Raises:
            RunError: whatever goes wrong in an exchange.
        """
        first, steps, interval = self.step, self.job.steps, self.job.policy.interval
        aligned = -(-first // interval) * interval
        warm = aligned + warm_steps(steps - aligned, interval)
        checks = self._check_points(first)
        saved: set[int] = set()
        curve: list[tuple[int, float]] = []
        records: list[dict[str, float]] = []
        flights: list[dict[str, float]] = []
        self.method.ready()
        for line in self.notes:
            emit({"event": "note", "line": line})
        emit({"event": "traffic", "edge": "start"})
        while self.step < steps:
            records.append(self._one_step())
            flights += self.method.take_flights(self.step)
            if self.trace is not None and self.step % interval == 0:
                self.trace.window(interval, warm_up=self.step <= warm)
            emit({"event": "step", "step": self.step, "loss": records[-1]["loss"]})
            if self.job.save_every and self.step % self.job.save_every == 0:
                saved.add(self._save())
            if self.step in checks:
                curve.append((self.step, self.validate()))
        if self.job.save is not None and steps not in saved:
            saved.add(self._save())
        self.method.finish()
        flights += self.method.take_flights(self.step)
        emit({"event": "traffic", "edge": "end"})
        curve.append((steps, self.validate()))
        figures = {
            "site": self.sites.name, "rank": self.sites.rank, "first_step": first, "warm_step": warm,
            "records": records, "flights": flights, "validation": curve,
            "pauses": sorted(checks | saved),
            "params_hash": self._params_hash(), "parameters": sum(p.numel() for p in self.model.parameters()),
            "rounds": steps // interval - first // interval,
            **self.method.figures(), **({} if self.trace is None else {"trace": self.trace.pack()}),
        }  # fmt: skip
        if self.job.save is not None:  # all have saved the last one by now
            checkpoint.tidy(Path(self.job.save), self.sites, steps)
        self.method.close()
        return figures

    @torch.no_grad()
    def validate(self) -> float:
        """Loss of the parameters that all share now, on fixed batches dealt over the default group."""
        with noted(self.trace, "validation"):
            return self._validation_loss()

    def _validation_loss(self) -> float:
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        batches = self.corpus.validation_batches(
            _VALIDATION_BATCHES,
            batch_size=_VALIDATION_SEQUENCES,
            sequence=self.job.scenario.workload.sequence,
        )
        total = torch.zeros(1, dtype=torch.float64)
        for i, batch in enumerate(batches):
            if i % world == rank:
                total += self._loss(self.model, *batch).double().cpu()
        total = total.to(self.device)
        if world > 1:
            dist.all_reduce(total)
        return float(total.item()) / _VALIDATION_BATCHES

    def _one_step(self) -> dict[str, float]:
        workload, method = self.job.scenario.workload, self.method
        begun = time.perf_counter()
        self.pacer.begin()
        batch = self.corpus.samples(
            self.step * self.samples + self.first_sample,
            self.batch,
            sequence=workload.sequence,
            seed=self.job.seed,
        )
        method.optimizer.zero_grad()
        loss = self._loss(method.wrapped, *batch)
        (loss if self.weight == 1.0 else loss * self.weight).backward()
        method.clock.add(method.collective, self.pacer.end())
        method.clock.add("compute", self.pacer.computation_s)
        late = float(self.pacer.late)
        if self.trace is not None:
            done = self.pacer.computed_s
            begin = done - self.pacer.computation_s
            self.trace.step(begin, done, time.perf_counter(), method.collective)
        method.step()
        self.scheduler.step()
        self.step += 1
        spent = time.perf_counter() - begun
        return {"seconds": spent, "loss": float(loss.item()), "late": late, **method.clock.take()}

    def _loss(self, model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
        logits = model(tokens.to(self.device)).float()
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.to(self.device).flatten())

    def _check_points(self, first: int) -> set[int]:
        """Window ends after which the validation loss is measured, the last step's excluded."""
        interval = self.job.policy.interval
        windows = (self.job.steps - first) // interval
        parts = self.job.validations + 1
        ends = {first + windows * i // parts * interval for i in range(1, parts)}
        return {step for step in ends if first < step < self.job.steps and step % interval == 0}

    def _resume(self, folder: Path) -> None:
        """Stand where a checkpoint was saved, with this job's own learning rates from there on."""
        job, saved = self.job, {}

        def accept(run: Any) -> None:
            resume.check_same(run, job)
            saved.update(run)

        self.step = checkpoint.load(
            folder, self.sites, model=self.model, optimizer=self.method.optimizer, scheduler=self.scheduler,
            accept=accept, note=self.notes.append,
        )  # fmt: skip
        if job.policy.is_flat:
            self._agree_flat()  # GeoOptimizer does it by itself
        if self.step >= job.steps:
            raise UsageError(
                f"--steps {job.steps}: the checkpoint stands at step {self.step}: give more steps"
            )
        self.notes += resume.changes(saved, job, self.corpus.fingerprint, self.step)
        rate = job.lr * warmup_cosine(job.steps)(self.step)
        self.scheduler.base_lrs = [job.lr for _ in self.scheduler.base_lrs]
        self.scheduler._last_lr = [rate for _ in self.scheduler.base_lrs]
        for group in self.method.optimizer.param_groups:
            group["initial_lr"], group["lr"] = job.lr, rate

    def _save(self) -> int:
        assert self.job.save is not None
        with noted(self.trace, "checkpoint"):
            checkpoint.save(
                Path(self.job.save), self.sites, model=self.model, optimizer=self.method.optimizer,
                scheduler=self.scheduler, step=self.step,
                run=resume.facts_of(self.job, self.corpus.fingerprint),
            )  # fmt: skip
        return self.step

    def _params_hash(self) -> str:
        digest = blake2b(digest_size=8)
        for param in self.model.parameters():
            digest.update(param.detach().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def _agree_flat(self) -> None:
        facts: dict[str, str | int] = {
            "data": self.corpus.fingerprint,
            "step": self.step,
            "parameters": self._params_hash(),
        }
        self.sites.agree(facts, shards=self.sites.least_ranks)
