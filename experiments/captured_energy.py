"""How much of an update top-k sends, by where it selects, and what quantizing then costs.

    python -m experiments.captured_energy

Trains a byte-level GPT on one thread. At some steps it takes the gradient and the change of the parameters
over the window that begins there, and puts both, and Gaussian noise of the same shape, through the reference
mathematics of selection and quantization. No residual is kept: this is what one round captures.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.table import Table
from torch import Tensor

from experiments.captured_figures import UPDATES, energy_figure, middle_step, name_of, value_figure
from experiments.console import console, progress_of, run_app, write_json
from geosim.console import make_folder
from geosim.errors import UsageError
from geosim.params import ParamTable
from geosim.policy import load_policy, make_layout
from geosim.policy.codec import Codec
from geosim.policy.maths import Key, Section, make_sections
from geosim.policy.maths.codec import gather
from geosim.policy.maths.quantize import dequantize, quantize
from geosim.policy.maths.select import select
from geosim.policy.quantize import Integer
from geosim.policy.select import RandomK, TopK
from runtime.bench.updates import Training, one_thread

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
STEPS, WINDOW, SEQUENCES = (1, 30, 120, 400), 16, 4
RATIOS = (0.001, 0.01, 0.1)
SCOPES: tuple[str | int, ...] = ("fragment", "piece", 65536, 4096, 1024, 256)
RANDOM = "random-k"
GROUPS = (16, 64, 256, 1024, "section")
FORMATS = ("int8", "int4")
VALUE_SCOPES: tuple[str | int, ...] = ("fragment", "piece", 4096)
VALUE_RATIO = 0.01


@app.command()
def captured_energy(
    model: Annotated[str, typer.Option(help="a preset of runtime.models")] = "byte-gpt-3m",
    at: Annotated[
        list[int] | None, typer.Option("--at", help="steps to look at; repeatable [1, 30, 120, 400]")
    ] = None,
    window: Annotated[int, typer.Option(min=1, help="steps of a parameter change")] = WINDOW,
    sequences: Annotated[int, typer.Option(min=1, help="of a step's batch")] = SEQUENCES,
    seed: Annotated[int, typer.Option(help="of weights, data and noise")] = 0,
    out: Annotated[Path, typer.Option(help="where the results go")] = Path("out/captured_energy"),
    as_json: Annotated[bool, typer.Option("--json", help="print the results as JSON")] = False,
) -> None:
    """Train, look at updates on the way, and write tables and figures."""
    steps = tuple(sorted(set(at or STEPS)))
    if steps[0] < 1:
        raise UsageError(f"--at {steps[0]}: steps count from 1")
    make_folder("--out", out)
    begun = time.perf_counter()
    result = study(model, steps, window, sequences, seed)
    result["seconds"] = time.perf_counter() - begun
    write_json(out / "results.json", result)
    energy_figure(result, out / "captured_energy.png")
    value_figure(result, out / "value_error.png")
    if as_json:
        typer.echo(json.dumps(result))
        return
    console.print(f"{model} ({result['parameters']:,} parameters), seed {seed}: energy kept at 1 %")
    console.print(_energy_table(result))
    console.print(
        "\nof the values kept at 1 %: squared error in %, and in brackets the % of them that become 0"
    )
    console.print(_value_table(result))
    console.print(f"In {out}/ ({result['seconds']:.0f} s in all)")


def study(model: str, steps: Sequence[int], window: int, sequences: int, seed: int) -> dict[str, Any]:
    """Everything that is measured, JSON-ready.

    Args:
        model: a preset of `runtime.models`.
        steps: ascending, from 1; a gradient is that of this step, a change that of `window` steps from it on.
        window: steps of a parameter change.
        sequences: of a step's batch.
        seed: of weights, data and noise.

    Returns:
        `captured`: share of the squared norm that is kept, by scope, a row for each update, step and ratio.
        `kept_share`: share of the elements that are kept, by ratio and scope. `values`: relative squared
        error of the kept values, and share of them that decode to 0, by scale group.

    Raises:
        UsageError: no such model.
    """
    total = steps[-1] + window - 1
    training = Training(model, total, seed, batch_size=sequences)
    found: dict[tuple[str, int], Tensor] = {}
    before: dict[int, Tensor] = {}
    with one_thread(), progress_of(f"training {model}, {total} steps") as update:
        while training.step < total:
            step = training.step + 1
            if step in steps:
                before[step] = training.parameters()
            gradients, loss = training.advance()
            if step in steps:
                found["gradient", step] = gradients[0]
            if step - window + 1 in steps:
                first = step - window + 1
                found["change", first] = before.pop(first) - training.parameters()
            update(step, total, loss)
        generator = torch.Generator().manual_seed(seed)
        found["noise", 0] = torch.randn(training.table.numel, generator=generator)
        looked = [
            look(values, training.table, update=kind, step=step) for (kind, step), values in found.items()
        ]
    return {
        "model": model, "parameters": training.table.numel, "seed": seed, "steps": list(steps),
        "window": window, "data": training.data, "tokens_per_step": training.tokens_per_step,
        "command": f"python -m experiments.captured_energy --model {model} --window {window} "
        f"--sequences {sequences} --seed {seed} "
        + " ".join(f"--at {step}" for step in steps),
        "kept_share": looked[-1]["kept_share"],
        "captured": [row for one in looked for row in one["captured"]],
        "values": [row for one in looked for row in one["values"]],
    }  # fmt: skip


def look(values: Tensor, table: ParamTable, **about: object) -> dict[str, Any]:
    """One update through every selection and quantization.

    Args:
        values: fp32 [numel], tensors end to end.
        table: the tensors.
        about: goes into each row.
    """
    total = float(values.double().square().sum())
    shares: dict[str, dict[str, float]] = {}
    captured, rows = [], []
    for ratio in RATIOS:
        energy: dict[str, float] = {}
        kept: dict[str, float] = {}
        for scope in (*SCOPES, RANDOM):
            parts = chosen(values, table, scope, ratio)
            energy[str(scope)] = sum(float(p.double().square().sum()) for p in parts) / total
            kept[str(scope)] = sum(len(p) for p in parts) / len(values)
            if scope in VALUE_SCOPES and ratio == VALUE_RATIO:
                rows += [{**about, "scope": str(scope), **quantized(parts, kind)} for kind in FORMATS]
        captured.append(
            {**about, "ratio": ratio, "energy_share": energy, **concentration(values, table, ratio)}
        )
        shares[f"{ratio:g}"] = kept
    return {"captured": captured, "values": rows, "kept_share": shares}


def concentration(values: Tensor, table: ParamTable, ratio: float) -> dict[str, Any]:
    """Where a choice over the whole model falls: the share of the tensor with most; how many have none."""
    at = select(values, TopK(ratio=ratio, scope="fragment"), Key())
    assert at is not None
    tensors = table.tensors()
    ends = torch.tensor([t.numel for t in tensors]).cumsum(0)
    counts = torch.bucketize(at, ends, right=True).bincount(minlength=len(tensors))
    most = int(counts.argmax())
    return {
        "most_chosen_tensor": tensors[most].name,
        "most_chosen_share": float(counts[most] / counts.sum()),
        "tensors": len(tensors),
        "tensors_without": int((counts == 0).sum()),
    }


def chosen(values: Tensor, table: ParamTable, scope: str | int, ratio: float) -> list[Tensor]:
    """The values that travel of each section [kept]; scope "random-k" draws them from each tensor.

    A model's values come in its own order, tensor by tensor.
    """
    how = RandomK(ratio=ratio) if scope == RANDOM else TopK.model_validate({"ratio": ratio, "scope": scope})
    parts = []
    for number, section in enumerate(sections_of(table, Codec(select=how))):
        section_values = gather(values, section)
        at = select(section_values, section.select, Key(section=number))
        parts.append(section_values if at is None else section_values[at])
    return parts


def sections_of(table: ParamTable, codec: Codec) -> tuple[Section, ...]:
    """As the runtime cuts a model that is one fragment on one WAN rank."""
    policy = load_policy("hierarchical-efsgd", {"order": "model"}).model_copy(update={"codec": codec})
    return make_sections(make_layout(table, policy, 1).pieces(0, 0), codec)


def quantized(parts: Sequence[Tensor], kind: str) -> dict[str, Any]:
    """Error of the kept values and share of them that decode to 0, by scale group."""
    energy = sum(float(p.double().square().sum()) for p in parts)
    errors: dict[str, float] = {}
    zeros: dict[str, float] = {}
    for group in GROUPS:
        how = Integer.model_validate({"kind": kind, "group": group})
        decoded = [dequantize(*quantize(part, how, Key()), how) for part in parts]
        lost = sum(float((p - d).double().square().sum()) for p, d in zip(parts, decoded, strict=True))
        errors[str(group)] = lost / energy
        zeros[str(group)] = sum(int((d == 0).sum()) for d in decoded) / sum(len(d) for d in decoded)
    return {"format": kind, "squared_error": errors, "zero_share": zeros}


def _energy_table(result: Mapping[str, Any]) -> Table:
    table = _table("update", "step", *(name_of(str(s)) for s in (*SCOPES, RANDOM)))
    for row in result["captured"]:
        if row["ratio"] == VALUE_RATIO:
            shares = (f"{100 * share:.1f} %" for share in row["energy_share"].values())
            table.add_row(UPDATES[row["update"]], str(row["step"] or "-"), *shares)
    return table


def _value_table(result: Mapping[str, Any]) -> Table:
    table = _table("update", "step", "selected in", "format", *(str(group) for group in GROUPS))
    for row in (r for r in result["values"] if r["step"] in (0, middle_step(result))):
        about = (UPDATES[row["update"]], str(row["step"] or "-"), name_of(row["scope"]).replace("\n", " "))
        pairs = zip(row["squared_error"].values(), row["zero_share"].values(), strict=True)
        table.add_row(
            *about, row["format"], *(f"{100 * error:.2g} ({100 * zero:.1f})" for error, zero in pairs)
        )
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def main() -> None:
    """Console entry."""
    run_app(app, "captured_energy")


if __name__ == "__main__":
    main()
