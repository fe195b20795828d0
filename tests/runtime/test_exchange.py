"""What goes wrong between sites is one line that names the peer and the round; and how payloads are cut."""

import time

import pytest
import torch
from geo_cases import average, backward, inner_for, make_policy, network

from geosim.errors import PayloadError, RunError
from runtime.optimizer import GeoOptimizer
from runtime.transfer import PeerLost, slices


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
            if how == "corrupt":
                engine._codecs[0].seal = damaging(engine._codecs[0].seal)
        geo.step()
    geo.close()


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("silent", PeerLost, "site 'west' sent nothing for too long in round 1"),
        ("chain", RunError, "have diverged at round 1"),
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
