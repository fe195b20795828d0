"""`georun`: real training, on real machines or on an emulated WAN. Heavy imports wait inside the commands."""

from __future__ import annotations

import json
import math
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from geosim import units
from geosim.console import make_folder, parse_option, run_quietly
from geosim.errors import UsageError
from geosim.files import whole_file

app = typer.Typer(
    name="georun", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Train for real across sites, as a policy says.",
)  # fmt: skip

PolicyOption = Annotated[str, typer.Option("--policy", help="A built-in policy, or a YAML file.")]
StepsOption = Annotated[int, typer.Option("--steps", help="A multiple of the policy's interval.")]
PaceOption = Annotated[
    list[str] | None,
    typer.Option("--pace", help='Declared step time, "80 ms", or of one site, "west=160 ms"; repeatable.'),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="FIELD=VALUE, or policy.FIELD=VALUE; repeatable.")
]
DataOption = Annotated[
    str | None, typer.Option("--data", help="Text file or folder; without: Python's own source.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Of parameters, data order and links.")]
ValidationsOption = Annotated[
    int, typer.Option("--validations", help="Extra measurements of the validation loss.")
]
RateOption = Annotated[float, typer.Option("--lr", help="Peak learning rate.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", help="Seconds that a site, or an exchange, is waited for.")
]
SaveOption = Annotated[str | None, typer.Option("--save", help="Folder for checkpoints.")]
SaveEveryOption = Annotated[
    int,
    typer.Option(
        "--save-every", help="Steps between checkpoints, of which the last two stay; 0: only at the end."
    ),
]
ResumeOption = Annotated[str | None, typer.Option("--resume", help="Folder of checkpoints to go on from.")]
CodecOption = Annotated[
    str, typer.Option("--codec", help="auto, triton, cpu or reference: who writes the payloads.")
]
TraceOption = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write what happened when, in all sites, for Perfetto."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Figures as JSON on standard output.")]


@app.command()
def emulate(
    scenario: Annotated[str, typer.Argument(help="A built-in scenario, or a YAML file.")],
    policy: PolicyOption,
    steps: StepsOption,
    wan: Annotated[str, typer.Option("--wan", help="tun: emulated links; none: loopback.")] = "tun",
    pace: PaceOption = None,
    changes: SetOption = None,
    data: DataOption = None,
    seed: SeedOption = 0,
    lr: RateOption = 2e-3,
    validations: ValidationsOption = 0,
    timeout: TimeoutOption = 60.0,
    save: SaveOption = None,
    save_every: SaveEveryOption = 0,
    resume: ResumeOption = None,
    codec: CodecOption = "auto",
    trace: TraceOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for result.json and policy.yaml.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run all ranks of a scenario on this machine, across an emulated WAN, and measure."""
    from runtime.ending import conclude
    from runtime.launch import emulate as launch
    from runtime.show import Progress, write_result, write_trace_line

    loaded, chosen = _load(scenario, policy, changes)
    if wan not in ("tun", "none"):
        raise UsageError(f"--wan {wan}: use 'tun' or 'none'")
    pace_s, site_pace_s = _paces(pace)
    with Progress(steps) as progress:

        def show(result: dict[str, Any]) -> None:
            progress.close()  # or its bar and the figures run into each other
            try:
                if as_json:
                    print(_json(result))
                else:
                    write_result(result, loaded)
            finally:  # where one of the two cannot be written, the other is
                if out is not None:
                    _write(out, result, chosen.to_yaml())

        result = launch(
            loaded, chosen, steps, wan="tun" if wan == "tun" else "none", pace_s=pace_s,
            site_pace_s=site_pace_s, data=data, seed=seed, lr=lr, validations=validations,
            timeout_s=timeout, save=save, save_every=save_every, resume=resume, codec=codec, out=out,
            trace=trace, progress=progress, note=progress.note, shown=show,
        )  # fmt: skip
    if trace is not None and not as_json:
        write_trace_line(trace)
    conclude(result["loss"][-1][1], result["val_loss"], result)


@app.command()
def train(
    site: Annotated[str, typer.Option("--site", help="This site's name.")],
    rendezvous: Annotated[
        str, typer.Option("--rendezvous", help="HOST:PORT on the first site's first machine.")
    ],
    policy: PolicyOption,
    steps: StepsOption,
    scenario: Annotated[str, typer.Option("--scenario", help="Sites and workload.")] = "laptop",
    changes: SetOption = None,
    pace: PaceOption = None,
    data: DataOption = None,
    seed: SeedOption = 0,
    lr: RateOption = 2e-3,
    validations: ValidationsOption = 0,
    timeout: TimeoutOption = 300.0,
    wan_address: Annotated[
        str | None, typer.Option("--wan-address", help="Where other sites reach this rank.")
    ] = None,
    save: SaveOption = None,
    save_every: SaveEveryOption = 0,
    resume: ResumeOption = None,
    codec: CodecOption = "auto",
    trace: TraceOption = None,
    as_json: JsonOption = False,
) -> None:
    """One rank of a run on real machines; start it with torchrun, once in each site."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # or torch tells of lost peers in words of its own
    from runtime.ending import conclude
    from runtime.inputs import check_inputs
    from runtime.job import Job
    from runtime.launch import write_packs
    from runtime.ranked import place, run_rank
    from runtime.show import write_rank, write_trace_line

    loaded, chosen = _load(scenario, policy, changes)
    pace_s, site_pace_s = _paces(pace)
    job = Job(
        loaded, chosen, steps, pace_s=pace_s, data=data, seed=seed, lr=lr, validations=validations,
        save=save, save_every=save_every, resume=resume, timeout_s=timeout, codec=codec,
        trace=trace is not None, site_pace_s=site_pace_s,
    )  # fmt: skip
    job.check()
    check_inputs(job, [(site, place()[0])])
    if save is not None:
        make_folder("--save", Path(save))
    figures, packs = run_rank(job, site, rendezvous, wan_address, quiet=as_json, trace=trace)
    if figures is None:
        return
    if as_json:
        print(_json(figures))
    else:
        write_rank(job, figures)
    if trace is not None and packs is not None:  # last, so that no figure is lost where it cannot be written
        write_packs(trace, job, packs, figures["parameters"])
        if not as_json:
            write_trace_line(trace)
    conclude(figures["records"][-1]["loss"], figures["validation"][-1][1], figures)


bench = typer.Typer(no_args_is_help=True, help="Speed and memory of its parts.")
app.add_typer(bench, name="bench")


@bench.command("codec")
def bench_codec(
    device: Annotated[str, typer.Option("--device", help="cpu or cuda.")] = "cpu",
    numel: Annotated[int, typer.Option("--numel", help="Elements of the tensor.")] = 50_000_000,
    as_json: JsonOption = False,
) -> None:
    """Time the fast codec on real gradients, beside one pass over the same memory."""
    from runtime.bench import Stages, measure_codecs, write_codecs

    with Stages() as progress:
        result = measure_codecs(device, numel, progress=progress)
    if as_json:
        print(_json(result))
    else:
        write_codecs(result)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Say what works on this machine, and what is missing."""
    from runtime.doctor import findings
    from runtime.show import write_findings

    found = findings()
    if as_json:
        print(json.dumps([vars(finding) for finding in found]))
    else:
        write_findings(found)


def main(arguments: list[str] | None = None) -> None:
    """The command; an error that geosim raises on purpose is one line on standard error."""
    sys.exit(run_quietly(lambda: _command(arguments), "georun"))


def _command(arguments: list[str] | None) -> Any:
    """The command's status, once all that it has written is out."""
    if find_spec("torch") is None and "doctor" not in (sys.argv[1:] if arguments is None else arguments):
        raise UsageError("georun trains with torch, which is not installed: pip install -e '.[torch]'")
    try:
        status = app(arguments, prog_name="georun", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads any more, and Python must not try again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _load(scenario: str, policy: str, changes: list[str] | None) -> tuple[Any, Any]:
    from geosim.policy import load_policy
    from geosim.scenario import load_scenario
    from geosim.settings import split_settings

    scenario_changes, policy_changes = split_settings(changes or [])
    return load_scenario(scenario, scenario_changes), load_policy(policy, policy_changes)


def _paces(texts: list[str] | None) -> tuple[float | None, dict[str, float]]:
    """The step time of all sites, and of single ones."""
    pace_s: float | None = None
    of_sites: dict[str, float] = {}
    for text in texts or ():
        site, equals, time = text.rpartition("=")
        seconds = parse_option("--pace", time, units.TIME)
        if equals:
            of_sites[site.strip()] = seconds
        else:
            pace_s = seconds
    return pace_s, of_sites


def _json(value: Any, indent: int | None = None) -> str:
    """JSON as its standard has it: null for a number that is not finite."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _write(folder: Path, result: dict[str, Any], policy: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("result.json", _json(result, indent=1) + "\n"), ("policy.yaml", policy)):
            with whole_file(folder / name) as part:
                part.write_text(text)
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot write: {error.strerror}") from None


if __name__ == "__main__":
    main()
