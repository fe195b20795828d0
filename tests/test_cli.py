"""The `geosim` command as a user meets it: screens, JSON keys, exit statuses and one-line errors."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from unittest.mock import patch

import pytest
import yaml

from geosim.cli import main
from geosim.policy import load_policy, policy_from_dict, preset_names
from geosim.scenario import load_scenario, scenario_names
from geosim.sim import simulate

RESULT_KEYS = {
    "scenario", "policy", "step_time_s", "compute_utilization", "exchange_time_s", "exposed_wan_s_per_step",
    "tokens_per_s", "relative_to_colocated", "links", "wan_bytes_vs_ddp",
}  # fmt: skip

FAST = ["--seeds", "1", "--windows", "20"]


def geosim(*args, status=0, columns=100):
    """Run in this process; what it said, after checking the exit status and that nothing escaped."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": str(columns), "NO_COLOR": "1"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main(list(args))
    assert left.value.code == status, out.getvalue() + err.getvalue()
    return subprocess.CompletedProcess(args, status, out.getvalue(), err.getvalue())


def geosim_json(*args):
    return json.loads(geosim(*args, "--json").stdout)


def process(*args, **more):
    """Run as a whole process."""
    command = [sys.executable, "-m", "geosim.cli", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


def check_result(result):
    assert result.keys() >= RESULT_KEYS
    assert result["step_time_s"].keys() == {"mean", "p50", "p95", "p99"}
    assert result["exchange_time_s"].keys() == {"mean", "p95"}
    for link in result["links"].values():
        assert link.keys() == {"bytes_per_step", "utilization"}


def test_scenarios_names_all_that_are_built_in():
    text = geosim("scenarios").stdout
    assert all(name in text for name in scenario_names())
    listed = geosim_json("scenarios")["scenarios"]
    assert [s["name"] for s in listed] == scenario_names()


def test_policies_names_all_that_are_built_in():
    text = geosim("policies").stdout
    assert all(name in text for name in preset_names())
    listed = geosim_json("policies")["policies"]
    assert [policy_from_dict(p["policy"]) for p in listed] == [load_policy(n) for n in preset_names()]
    sizes = {p["name"]: p["bytes_per_parameter"] for p in listed}
    assert sizes["ddp"] == 4
    assert 0.02 < sizes["hierarchical-efsgd"] < 0.022


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "args",
    [
        ("policies",),
        ("scenarios",),
        (
            "compare",
            "laptop",
            *(f"--policy={name}" for name in ("ddp", "local-sgd", "hierarchical-efsgd")),
            *FAST,
        ),
        ("simulate", "four-regions", "--policy", "streaming-diloco", *FAST),
    ],
    ids=lambda args: args[0],
)
def test_a_narrow_screen_breaks_lines_at_blanks_and_loses_nothing(args, columns):
    wide, text = geosim(*args, columns=400).stdout, geosim(*args, columns=columns).stdout
    assert max(len(line) for line in text.splitlines()) <= columns

    def words(printed):
        return Counter(word for word in printed.split() if not set(word) <= set("█▏▎▍▌▋▊▉"))

    assert words(text) == words(wide)


def test_80_columns_fold_no_cell_of_the_scenarios_table():
    narrow, wide = (geosim("scenarios", columns=columns).stdout.split("\n\n")[0] for columns in (80, 400))
    assert narrow == wide


def test_a_terminal_of_less_than_80_columns_gets_80():
    assert geosim("policies", columns=40).stdout == geosim("policies", columns=80).stdout


@pytest.mark.parametrize("policy", ["ddp", "hierarchical-efsgd", "local-sgd"])
def test_simulate_shows_what_the_library_returns(policy):
    expected = simulate("laptop", policy, seeds=1, windows=20).to_dict()
    assert geosim_json("simulate", "laptop", "--policy", policy, *FAST) == expected
    check_result(expected)
    text = geosim("simulate", "laptop", "--policy", policy, *FAST).stdout
    for word in ("compute", "east->west", "tokens/s", "in one room", "WAN"):
        assert word in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_simulate_applies_settings_to_scenario_and_policy():
    plain = geosim_json("simulate", "laptop", "--policy", "local-sgd", *FAST)
    other = geosim_json(
        "simulate",
        "laptop",
        "--policy",
        "local-sgd",
        "--set",
        "wan.0.rtt=80 ms",
        "--set",
        "policy.interval=4",
        *FAST,
    )
    again = simulate(
        load_scenario("laptop", {"wan.0.rtt": "80 ms"}),
        load_policy("local-sgd", {"interval": 4}),
        seeds=1,
        windows=20,
    )
    assert other == again.to_dict()
    assert other != plain


def test_default_windows_are_the_simulators():
    assert (
        geosim_json("simulate", "laptop", "--policy", "ddp")["windows"] == simulate("laptop", "ddp").windows
    )


def test_simulate_says_whether_the_wan_hides():
    hidden = geosim("simulate", "laptop", "--policy", "hierarchical-efsgd", *FAST).stdout
    assert "hides behind compute" in hidden
    assert "slack" in hidden
    assert "does not hide" in geosim("simulate", "laptop", "--policy", "local-sgd", *FAST).stdout


def test_simulate_writes_a_trace(tmp_path):
    file = tmp_path / "trace.json"
    text = geosim("simulate", "laptop", "--policy", "local-sgd", "--trace", str(file), *FAST).stdout
    assert "trace:" in text
    assert json.loads(file.read_text())


def test_simulate_reads_a_calibration_and_a_policy_file(tmp_path):
    (tmp_path / "machine.yaml").write_text("step_overhead: 100 ms\n")
    (tmp_path / "mine.yaml").write_text(load_policy("local-sgd").to_yaml())
    args = ("simulate", "laptop", "--policy", str(tmp_path / "mine.yaml"), *FAST)
    plain = geosim_json(*args)
    slower = geosim_json(*args, "--calibration", str(tmp_path / "machine.yaml"))
    assert slower["step_time_s"]["mean"] == pytest.approx(plain["step_time_s"]["mean"] + 0.1, rel=0.02)


def test_compare_puts_results_side_by_side():
    args = ("compare", "laptop", "--policy", "ddp", "--policy", "hierarchical-efsgd", *FAST)
    found = geosim_json(*args)
    assert found["scenario"] == "laptop"
    assert [r["policy"] for r in found["results"]] == ["ddp", "hierarchical-efsgd"]
    for result in found["results"]:
        check_result(result)
    assert found["claims"] == []
    text = geosim(*args).stdout
    assert "What decides it" in text
    assert "field report" not in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_compare_answers_the_field_report():
    args = ("compare", "beijing-ningxia", "--policy", "ddp", "--policy", "hierarchical-efsgd", *FAST)
    claims = {c["id"]: c for c in geosim_json(*args)["claims"]}
    assert set(claims) == {"A1a", "A1b", "A2", "A3", "A4"}
    assert not claims["A1a"]["holds"]
    assert claims["A1b"]["holds"]
    assert claims["A2"]["holds"]
    assert all(c["turns_on"] for c in claims.values())
    text = geosim(*args).stdout
    for claim in claims.values():
        assert claim["id"] in text


def test_tune_writes_the_policy_that_it_reports(tmp_path):
    file = tmp_path / "policy.yaml"
    found = geosim_json("tune", "laptop", "--out", str(file))
    assert found.keys() >= {"policy", "predicted", "front", "reason"}
    chosen = load_policy(str(file))
    assert chosen == policy_from_dict(found["policy"])
    check_result(found["predicted"])
    assert found["policy"] in [point["policy"] for point in found["front"]]


def test_tune_says_why():
    text = geosim("tune", "laptop").stdout
    for word in ("chosen:", "Why", "One step back", "The front", "of the same accelerators"):
        assert word in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_tune_holds_what_set_says_and_says_so():
    held = (
        "--set",
        "policy.streams=4",
        "--set",
        "policy.codec.quantize.kind=e3m0",
        "--set",
        "policy.interval=8",
    )
    found = geosim_json("tune", "laptop", *held)
    quantize = {"group": 64, "kind": "e3m0", "rounding": "nearest"}
    assert found["held_fixed"] == {"interval": 8, "codec.quantize": quantize, "streams": 4}
    for point in found["front"]:
        policy = point["policy"]
        assert (policy["interval"], policy["codec"]["quantize"], policy["streams"]) == (8, quantize, 4)
    said = "Held fixed by --set: interval 8, codec.quantize e3m0, streams 4."
    assert said in found["reason"]
    assert said in geosim("tune", "laptop", *held).stdout
    assert not any("every step" in line for line in found["reason"] if "bandwidth" in line)


def test_tune_searches_what_a_base_says(tmp_path):
    file = tmp_path / "base.yaml"
    file.write_text("name: base\ninterval: 8\nstreams: 8\n")
    found = geosim_json("tune", "laptop", "--base", str(file))
    assert found["held_fixed"] == {}
    assert found["policy"] == geosim_json("tune", "laptop")["policy"]


def test_tune_of_a_single_policy_claims_no_choice():
    one = ["interval=4", "streams=1", "overlap=blocking", "codec.quantize=fp32", "codec.select=dense"]
    found = geosim_json("tune", "laptop", *(f"--set=policy.{item}" for item in one))
    assert "That leaves no choice: it is the only policy." in found["reason"]
    assert len(found["front"]) == 1


SIMULATE = ("simulate", "laptop", "--policy", "local-sgd")
MISTAKES = [
    (("simulate", "lapptop", "--policy", "ddp"), ["lapptop", "did you mean 'laptop'"]),
    (("simulate", "laptop", "--policy", "ddpp"), ["ddpp", "did you mean 'ddp'"]),
    (("simulate", "nowhere.yaml", "--policy", "ddp"), ["nowhere.yaml", "cannot read"]),
    (("simulate", "laptop", "--policy", "nowhere.yaml"), ["nowhere.yaml", "cannot read"]),
    ((*SIMULATE, "--calibration", "nowhere.yaml"), ["nowhere.yaml", "cannot read"]),
    ((*SIMULATE, "--set", "workload.model=llama-8b"), ["unknown model", "did you mean 'llama-3-8b'"]),
    ((*SIMULATE, "--set", "sites=[]"), ["sites: needs 1 or more, has 0"]),
    ((*SIMULATE, "--set", "nccl.buffer_size=10 TiB"), ["nccl.buffer_size", "between 1 B and 2147483647 B"]),
    ((*SIMULATE, "--set", "wan.0.rtt=40"), ["rtt", "40", "unit"]),
    ((*SIMULATE, "--set", "wan.0.bandwidth=10 Gb"), ["bandwidth", "10 Gb", "ambiguous", "write"]),
    ((*SIMULATE, "--set", "wan.0.bandwidth=-1 Gbit/s"), ["bandwidth", "-1 Gbit/s", "above 0"]),
    ((*SIMULATE, "--set", "wan.0.latency=40 ms"), ["latency", "unknown key"]),
    ((*SIMULATE, "--set", "wan.1.rtt=40 ms"), ["wan.1.rtt", "list of 1"]),
    ((*SIMULATE, "--set", "policy.interval=0"), ["interval", "0", "greater than or equal to 1"]),
    ((*SIMULATE, "--set", "policy.codec.select={kind: topk, ratio: 1.5}"), ["ratio", "1.5", "at most 1"]),
    ((*SIMULATE, "--set", "policy.intervall=8"), ["intervall", "did you mean 'interval'"]),
    ((*SIMULATE, "--set", "interval"), ["interval", "no '='"]),
    ((*SIMULATE, "--trace", "no/such/folder/trace.json"), ["no/such/folder", "create it"]),
    (("compare", "laptop", "--policy", "ddp", "--policy", "nothing"), ["nothing", "built in"]),
    (
        ("compare", "laptop", "--policy", "local-sgd", "--policy", "ddp", "--set", "policy.interval=8"),
        ["policy ddp: interval", "flat-ring"],
    ),
    (
        ("compare", "laptop", "--policy", "local-sgd", "--set", "policy.shards=64"),
        ["policy local-sgd: shards", "64", "2 ranks"],
    ),
    (("tune", "laptop", "--base", "ddp"), ["base policy ddp", "another preset"]),
    (("tune", "laptop", "--set", "policy.topology=flat-ring"), ["flat-ring", "another preset"]),
    (
        ("tune", "laptop", "--max-interval", "4", "--set", "policy.interval=8"),
        ["--max-interval 4", "policy.interval=8", "leave one of them out"],
    ),
    (("tune", "laptop", "--out", "no/such/folder/policy.yaml"), ["no/such/folder", "create it"]),
    (("tune", "laptop", "--set", "policy.codec=nothing"), ["codec"]),
]


@pytest.mark.parametrize(("args", "says"), MISTAKES, ids=lambda v: " ".join(v[-2:]))
def test_a_mistake_is_one_line_and_status_2(args, says):
    result = geosim(*args, status=2)
    assert result.stdout == ""
    assert result.stderr.startswith("geosim: ")
    assert result.stderr.count("\n") == 1
    for words in says:
        assert words in result.stderr


@pytest.mark.parametrize(
    "option", [("simulate", "laptop", "--policy=ddp", "--trace"), ("tune", "laptop", "--out")]
)
@pytest.mark.parametrize(
    ("name", "says"),
    [("", "is a folder"), ("a" * 300, "cannot write: File name too long")],
    ids=["folder", "long"],
)
def test_where_nothing_can_be_written_is_said_before_the_work(tmp_path, option, name, says):
    with patch("geosim.sim.simulate", side_effect=AssertionError):
        assert f"{tmp_path / name}: {says}" in geosim(*option, str(tmp_path / name), status=2).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["[/]", "[red]x[/red]", ":smile:"])
def test_names_are_printed_as_they_are(tmp_path, name):
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: '{name}'\n")
    assert name in geosim("compare", "laptop", "--policy", str(file), *FAST).stdout.splitlines()[3]


def test_broken_files_are_one_line_and_status_2(tmp_path):
    file = tmp_path / "broken.yaml"
    for text, says in (
        ("a: [1,", f"{file}: line 1: not YAML: "),
        ("update: local\nupdate: local\n", f"{file}: line 2: 'update' is given twice\n"),
        ("- 1", "expected a mapping"),
        ("interval: x", "interval"),
    ):
        file.write_text(text)
        result = geosim("simulate", "laptop", "--policy", str(file), status=2)
        assert says in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("simulate",), ["SCENARIO", "see geosim simulate --help"]),
        (("simulate", "laptop"), ["--policy", "see geosim simulate --help"]),
        (("simulat",), ["simulat", "see geosim --help"]),
        ((*SIMULATE, "--sedes", "1"), ["--sedes", "see geosim simulate --help"]),
        ((*SIMULATE, "--seeds", "0"), ["--seeds"]),
        ((*SIMULATE, "--seeds", "many"), ["--seeds"]),
        ((*SIMULATE, "--windows", "10000000"), ["--windows", "1000000"]),
    ],
)
def test_wrong_options_are_one_line_too(args, says):
    result = geosim(*args, status=2)
    assert result.stdout == ""
    assert result.stderr.startswith("geosim: ")
    assert result.stderr.count("\n") == 1
    for words in says:
        assert words in result.stderr


def test_the_command_alone_is_its_help():
    text = process()
    assert text.returncode == 2
    assert "simulate" in text.stdout + text.stderr


def test_compare_says_that_settings_reach_every_policy():
    assert "applies to every policy" in geosim("compare", "--help").stdout


def test_more_than_in_one_room_is_explained():
    said = "more than in one room"
    assert said in geosim("simulate", "laptop", "--policy", "hierarchical-efsgd", *FAST).stdout
    assert said not in geosim("simulate", "laptop", "--policy", "ddp", *FAST).stdout


def test_a_mistake_in_a_whole_process_leaves_no_traceback():
    done = process("simulate", "laptop", "--policy", "local-sgd", "--set", "policy.interval=0")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("geosim: policy local-sgd: interval")
    assert done.stderr.count("\n") == 1


def test_simulate_is_quick_and_loads_neither_torch_nor_jax():
    code = (
        "import sys; from geosim.cli import app;"
        "app(['simulate', 'laptop', '--policy', 'hierarchical-efsgd', '--json'], standalone_mode=False);"
        "print([m for m in ('torch', 'jax', 'scipy', 'matplotlib', 'numpy.ma', 'numpy.random', 'rich')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"


def test_a_reader_that_leaves_early_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m geosim.cli scenarios --json | head -1",
        shell=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_full_disk_is_one_line(more):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "geosim.cli", "policies", *more]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.stderr == "geosim: cannot write: No space left on device\n"
    assert done.returncode == 1


def test_interrupt_ends_with_130_and_no_traceback():
    command = [sys.executable, "-m", "geosim.cli", *SIMULATE, "--windows", "1000000"]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    time.sleep(1.5)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert out == ""
    assert "Traceback" not in err


def test_policy_yaml_of_the_tuner_is_plain_yaml(tmp_path):
    file = tmp_path / "policy.yaml"
    geosim("tune", "laptop", "--base", "local-sgd", "--max-interval", "64", "--out", str(file))
    assert yaml.safe_load(file.read_text())["update"]["kind"] == "local"
