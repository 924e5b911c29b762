"""What a line of the StatsD protocol counts; the sums of lines: whole, no fraction lost, bounded; and how many packets
Linux has dropped, as its table of sockets says.
"""

import contextlib
import os
import socket
from fractions import Fraction
from random import Random

import pytest

from ingest.statsd.statsd import drops_in, kernel_drops
from ingest.statsd.tally import LARGE, MALFORMED, MILLION, TYPE, LineError, StatsdTally, read
from shared.config.lists import PLAIN, name_template
from shared.model.words import MAX_DELTA, MAX_SUM


@pytest.mark.parametrize(
    ("line", "name", "delta"),
    [
        ("a:1|c", "a", MILLION), ("a.b-c/d e:2|c", "a.b-c/d e", 2 * MILLION), ("a:-3|c", "a", -3 * MILLION),
        ("a:+3|c", "a", 3 * MILLION), ("a:0|c", "a", 0), ("a:1|c|@0.1", "a", 10 * MILLION),
        ("a:1|c|@0.3", "a", 3_333_333), ("a:2|c|@1", "a", 2 * MILLION), ("a:1|c|@1e-05", "a", 100_000 * MILLION),
        ("a:1.5|c", "a", 1_500_000), ("a:1|c|#x:y,z", "a", MILLION), ("a:1|c|#x:y|@0.5", "a", 2 * MILLION),
        ("a:1|c|@0.5|c:ci-4711|T1656581400", "a", 2 * MILLION), (f"a:{MAX_DELTA}|c", "a", MAX_DELTA * MILLION),
        ("é:1|c", "é", MILLION), (":1|c", "", MILLION),
    ],
)  # fmt: skip
def test_a_counter(line: str, name: str, delta: int) -> None:
    assert read(line, PLAIN) == (name, delta)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", MALFORMED), ("a", MALFORMED), ("a:1", MALFORMED), ("a:|c", MALFORMED), ("a|c", MALFORMED),
        ("a:x|c", MALFORMED), ("a:.|c", MALFORMED), ("a:1_0|c", MALFORMED), ("a: 1|c", MALFORMED),
        ("a:٣|c", MALFORMED), ("a:nan|c", MALFORMED), ("a:inf|c", MALFORMED), ("a:1:2|c", MALFORMED),
        ("a:1|c|@0", MALFORMED), ("a:1|c|@-1", MALFORMED), ("a:1|c|@1.5", MALFORMED), ("a:1|c|@x", MALFORMED),
        ("a:1|c|@nan", MALFORMED), (f"a:{'9' * 60}|c", MALFORMED), ("a:1|g", TYPE), ("a:+1|g", TYPE),
        ("a:1|ms|@0.1", TYPE), ("a:u|s", TYPE), ("a:1|h", TYPE), ("a:1|", TYPE), (f"a:{MAX_DELTA + 1}|c", LARGE),
        ("a:1e99|c", LARGE), ("a:1|c|@1e-99", LARGE),
    ],
)  # fmt: skip
def test_a_line_that_does_not_count(line: str, why: str) -> None:
    with pytest.raises(LineError) as error:
        read(line, PLAIN)
    assert error.value.why == why


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{name}", "hits"), ("{name}:{tag.host}", "hits:web-1"), ("{tag.env}/{name}:{tag.host}!", "prod/hits:web-1!"),
        ("{tag.host}", "web-1"), ("{name}{name}", "hitshits"), ("{name}:{tag.url}", "hits:http://x"),
        ("{name}:{tag.nothing}", "hits:"), ("{name}:{tag.flag}", "hits:"),
    ],
)  # fmt: skip
def test_a_template_makes_the_name(template: str, name: str) -> None:
    line = "hits:1|c|@0.5|#host:web-1,env:prod,flag,url:http://x"
    assert read(line, name_template(template)) == (name, 2 * MILLION)


@pytest.mark.parametrize(
    ("template", "prefix", "may"),
    [
        ("{name}", "statsd:", False), ("{name}", "statsd", True), ("{name}", "page/", True), ("{name}", ":", False),
        ("{name}", "a|b", True), ("statsd:{name}", "statsd:", True), ("statsd:{name}", "statsd:a.", True),
        ("statsd:{name}", "stat", True), ("statsd:{name}", "statsd:a:", False), ("app:{name}", "statsd:", False),
        ("{name}:{tag.host}", "statsd:", True), ("{name}:{tag.host}", "statsd:a:b", True),
        ("{name}:{tag.host}", "statsd:a,b", False), ("{name}:{tag.host}!", "a:b!c", True),
        ("{tag.url}", "http://x", True), ("{tag.a}", "a|", False), ("{name}-{name}:", "a-b:", True),
        ("{name}:x", "a:y", False), ("{name}:x", "a:xy", False), ("{name}:x", "a:x", True),
    ],
)  # fmt: skip
def test_whether_a_template_can_make_a_name_under_a_prefix(template: str, prefix: str, may: bool) -> None:
    assert name_template(template).may_begin_with(prefix) == may


@pytest.mark.parametrize("template", ["", "page", "{", "{name", "name}", "{}", "{tag.}", "{tag}", "{Name}", "{{name}}"])
def test_what_is_no_template(template: str) -> None:
    with pytest.raises(ValueError, match=r"\{"):
        name_template(template)


def test_no_bytes_make_it_fail_in_another_way() -> None:
    """A reader that fails would lose the rest of a packet."""
    good = 0
    for seed in range(20_000):
        random = Random(seed)
        text = [*random.choice(["a:1|c|@0.5|#x:y", "a:1|c", "é:-1.5e3|c|@1e-3", "a:9007199254740991|c|@0.1"])]
        for _ in range(random.randrange(4)):
            text[random.randrange(len(text))] = random.choice("a:|@#,.+-eE0123456789 \t\x00\x85é٣²")
        with contextlib.suppress(LineError):
            _, delta = read("".join(text), name_template("{name}{tag.x}"))
            assert abs(delta) <= MAX_DELTA * MILLION
            good += 1
    assert good > 5_000


ALL = 10**9


def test_what_is_taken_is_whole_and_the_rest_is_kept() -> None:
    tally = StatsdTally()
    for expected in (3, 4, 3, 3, 4, 3):
        assert tally.add(*read("a:1|c|@0.3", PLAIN))
        assert tally.take(1, ALL).sums == {"a": expected}


def test_sums_and_lines_stay_the_same_however_they_are_taken() -> None:
    for seed in range(200):
        random = Random(seed)
        tally = StatsdTally(most_names=5)
        added, lines = dict[str, int](), 0
        taken, counted = dict[str, int](), 0
        for _ in range(100):
            name, delta = random.choice("abcde"), random.randrange(-3 * MILLION, 3 * MILLION)
            if name in tally or not tally.is_full():
                assert tally.add(name, delta)
                added[name] = added.get(name, 0) + delta
                lines += 1
            if random.random() < 0.2:
                batch = tally.take(random.randrange(1, 4), random.randrange(1, 9))
                assert batch.increments == sum(batch.by_counter().values())
                counted += batch.increments
                for each, total in batch.sums.items():
                    taken[each] = taken.get(each, 0) + total
            assert tally.lines == lines - counted
        while tally.lines:
            batch = tally.take(2, 7)
            counted += batch.increments
            for each, total in batch.sums.items():
                taken[each] = taken.get(each, 0) + total
        assert counted == lines
        assert all(abs(Fraction(added[name], MILLION) - taken[name]) <= Fraction(1, 2) for name in added)


def test_a_counter_with_many_lines_is_taken_in_parts() -> None:
    tally = StatsdTally()
    for _ in range(25):
        tally.add("a", 2 * MILLION)
    tally.add("b", MILLION)
    first, second, third = (tally.take(5, 10) for _ in range(3))
    assert (first.sums, first.counts, first.increments) == ({"a": 50}, {"a": 10}, 10)
    assert (second.sums, second.counts) == ({"b": 1, "a": 0}, {"a": 9})
    assert (third.sums, third.counts, third.increments) == ({"a": 0}, {"a": 6}, 6)
    assert (tally.lines, "a" in tally) == (0, False)


def test_it_has_room_for_so_many_names_and_keeps_so_many_rests() -> None:
    tally = StatsdTally(most_names=2)
    for name in "abc":
        tally.add(name, MILLION // 4)
        tally.take(1, ALL)
    for name in "ab":
        assert not tally.is_full()
        tally.add(name, MILLION // 4)
    assert tally.is_full()
    assert tally.take(9, ALL).sums == {"a": 0, "b": 1}  # the rest of the first one had to go


def test_a_sum_stays_within_what_can_be_sent() -> None:
    tally = StatsdTally()
    assert tally.add("a", (MAX_SUM - 1) * MILLION)
    assert tally.add("a", MILLION)
    assert not tally.add("a", MILLION)
    assert tally.take(1, ALL).sums == {"a": MAX_SUM}


TABLE = """\
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
14682: 00000000:A04E 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 404695 2 0000daf5bef8 3
14877: 0100007F:E111 00000000:0000 07 00000000:00001B00 00:00000000 00000000     0        0 404694 2 00002bba2f72 997
"""


def test_the_row_of_the_socket_says_it() -> None:
    rows = TABLE.splitlines()
    assert [drops_in(rows, inode) for inode in (404695, 404694, 40469, 997)] == [3, 997, 0, 0]


def test_a_socket_that_is_in_no_table_has_none() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        assert kernel_drops(sock) == 0


def test_drops_of_a_real_socket() -> None:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sock.bind((host, 0))
        except OSError:  # a machine without IPv6
            assert family == socket.AF_INET6
            continue
        with sock, socket.socket(family, socket.SOCK_DGRAM) as sender:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.setblocking(False)
            assert kernel_drops(sock) == 0
            for _ in range(200):
                sender.sendto(b"x" * 100, sock.getsockname())
            received = 0
            while True:
                try:
                    sock.recv(1_000)
                except BlockingIOError:
                    break
                received += 1
            assert 0 < received < 200
            if os.path.exists("/proc/net/udp"):  # noqa: PTH110 (no other system has it)
                assert kernel_drops(sock) == 200 - received
