"""Fixtures cut off, corrupted and mixed up: one line that names the file, never a traceback."""

import contextlib
import copy
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geosim.calibrate import combine, fill, read_file
from geosim.calibrate.kinds import KINDS
from geosim.errors import UsageError
from geosim.scenario import load_scenario

FIXTURES = Path(__file__).parent / "fixtures"
TEXTS = ["ping-iputils-stopped.txt", "ping-busybox-clean.txt", "nccl-1x8-h100.txt", "nccl-2x8-a100-old.txt"]
JSONS = [
    "iperf3-clean-bidir.json", "iperf3-clean-forward.json", "iperf3-clean-udp-over.json",
    "iperf3-server.json", "config-qwen2.5-7b.json", "config-mixtral-8x7b.json", "config-bloom-176b.json",
    "trace-hta-mi250.json.gz",
]  # fmt: skip
ODD = [
    None,
    True,
    -1,
    0,
    10**400,
    1e300,
    0.5,
    "",
    "word\nword",
    [],
    [1],
    {},
    {"a": 1},
    float("nan"),
    float("inf"),
]
LAPTOP = load_scenario("laptop")
quick = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(file):
    """Read, put into a scenario, and see that an error is one line that names file or option."""
    told = _refusal(file)
    assert "\n" not in told
    assert not told or str(file) in told or told.startswith(("--site", "scenario laptop"))


def _refusal(file):
    """What a file is refused for; empty if it is not."""
    try:
        readings = [read_file(file)]
        choices = combine(readings).choices
        site = ["east"] if any(c.value.field.startswith("fabric") for c in choices) else []
        link = "east-west" if any(c.value.field.startswith("link") for c in choices) else None
        fill(LAPTOP, choices, link, site)
    except UsageError as error:
        return str(error)
    return ""


def content(name):
    raw = (FIXTURES / name).read_bytes()
    return gzip.decompress(raw) if name.endswith(".gz") else raw


@pytest.mark.parametrize("name", [*TEXTS, *JSONS])
@given(data=st.data())
@quick
def test_bytes_cut_dropped_and_changed(tmp_path, name, data):
    raw = bytearray(content(name))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(len(raw) - 1, 0)))
        what = data.draw(st.sampled_from(["cut", "drop", "put", "twice"]))
        if what == "cut":
            del raw[at:]
        elif what == "drop":
            del raw[at : at + data.draw(st.integers(1, 40))]
        elif what == "put":
            raw[at : at + 1] = data.draw(
                st.sampled_from([b"9", b"-", b"e", b'"', b"\n", b"\x00", b"\xff", b"99999", b"{", b","])
            )
        else:
            raw += raw[at:]
    file = tmp_path / "file"
    file.write_bytes(bytes(raw))
    check(file)


def places(data, path=()):
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


@pytest.mark.parametrize("name", JSONS)
@given(data=st.data())
@quick
def test_json_with_odd_values(tmp_path, name, data):
    whole = json.loads(content(name))
    known = [place for place in places(whole) if place]
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from(known))
        here = whole
        try:
            for key in above:
                here = here[key]
            if data.draw(st.booleans()):
                here[last] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
            elif isinstance(here, dict):
                here.pop(last, None)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
    file = tmp_path / "file"
    file.write_text(json.dumps(whole))
    check(file)


@pytest.mark.parametrize("kind", KINDS)
def test_every_file_as_every_kind(kind):
    known = 0
    for path in sorted(FIXTURES.iterdir()):
        with contextlib.suppress(UsageError):
            known += read_file(path, kind).file == str(path)
    assert known >= 4


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"\x7fELF\x02\xff\xfe", "not a text file"),
        (b"\x1f\x8b\x08\x00", "broken gzip file"),
        (gzip.compress(b'{"model_type": "gpt2"}' * 99)[:-9], "broken gzip file, as if it were cut off"),
        (b'{"model_type": "gpt2"', "broken JSON.*line 1, column .*as if it were cut off"),
        (b'{"a": 1} {"b": 2}', "more than one JSON document"),
        (b"[" * 100_000, "broken JSON|of no known kind"),
        (b'{"a":' * 100_000, "broken JSON: nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "broken JSON"),
        (b"{}", "of no known kind: known are iperf3 -J; ping; nccl-tests"),
        (b"hello\n", "of no known kind"),
        (
            b'{"model_type": "gpt2", "traceEvents": []}',
            "looks like Chrome trace.* and config.json.*: say which by --as",
        ),
    ],
)
def test_files_that_are_nothing(tmp_path, raw, says):
    file = tmp_path / "file"
    file.write_bytes(raw)
    with pytest.raises(UsageError, match=says) as told:
        read_file(file)
    assert str(told.value).startswith(str(file))
    assert "\n" not in str(told.value)


def test_a_file_that_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr("geosim.calibrate.source.MOST_BYTES", 1000)
    for raw in (b"PING " * 999, gzip.compress(b"PING " * 999)):
        (tmp_path / "file").write_bytes(raw)
        with pytest.raises(UsageError, match="larger than"):
            read_file(tmp_path / "file")
