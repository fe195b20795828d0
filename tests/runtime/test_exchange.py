"""What goes wrong between sites is one line that names the peer and the round; and how payloads are cut."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from geo_cases import average, backward, inner_for, make_policy, network
from pool import free_port

from geosim.errors import PayloadError, RunError
from geosim.policy.slices import slice_share
from runtime.optimizer import GeoOptimizer
from runtime.transfer import PeerLost, passing_slice, slices


def damaging(seal):
    """A codec's `seal` that then turns one bit of the payload."""

    def damage(out, *args, **options):
        seal(out, *args, **options)
        out[100] ^= 1

    return damage


def misbehave(sites, *, how):
    """Train four steps; at the second, site `west` does something wrong."""
    model = network()
    plans = {"tokens": lambda step: (8, 8) if sites.name == "east" or step == 0 else (8, 9)}
    geo = GeoOptimizer(
        inner_for("sgd", model, 0.1), make_policy({"codec": {"quantize": "int8"}}), sites, timeout_s=2,
        tokens=plans.get(how),
    )  # fmt: skip
    odd = sites.name == "west"
    engine = geo.engine
    for step in range(4):
        backward(model, step, 8, 8 * sites.index)
        average(model, sites)
        if odd and step == 1:
            if how == "silent":
                time.sleep(4)
                raise RuntimeError("west was away")
            if how == "chain":
                engine.chain = b"\x01" * 8
            if how == "lr":
                geo.param_groups[0]["lr"] *= 1.001
            if how == "corrupt":
                engine._codecs[0].seal = damaging(engine._codecs[0].seal)
        geo.step()
    if odd and how == "final":
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] += 1
    geo.finish()
    geo.close()


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("silent", PeerLost, "site 'west' sent nothing for too long in round 1"),
        ("chain", RunError, "have diverged at round 1"),
        ("lr", RunError, "have diverged at round 1: their results, or their optimizers' settings"),
        ("final", RunError, "disagree on the parameters they have ended with"),
        ("corrupt", PayloadError, "site 'west': payload from site 1, round 1: checksum does not match"),
        ("tokens", RunError, "site 'west', round 1: its window had 9 tokens and the batch plan says 8"),
    ],
)
def test_east_says_what_went_wrong(pool, how, kind, words):
    begin = time.monotonic()
    error = pool.errors(misbehave, ranks=1, how=how)[0][0]
    assert time.monotonic() - begin < 30
    assert isinstance(error, kind), error
    assert words in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize("size", [80, 1000, 4097])
@pytest.mark.parametrize("streams", [1, 3, 8])
@pytest.mark.parametrize("chunk", [None, 100, 5000])
def test_slices_cover_a_payload_once(size, streams, chunk):
    cut = slices(size, streams, chunk)
    covered = torch.zeros(size, dtype=torch.int)
    for piece in cut:
        covered[piece.start : piece.stop] += 1
    assert (covered == 1).all()
    assert {piece.stream for piece in cut} == set(range(min(streams, len(cut))))
    assert max(piece.stop - piece.start for piece in cut) <= (chunk or -(-size // streams))


@pytest.mark.parametrize("size", [80, 4097, 100_000, 612_000, 50_000_000, 3_000_000_001])
@pytest.mark.parametrize("streams", [1, 3, 8])
def test_what_is_passed_on_goes_in_few_slices_of_some_size_over_all_streams(size, streams):
    cut = slices(size, streams, passing_slice(size, streams))
    assert {piece.stream for piece in cut} == set(range(streams))
    assert len(cut) <= 32 * streams
    biggest = max(piece.stop - piece.start for piece in cut)
    assert biggest <= max(64 * 1024, -(-size // (32 * streams)))
    assert len(cut) == streams or biggest >= 64 * 1024
    first = {piece.stream: piece.stop - piece.start for piece in reversed(cut)}
    assert slice_share(size, streams, None) == pytest.approx(sum(first.values()) / size, abs=streams / size)


def timings(sites, *, pauses=False):
    """What the headers of three rounds of two steps say; rank 1 of `west` computes for longer.

    `pauses`: all rest after each step, as for a validation, and clear the gradients when they go on.
    """
    model = network()
    geo = GeoOptimizer(inner_for("sgd", model, 0.1), make_policy({"interval": 2}), sites, timeout_s=15)
    said = []
    seal = geo.engine._codecs[0].seal

    def listen(out, *args, **options):
        said.append((options["exchange_us"], options["step_us"]))
        seal(out, *args, **options)

    geo.engine._codecs[0].seal = listen
    for step in range(6):
        if pauses:
            time.sleep(0.15)
            geo.zero_grad()
        backward(model, step, 8, 8 * sites.index)
        average(model, sites)
        if sites.name == "west" and sites.rank == 1:
            time.sleep(0.1)
        geo.step()
    geo.finish()
    geo.close()
    return said


def test_headers_carry_the_sites_longest_exchange_and_mean_computation(pool):
    results = pool.run(timings)
    assert [said[0][0] for site in results for said in site] == [0] * 4
    for site in results:
        assert site[0] == site[1]  # both ranks say what is the site's
        assert all(exchange > 0 for exchange, _ in site[0][1:])
    # A mean over the steps; east's ranks do not wait for west while they compute.
    assert all(100_000 <= step < 200_000 for _, step in results[1][0])
    assert all(step < 100_000 for _, step in results[0][0])


def test_pauses_between_steps_are_no_computation(pool):
    results = pool.run(timings, pauses=True)
    assert all(100_000 <= step < 150_000 for _, step in results[1][0])
    assert all(step < 100_000 for _, step in results[0][0])


LONELY = """
import os, sys, time
import torch
from runtime import GeoOptimizer, Sites
from geosim.policy import SyncPolicy
torch.set_num_threads(1)
site, port = sys.argv[1:]
sites = Sites.connect(["east", "west"], site, f"127.0.0.1:{port}")
weight = torch.nn.Parameter(torch.ones(1000))
geo = GeoOptimizer(torch.optim.SGD([weight], lr=0.1), SyncPolicy(), sites, timeout_s=30)
try:
    for step in range(50):
        if site == "west" and step == 3:
            time.sleep(0.3)
            print(time.monotonic(), flush=True)
            os._exit(9)
        weight.grad = torch.ones_like(weight)
        geo.step()
except Exception as error:
    print(time.monotonic(), type(error).__name__, error, flush=True)
os._exit(0)
"""


def test_a_dead_peer_fails_the_exchange_at_once():
    """Some 0.2 s of gloo's, whatever the timeout; the bound leaves room for a busy machine."""
    port = str(free_port())
    environment = os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONPATH": str(Path(__file__).parents[2])}
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", LONELY, site, port], stdout=subprocess.PIPE, text=True, env=environment
        )
        for site in ("east", "west")
    ]
    east, west = (program.communicate(timeout=60)[0].split(maxsplit=2) for program in programs)
    assert east[1] == "PeerLost"
    assert "site 'west' closed its connection in round 3" in east[2]
    assert float(east[0]) - float(west[0]) < 2
