"""Payloads that pass through other sites: the same result bit for bit, and errors that name all concerned."""

from datetime import timedelta

import pytest
import torch
from geo_cases import inner_for, make_policy, network, train
from oracle import oracle

from geosim.errors import PayloadError, RunError, UsageError
from runtime.optimizer import GeoOptimizer
from runtime.sites import Sites
from runtime.transfer import PeerLost

SPARSE = {"codec": {"select": {"kind": "topk", "ratio": 0.2}, "quantize": "int8", "residual": "feedback"}}
DILOCO = {
    "update": {"kind": "local", "outer": {"kind": "momentum", "lr": 0.7, "momentum": 0.9, "nesterov": True}}
}
STREAMS = SPARSE | {"interval": 2, "streams": 2}
CHUNKS = DILOCO | {"interval": 2, "overlap": "delayed", "chunk": "300 B"}
# Names in the order in which the pool's sites stand: east, west, north, south.
CASES = {
    "ring": ("ring", STREAMS),
    "ring-in-another-order": ({"kind": "ring", "order": ["east", "south", "west", "north"]}, CHUNKS),
    "hub": ({"kind": "hub", "site": "north"}, CHUNKS),
    "tree": ("tree", STREAMS),
    "chain": ({"kind": "tree", "links": [["south", "east"], ["east", "north"], ["north", "west"]]}, CHUNKS),
}


@pytest.mark.parametrize("name", CASES)
def test_the_result_is_the_same_bit_for_bit(pool, name):
    topology, policy = CASES[name]
    results = pool.run(train, sites=4, ranks=1, policy=policy | {"topology": topology}, steps=6)
    expected = oracle(policy, steps=6, sites=4)
    for site in results:
        assert torch.equal(site[0]["parameters"], expected)


@pytest.mark.parametrize("topology", ["ring", {"kind": "hub", "site": "west"}, "tree"])
def test_three_sites_with_several_fragments_in_flight(pool, topology):
    groups = {"groups": [{"share": 0.5, "overlap": "blocking"}], "overlap": {"kind": "delayed", "windows": 2}}
    policy = DILOCO | groups | {"interval": 1}
    results = [
        pool.run(train, sites=3, ranks=1, policy=policy | {"topology": way}, steps=6, inner="adamw", lr=0.01)
        for way in ("direct", topology)
    ]
    for straight, round_about in zip(*results, strict=True):
        assert torch.equal(straight[0]["parameters"], round_about[0]["parameters"])
        assert straight[0]["chain"] == round_about[0]["chain"]


class Telling:
    """A transfer that says so when it is done."""

    def __init__(self, work, tell):
        self._work, self._tell = work, tell

    def wait(self):
        """Until it is done."""
        self._work.wait()
        self._tell()


def hold_the_rest(sites, *, topology):
    """East sends the rest of its first payload only when north has the first slice."""
    model = network()
    policy = make_policy({"topology": topology, "chunk": "300 B"})
    geo = GeoOptimizer(inner_for("sgd", model, 0.1), policy, sites, timeout_s=10)
    channel, store = geo.engine._exchanger._channel, sites.store("test")
    east, north = (sites.names.index(name) for name in ("east", "north"))
    if sites.index == north:
        works = channel._posted[0, east]
        works[0] = Telling(works[0], lambda: store.set("first", "here"))
    if sites.index == east:
        send = channel._send

        def hold(fragment, round_, site, payload, i):
            if (round_, site, i) == (0, east, 1):
                store.wait(["first"], timedelta(seconds=5))
            return send(fragment, round_, site, payload, i)

        channel._send = hold
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    geo.step()
    geo.finish()
    geo.close()
    return geo.engine.chain


@pytest.mark.parametrize(
    "topology",
    [
        "ring",
        {"kind": "hub", "site": "west"},
        {"kind": "tree", "links": [["east", "west"], ["west", "north"]]},
    ],
)
def test_a_slice_goes_on_before_the_rest_of_its_payload_has_come(pool, topology):
    chains = pool.run(hold_the_rest, sites=3, ranks=1, topology=topology)
    assert len({row[0] for row in chains}) == 1


def damage_one(sites, *, topology, origin, where, at_round):
    """Train with a site that damages, in one round, what it passes on of another's payload."""
    model = network()
    geo = GeoOptimizer(inner_for("sgd", model, 0.1), make_policy({"topology": topology}), sites, timeout_s=2)
    channel = geo.engine._exchanger._channel
    if sites.name == where:
        send = channel._send

        def damaged(fragment, round_, site, payload, i):
            if round_ == at_round and sites.names[site] == origin:
                payload = payload.clone()
                payload[90] ^= 1
            return send(fragment, round_, site, payload, i)

        channel._send = damaged
    for _ in range(3):
        for param in model.parameters():
            param.grad = torch.ones_like(param)
        geo.step()
    geo.close()


@pytest.mark.parametrize(
    ("topology", "where", "said"),
    [
        ("ring", "west", {"north": "by 'west'", "south": "by 'west' and 'north'"}),
        ({"kind": "hub", "site": "north"}, "north", {"west": "by 'north'", "south": "by 'north'"}),
        ("tree", "west", {"south": "by 'west'"}),
    ],
)
def test_a_damaged_payload_names_its_origin_and_who_passed_it_on(pool, topology, where, said):
    errors = pool.errors(
        damage_one, sites=4, ranks=1, topology=topology, origin="east", where=where, at_round=1
    )
    by_site = {name: row[0] for name, row in zip(["east", "west", "north", "south"], errors, strict=True)}
    for name, way in said.items():
        error = by_site[name]
        assert isinstance(error, PayloadError | PeerLost)
        if isinstance(error, PayloadError):
            assert str(error).startswith(f"site 'east', passed on {way}: ")
            assert "checksum" in str(error)
    assert any(isinstance(error, PayloadError) for error in by_site.values())


def leave_early(sites, *, topology, leaves):
    """A site is gone before its second exchange."""
    model = network()
    geo = GeoOptimizer(inner_for("sgd", model, 0.1), make_policy({"topology": topology}), sites, timeout_s=2)
    for step in range(3):
        if sites.name == leaves and step == 1:
            geo.engine._groups.clear()
            geo.engine._exchanger._channel._groups = []
            raise RunError("left")
        for param in model.parameters():
            param.grad = torch.ones_like(param)
        geo.step()


def test_a_lost_forwarder_is_named_with_whose_payload_it_held(pool):
    errors = pool.errors(
        leave_early, sites=3, ranks=1, topology={"kind": "hub", "site": "east"}, leaves="east"
    )
    for name, row in zip(("west", "north"), errors[1:], strict=True):
        assert isinstance(row[0], PeerLost), (name, row[0])
        assert str(row[0]).startswith("site 'east'")
        assert "in round 1" in str(row[0])


@pytest.mark.parametrize("topology", ["ring", {"kind": "hub", "site": "west"}, "tree"])
@pytest.mark.parametrize("overlap", ["blocking", "delayed"])
def test_a_round_that_is_not_finite_is_skipped_by_all(pool, topology, overlap):
    policy = SPARSE | {"interval": 2, "overlap": overlap, "topology": topology}
    options = {"steps": 8, "inner": "adamw", "lr": 0.01, "faults": (("west", 3),)}
    results = pool.run(train, sites=3, ranks=1, policy=policy, **options)
    straight = pool.run(train, sites=3, ranks=1, policy=policy | {"topology": "direct"}, **options)
    for site, other in zip(results, straight, strict=True):
        assert site[0]["skipped"] == 1
        assert torch.equal(site[0]["parameters"], other[0]["parameters"])
        assert all(
            torch.equal(a, b) for a, b in zip(site[0]["residuals"], other[0]["residuals"], strict=True)
        )


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ({"kind": "hub", "site": "nowhere"}, "topology.site: no site is called 'nowhere'"),
        ({"kind": "ring", "order": ["east", "nowhere"]}, "topology.order: no site is called 'nowhere'"),
        ({"kind": "ring", "order": ["east"]}, "topology.order: leaves out site west"),
        ({"kind": "tree", "links": []}, "topology.links: leaves out site east"),
    ],
)
def test_a_topology_of_other_sites_is_refused(topology, words):
    sites = Sites(["east", "west"], "east", object())
    with pytest.raises(UsageError, match=words) as error:
        GeoOptimizer(inner_for("sgd", network(), 0.1), make_policy({"topology": topology}), sites)
    assert "\n" not in str(error.value)
