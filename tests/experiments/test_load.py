"""What others keep busy is what the machine did less what the block's own processes did."""

import subprocess
import sys

from experiments import load
from experiments.load import Load


def test_others_are_the_machine_less_own(monkeypatch) -> None:
    clock, busy, own = iter([100.0, 102.0]), iter([50.0, 53.0]), iter([7.0, 9.0])
    monkeypatch.setattr(load.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(load, "_busy_s", lambda: next(busy))
    monkeypatch.setattr(load, "_own_s", lambda: next(own))
    with Load() as found:
        assert found.others is None
    assert found.others == 0.5


def test_a_machine_that_does_not_say_has_none(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(load, "_STAT", tmp_path / "stat")
    with Load() as found:
        pass
    assert found.others is None


def test_what_a_block_waited_for_is_its_own() -> None:
    before = load._own_s()
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    assert load._own_s() - before >= 0.25


def test_idle_time_is_not_busy(monkeypatch, tmp_path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 20 30 5000 600 7 8 35 999 0\ncpu0 1 2\n")
    monkeypatch.setattr(load, "_STAT", stat)
    monkeypatch.setattr(load.os, "sysconf", lambda _: 100)
    assert load._busy_s() == 2.0
