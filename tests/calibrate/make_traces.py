"""Make the fixtures of torch.profiler: two gloo ranks that train a small model under DDP, each a trace.

    python -m tests.calibrate.make_traces

Each step sleeps `SLEEP_S` and multiplies matrices, so that gap and compute are known to be there.
"""

import gzip
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule

from tests.calibrate.trace_truth import SLEEP_S, STEPS

FIXTURES = Path(__file__).parent / "fixtures"


def main() -> None:
    """Train for eight steps and keep the last six."""
    with TemporaryDirectory() as folder:
        mp.spawn(_rank, args=(folder,), nprocs=2)


def _rank(rank: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256) for _ in range(4)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    plan = schedule(wait=1, warmup=1, active=STEPS)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
        for _ in range(2 + STEPS):
            time.sleep(SLEEP_S)
            optimizer.zero_grad()
            model(torch.randn(2048, 256)).square().mean().backward()
            optimizer.step()
            profiler.step()
    raw = Path(folder) / f"rank{rank}.json"
    profiler.export_chrome_trace(str(raw))
    packed = FIXTURES / f"trace-gloo-rank{rank}.json.gz"
    packed.write_bytes(gzip.compress(raw.read_bytes(), 9, mtime=0))
    print(packed.name, packed.stat().st_size, "bytes", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
