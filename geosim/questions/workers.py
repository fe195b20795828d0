"""The points of a sweep on one process or on many, their rows in grid order whatever comes first."""

import os
from collections.abc import Callable, Generator
from typing import Any

from geosim.errors import UsageError
from geosim.questions.sweep import Row, Sweep

BACKENDS = ("loky", "dask", "ray")
_RAY_BATCH = 8  # points a process


def run_points(sweep: Sweep, start: int, jobs: int, backend: str) -> Generator[Row, None, None]:
    """Rows of the points from `start` on. One job of loky runs in this process and needs no joblib.

    Args:
        sweep: what to run.
        start: how many points are done already.
        jobs: processes at once.
        backend: of joblib: "loky" (processes here), "dask" or "ray" (the cluster that DASK_SCHEDULER_ADDRESS
            or RAY_ADDRESS names, or processes here).

    Raises:
        UsageError: if what the backend needs is not installed.
    """
    if jobs == 1 and backend == "loky":
        return (sweep.row(i, sweep.around.simulate(sweep.values(i))) for i in range(start, len(sweep)))
    close = _prepare(backend, jobs)
    return _parallel(sweep, start, jobs, backend, close)


def _parallel(
    sweep: Sweep, start: int, jobs: int, backend: str, close: Callable[[], None]
) -> Generator[Row, None, None]:
    import joblib

    simulate, points = joblib.delayed(sweep.around.simulate), range(start, len(sweep))
    try:
        # A cluster's own size counts, and what is started here has `jobs` processes.
        with joblib.parallel_config(backend=backend, n_jobs=jobs if backend == "loky" else -1):
            # Where joblib has no generator over a backend, rows come a few at a time.
            in_batches = backend == "ray"
            batch = _RAY_BATCH * joblib.effective_n_jobs(-1) if in_batches else max(1, len(points))
            for at in range(0, len(points), batch):
                some = points[at : at + batch]
                parallel = joblib.Parallel(return_as="list" if in_batches else "generator")
                found = parallel(simulate(sweep.values(i)) for i in some)
                for i, metrics in zip(some, found, strict=True):
                    yield sweep.row(i, metrics)
    finally:
        close()


def _prepare(backend: str, jobs: int) -> Callable[[], None]:
    """Get a backend ready; returns what ends its processes."""
    try:
        import joblib  # noqa: F401
    except ImportError:
        raise UsageError(
            "--jobs: several processes need joblib: pip install -e '.[sweep]', or use --jobs 1"
        ) from None
    if backend == "dask":
        return _dask(jobs)
    if backend == "ray":
        return _ray(jobs)
    return _stop_loky


def _stop_loky() -> None:
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True, kill_workers=True)


def _dask(jobs: int) -> Callable[[], None]:
    try:
        import dask
        from distributed import Client
    except ImportError:
        raise _missing("dask", "dask[distributed]") from None
    if dask.config.get("scheduler-address", None):  # DASK_SCHEDULER_ADDRESS
        client: Any = Client()
    else:
        client = Client(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
    return lambda: client.close()


def _ray(jobs: int) -> Callable[[], None]:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise _missing("ray", "ray") from None
    register_ray()
    if os.environ.get("RAY_ADDRESS"):
        ray.init(log_to_driver=False)
    else:
        ray.init(num_cpus=jobs, log_to_driver=False, include_dashboard=False)
    return lambda: ray.shutdown()


def _missing(backend: str, package: str) -> UsageError:
    return UsageError(f"--backend {backend}: is not installed: pip install '{package}', or use loky")
