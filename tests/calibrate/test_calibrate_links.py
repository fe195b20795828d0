"""ping and iperf3: outputs of runs over an emulated WAN, held against what that WAN was told to be."""

import json
import math
from pathlib import Path

import pytest

from geosim.calibrate import combine, read_file
from geosim.errors import UsageError

FIXTURES = Path(__file__).parent / "fixtures"
MBIT = 125e3
# The WANs of make_fixtures.py. Packets of ping come further apart than two knots of the jitter's path: each
# draws anew from a uniform distribution of half width 2 ms.
CLEAN_RTT_S, CLEAN_RATE = 0.040, 100 * MBIT
UNEVEN_RTT_S, UNEVEN_JITTER_S, UNEVEN_LOSS = 0.020, 0.002 / math.sqrt(3), 0.002
UNEVEN_RATE, UNEVEN_BACK = 200 * MBIT, 50 * MBIT
# The relay and the scheduler of a busy machine hold a packet for some half a millisecond a round trip.
RELAY_S = 0.0007
# iperf3 counts a sender's bytes in blocks of 128 KiB, and what its socket holds: some per cent over 5 s.
RATE = 0.05


def values(name):
    return {v.field: v for v in read_file(FIXTURES / name).values}


def unknown(name):
    return " | ".join(u.text for u in read_file(FIXTURES / name).unknown)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("ping-iputils-clean.txt", "iputils"),
        ("ping-iputils-quiet.txt", "iputils"),
        ("ping-iputils-stopped.txt", "iputils"),
        ("ping-iputils-killed.txt", "iputils"),
        ("ping-busybox-clean.txt", "BusyBox"),
        ("ping-inetutils-clean.txt", "BSD, macOS or inetutils"),
    ],
)
def test_ping_reads_the_rtt_of_an_idle_link(name, version):
    reading = read_file(FIXTURES / name)
    assert (reading.kind, reading.version) == ("ping", version)
    read = values(name)
    assert CLEAN_RTT_S <= read["link.rtt"].value <= CLEAN_RTT_S + RELAY_S
    if "link.jitter" in read:
        assert read["link.jitter"].value < 0.0003
    if name != "ping-iputils-killed.txt":
        assert read["link.loss"].value == 0


def test_ping_reads_jitter_and_loss():
    read = values("ping-iputils-uneven.txt")
    assert UNEVEN_RTT_S <= read["link.rtt"].value <= UNEVEN_RTT_S + RELAY_S
    # 600 draws know a deviation to 1 / sqrt(1200) of it, 3 %; three times that.
    assert read["link.jitter"].value == pytest.approx(UNEVEN_JITTER_S, rel=0.09)
    # 3 of 600 round trips lost where 2.4 are expected: within two deviations of a Poisson count.
    assert 600 * 2 * read["link.loss"].value == pytest.approx(2.4, abs=2 * math.sqrt(2.4))


def test_loss_one_way_makes_the_loss_of_the_round_trip(tmp_path):
    file = tmp_path / "ping.txt"
    file.write_text(
        "5 packets transmitted, 4 received, 20% packet loss\nrtt min/avg/max/mdev = 1/2/3/0.5 ms\nPING a"
    )
    loss = {v.field: v.value for v in read_file(file).values}["link.loss"]
    assert 1 - (1 - loss) ** 2 == pytest.approx(0.2)


def test_ping_counts_a_double_once():
    reading = read_file(FIXTURES / "ping-iputils-doubles.txt")
    assert [f.text for f in reading.facts if f.name == "duplicates"] == ["7"]
    assert "mean of 8 replies" in {v.field: v for v in reading.values}["link.rtt"].note


def test_ping_of_macos(tmp_path):
    """The format of its manual page; no Mac was at hand."""
    file = tmp_path / "ping.txt"
    lines = [f"64 bytes from 192.0.2.1: icmp_seq={i} ttl=57 time={40 + i % 2}.000 ms" for i in range(20)]
    head = ["PING example.org (192.0.2.1): 56 data bytes", *lines, "Request timeout for icmp_seq 20"]
    tail = [
        "",
        "--- example.org ping statistics ---",
        "21 packets transmitted, 20 packets received, 4.8% packet loss",
    ]
    end = ["round-trip min/avg/max/stddev = 40.000/40.500/41.000/0.500 ms", ""]
    file.write_text("\n".join([*head, *tail, *end]))
    read = {v.field: v.value for v in read_file(file).values}
    assert read["link.rtt"] == pytest.approx(0.0405)
    assert read["link.jitter"] == pytest.approx(0.0005 / math.sqrt(2))
    assert read["link.loss"] == pytest.approx(1 - math.sqrt(20 / 21))


@pytest.mark.parametrize(
    ("name", "field", "truth"),
    [
        ("clean-forward", "bandwidth", CLEAN_RATE),
        ("clean-cubic", "bandwidth", CLEAN_RATE),
        ("clean-bbr", "bandwidth", CLEAN_RATE),
        ("clean-omit", "bandwidth", CLEAN_RATE),
        ("clean-streams", "bandwidth", CLEAN_RATE),
        ("clean-reverse", "back_bandwidth", CLEAN_RATE),
        ("clean-bidir", "bandwidth", CLEAN_RATE),
        ("clean-bidir", "back_bandwidth", CLEAN_RATE),
        ("clean-udp-over", "bandwidth", CLEAN_RATE),
        ("server", "bandwidth", CLEAN_RATE),
        ("stopped", "bandwidth", CLEAN_RATE),
        ("uneven-forward", "bandwidth", UNEVEN_RATE),
        ("uneven-one", "bandwidth", UNEVEN_RATE),
        ("uneven-reverse", "back_bandwidth", UNEVEN_BACK),
    ],
)
def test_iperf3_reads_the_bandwidth_of_the_wire(name, field, truth):
    found = values(f"iperf3-{name}.json")[f"link.{field}"]
    # Both ways at once queue acknowledgements behind data.
    assert found.value == pytest.approx(truth, rel=RATE if "bidir" not in name else 0.08)
    other = {"bandwidth": "back_bandwidth", "back_bandwidth": "bandwidth"}[field]
    if "bidir" not in name:
        assert f"link.{other}" not in values(f"iperf3-{name}.json")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("clean-window", "-w held the window"),
        ("clean-bidir", "both ways were busy"),
        ("clean-short", "it ended before slow start did"),
        ("uneven-cubic", "cubic gave way to loss"),
    ],
)
def test_iperf3_says_where_the_link_may_carry_more(name, why):
    found = values(f"iperf3-{name}.json")["link.bandwidth"]
    assert f"at least, as {why}" in found.note
    assert found.at_least
    assert found.text.startswith("≥ ")
    assert found.trust < values("iperf3-clean-forward.json")["link.bandwidth"].trust


def test_a_held_back_run_decides_only_where_all_were():
    window, short, whole = (
        read_file(FIXTURES / f"iperf3-{n}.json") for n in ("clean-window", "clean-short", "clean-cubic")
    )
    for readings in ([window, short, whole], [whole, window], [short, whole]):
        assert combine(readings).files_of("link.bandwidth") == (whole.file,)
    lossy = read_file(FIXTURES / "iperf3-uneven-cubic.json")
    held = next(c for c in combine([window, lossy]).choices if c.value.field == "link.bandwidth")
    assert (held.files, held.value.at_least) == ((lossy.file,), True)


def test_two_hosts_may_run_two_congestion_controls():
    combined = combine([read_file(FIXTURES / f"iperf3-clean-{n}.json") for n in ("cubic", "reverse")])
    assert combined.files_of("link.congestion_control") == ()
    assert "a link has one for both ways" in combined.unknown[0]


def test_udp_reads_loss_below_the_bandwidth_and_bandwidth_above():
    below, lossy, above = (values(f"iperf3-{n}.json") for n in ("clean-udp", "uneven-udp", "clean-udp-over"))
    assert below["link.loss"].value == 0
    assert "link.bandwidth" not in below
    # 27 of 13,811 where 27.6 are expected.
    assert lossy["link.loss"].value == pytest.approx(UNEVEN_LOSS, rel=3 / math.sqrt(27.6))
    assert "link.loss" not in above


def test_retransmits_are_no_loss():
    """BBR drops 11 % at its own queue on a link that loses nothing."""
    assert "link.loss" not in values("iperf3-clean-streams.json")
    assert "loss: retransmits are also of what a full queue drops" in unknown("iperf3-clean-streams.json")


def test_iperf3_reads_mtu_and_congestion_control():
    read = values("iperf3-clean-cubic.json")
    assert (read["link.mtu"].value, read["link.congestion_control"].value) == (1500, "cubic")
    assert values("iperf3-clean-bbr.json")["link.congestion_control"].value == "bbr"


def test_a_stopped_run_says_so():
    assert "the rest of the run: iperf3 was stopped (interrupt" in unknown("iperf3-stopped.json")


def test_ping_and_iperf3_make_one_link():
    names = (
        "ping-iputils-uneven.txt",
        "iperf3-uneven-forward.json",
        "iperf3-uneven-reverse.json",
        "iperf3-uneven-udp.json",
    )
    chosen = {c.value.field: c for c in combine([read_file(FIXTURES / n) for n in names]).choices}
    assert chosen["link.rtt"].files == (str(FIXTURES / names[0]),)
    assert chosen["link.jitter"].files == (str(FIXTURES / names[0]),)
    assert chosen["link.loss"].files == (str(FIXTURES / names[3]),)
    assert chosen["link.bandwidth"].value.value == pytest.approx(UNEVEN_RATE, rel=RATE)
    assert chosen["link.back_bandwidth"].value.value == pytest.approx(UNEVEN_BACK, rel=RATE)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("iperf3-refused.json", "measured nothing: unable to connect to server: Connection refused"),
        ("ping-iputils-silent.txt", "no reply: 3 packets sent, 0 received"),
        ("ping-busybox-silent.txt", "no reply: 2 packets sent, 0 received"),
    ],
)
def test_a_run_without_an_answer_is_refused(name, says):
    with pytest.raises(UsageError, match=says):
        read_file(FIXTURES / name)


def changed(tmp_path, name, change):
    data = json.loads((FIXTURES / name).read_text())
    change(data)
    file = tmp_path / "iperf3.json"
    file.write_text(json.dumps(data))
    return file


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda d: d["start"].update(version="iperf 2.1.9"),
            "start.version: 'iperf 2.1.9' is unknown: known is iperf 3.x",
        ),
        (lambda d: d["start"].pop("version"), "start.version: none is unknown"),
        (lambda d: d["start"]["test_start"].update(protocol="SCTP"), "SCTP is unknown"),
        (
            lambda d: d["intervals"][2]["sum"].update(bytes="many"),
            "intervals.2.sum.*bytes: a number of 0 or more is expected",
        ),
        (lambda d: [i["sum"].update(bytes=0) for i in d["intervals"]], "no byte went through"),
    ],
)
def test_an_iperf3_file_that_is_not_as_it_should_be(tmp_path, change, says):
    with pytest.raises(UsageError, match=says):
        read_file(changed(tmp_path, "iperf3-clean-forward.json", change))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Connecting to host 10.0.0.1, port 5201\n[  5] 0.00-1.00 sec\n", "text output: run iperf3 with -J"),
        ("Pinging 10.0.0.1 with 32 bytes of data:\nReply from 10.0.0.1: bytes=32 time=12ms\n", "Windows"),
        ("PING a (10.0.0.1) 56(84) bytes of data.\n", "no replies and no known summary"),
        ("PING a (1.1.1.1)\nPING b (1.1.1.1)\n", "several runs of ping"),
        ("PING a (1.1.1.1)\n3 packets transmitted, 9 received, 0% packet loss\n", "9 of 3 packets"),
        ("PING a (1.1.1.1)\nrtt min/avg/max/mdev = 3/2/1/1 ms\n", "not a least, mean and largest time"),
    ],
)
def test_text_that_is_refused(tmp_path, text, says):
    file = tmp_path / "file.txt"
    file.write_text(text)
    with pytest.raises(UsageError, match=says):
        read_file(file)
