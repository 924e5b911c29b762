"""StatsD lines over UDP and TCP: what counts, through which door, and what happens to the rest."""

import asyncio
import contextlib
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import statsd as library  # type: ignore[import-untyped] # it has no types

from countersink_server.serve.sockets import Address, listening
from ingest.access.keys import make
from ingest.statsd import statsd
from ingest.statsd.statsd import LONGEST_LINE, Statsd
from shared.config.settings import Settings
from shared.model.errors import SettingsError, TransientError
from shared.runtime import metrics
from tests.http.both_ways import poll
from tests.http.faults import failing
from tests.http.keys import authorization, keys_file
from tests.http.service import Service, running


def uncounted() -> dict[str, float]:
    return {why: metrics.STATSD_UNCOUNTED.labels(why).get() for why in metrics.WHYS}


class Lines:
    """A service that counts lines, and a way to send them."""

    def __init__(self, service: Service, address: tuple[str, int], udp: socket.socket) -> None:
        self.service = service
        self.address = address
        self.udp = udp
        self.all = dict[str, str]()
        """Headers with a key that may do everything."""
        self.statsd: Statsd = service.ingest.statsd
        self._lines = metrics.STATSD_LINES.get()
        self._uncounted = uncounted()

    def send(self, *packets: bytes) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for packet in packets:
                sock.sendto(packet, self.address)

    def seen(self) -> int:
        return int(metrics.STATSD_LINES.get() - self._lines)

    def lost(self) -> dict[str, int]:
        return {why: int(n - self._uncounted[why]) for why, n in uncounted().items() if n > self._uncounted[why]}

    async def until_seen(self, lines: int) -> None:
        await poll(lambda: self.seen() == lines)

    async def totals(self) -> dict[str, int]:
        """With all lines that were seen."""
        await self.statsd.sender.send_all()
        return await self.service.totals()

    async def counted(self, *packets: bytes) -> dict[str, int]:
        """The totals after these packets, and all before."""
        before = self.seen()
        self.send(*packets)
        await self.until_seen(before + sum(len(packet.split(b"\n")) for packet in packets))
        return await self.totals()

    async def hangs_up(self, *pieces: bytes, ends: bool = False) -> None:
        """The service ends the connection over which these come, and says nothing."""
        reader, writer = await asyncio.open_connection(*self.address)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError):
            if ends:
                writer.write_eof()
            assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


@contextlib.asynccontextmanager
async def lines_of(folder: Path, **settings: Any) -> AsyncIterator[Lines]:
    async with running(folder, **settings) as service:
        with listening(None, None, Address("127.0.0.1", 0, "statsd-"), keys=False) as sockets:
            assert sockets.statsd is not None
            await service.ingest.statsd.start(sockets.statsd)
            try:
                yield Lines(service, sockets.statsd.udp.getsockname(), sockets.statsd.udp)
            finally:
                await service.ingest.statsd.stop()


@pytest.fixture
async def lines(tmp_path: Path) -> AsyncIterator[Lines]:
    async with lines_of(tmp_path) as it:
        yield it


async def test_a_library_counts_over_udp_and_tcp(lines: Lines) -> None:
    udp = library.StatsClient(*lines.address)
    tcp = library.TCPStatsClient(*lines.address)
    for client in (udp, tcp):
        for _ in range(10):
            client.incr("visits")
        client.incr("visits", 5)
        client.decr("left", 2)
        with client.pipeline() as pipe:
            for number in range(30):
                pipe.incr(f"page.{number % 3}", 2)
        client.close()
    await lines.until_seen(84)
    totals = {"left": -4, "page.0": 40, "page.1": 40, "page.2": 40, "visits": 30}
    assert await lines.totals() == totals
    await lines.service.apply()
    assert await lines.service.totals() == totals
    assert lines.lost() == {}


async def test_many_lines_in_a_packet_count_and_others_are_counted_as_lost(lines: Lines) -> None:
    packet = b"a:1|c\nb:2|c|@0.5\r\ng:1|g\nt:1|ms\nbroken\n\xff:1|c\n__a__:1|c\n:1|c\na\x01b:1|c\nc:1e99|c\na:4|c"
    assert await lines.counted(packet) == {"a": 5, "b": 4}
    assert lines.lost() == {"type": 2, "malformed": 2, "name": 3, "large": 1}
    assert await lines.counted(b"a:1|c\n\n \r\n".strip()) == {"a": 6, "b": 4}
    lines.send(b"", b"\n\n")
    assert await lines.counted(b"a:1|c") == {"a": 7, "b": 4}
    assert lines.seen() == 13


STUN: Final = b"\x00\x01\x00\x14\x21\x12\x24\x42" + b"transaction!" + b"\x00\x06\x00\x0c" + b"\na:1|c\nb:2|c\n"
"""As a browser sends it for a page that chose the user's name."""


async def test_what_a_browser_sends_for_webrtc_counts_nothing(lines: Lines) -> None:
    lines.send(STUN, b"a:1|c\n\0", b"a:1|c\n" * 2_000 + b"\0")
    await lines.until_seen(3)
    _, writer = await asyncio.open_connection(*lines.address)
    with contextlib.closing(writer):
        writer.write(STUN + b"a:1|c\n")
        await lines.until_seen(4)
    assert await lines.counted(b"c:1|c") == {"c": 1}
    assert lines.lost() == {"malformed": 4}


def has_begun(lines: Lines, line: bytes) -> bool:
    """Whether the only connection has sent this of a line that has no end yet."""
    return [stream._line for stream in lines.statsd.streams._open] == [line]


async def test_a_stream_may_come_in_pieces(lines: Lines) -> None:
    reader, writer = await asyncio.open_connection(*lines.address)
    for piece, begun in ((b"a:", b"a:"), (b"1|c\na:2|", b"a:2|"), (b"c\n", b""), (b"a:4|c\na:8|c", b"a:8|c")):
        writer.write(piece)
        await poll(partial(has_begun, lines, begun))
    await lines.until_seen(3)
    writer.write_eof()
    await lines.until_seen(4)
    assert await reader.read() == b""  # it says nothing, and hangs up
    writer.close()
    assert await lines.totals() == {"a": 15}


HTTP: Final = {
    "POST": b"POST / HTTP/1.1\r\nHost: 127.0.0.1:8125\r\nOrigin: https://evil.example\r\n\r\nstolen:1|c\n",
    "a path that is a line": b"GET /a:1|c|# HTTP/1.1\r\nHost: x\r\nX: 1\r\n\r\n",
    "a path that is a line of another type": b"GET /a:1|g HTTP/1.1\r\n\r\nstolen:1|c\n",
    "behind an empty line": b"\r\n\nPUT /a:1|c|# HTTP/1.0\r\n\r\nstolen:1|c\n",
    "without an end": b"GET /a:1|c|# HTTP/1.1",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nstolen:1|c\n",
    "TLS": b"\x16\x03\x01\x02\x00\nstolen:1|c\n",
}


@pytest.mark.parametrize("pieces", ["whole", "in pieces"])
async def test_web_pages_count_nothing(lines: Lines, pieces: str) -> None:
    """A page of any site can make a browser send a request to the port, and choose its body."""
    for number, (what, data) in enumerate(HTTP.items(), 1):
        sent = [data] if pieces == "whole" else [data[n : n + 1] for n in range(len(data))]
        await lines.hangs_up(*sent, ends=not data.endswith(b"\n"))
        await lines.statsd.sender.send_all()
        assert (lines.seen(), lines.lost()) == (number, {"malformed": number}), what
    assert await lines.service.totals() == {}


@pytest.mark.parametrize("bad", [b"broken\na:4|c\na:8|c", b"x" * (LONGEST_LINE + 1)], ids=["malformed", "without end"])
async def test_a_stream_ends_at_its_first_bad_line(lines: Lines, bad: bytes) -> None:
    await lines.hangs_up(b"a:1|c\ng:1|g\n_sc|db|0\n_e{1,1}:a|b\n__x__:1|c\na:2|c\n" + bad)
    assert await lines.totals() == {"a": 3}
    assert (lines.seen(), lines.lost()) == (7, {"type": 3, "name": 1, "malformed": 1})


async def test_a_flood_leaves_turns_to_other_work(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many connections and UDP together, no more is read in a turn of the event loop than a few pieces."""
    turn, taken = 0, Counter[int]()
    take = lines.statsd._intake.take

    def noted(data: bytes, *, strictly: bool = False) -> bool:
        taken[turn] += len(data)
        return take(data, strictly=strictly)

    monkeypatch.setattr(lines.statsd._intake, "take", noted)
    much = b"a:1|c\n" * 10_000
    opened = [await asyncio.open_connection(*lines.address) for _ in range(20)]
    for _, writer in opened:
        writer.write(much)
    lines.send(*[much[:60_000]] * 3)
    lines.send(*[b"a:1|c"] * 2_000)
    async with asyncio.timeout(60):
        while lines.seen() < 20 * 10_000 + 3 * 10_000:
            turn += 1
            await asyncio.sleep(0)
    assert max(taken.values()) <= statsd.MOST_IN_A_TURN + statsd.PIECE
    for _, writer in opened:
        writer.close()
    assert (await lines.totals())["a"] == lines.seen()


async def test_the_most_silent_connection_makes_room_for_another(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statsd, "MOST_STREAMS", 3)
    opened = [await asyncio.open_connection(*lines.address) for _ in range(3)]
    opened[0][1].write(b"a:1|c\n")
    await lines.until_seen(1)
    opened.append(await asyncio.open_connection(*lines.address))
    assert await asyncio.wait_for(opened[1][0].read(), 60) == b""
    for number in (0, 2, 3):
        opened[number][1].write(b"a:1|c\n")
    await lines.until_seen(4)
    for _, writer in opened:
        writer.close()


@pytest.fixture
async def limited(tmp_path: Path) -> AsyncIterator[Lines]:
    """With a key that may count under a prefix, and so many increments a second."""
    file, keys = keys_file(
        tmp_path, all={}, lines={"scopes": ["write"], "prefixes": ["app."], "rate": 10.0, "owner": "app"}
    )
    async with lines_of(tmp_path, keys_file=str(file), statsd_key=keys["lines"]) as it:
        it.all = authorization(keys["all"])
        yield it


async def value(lines: Lines, name: str) -> int:
    target = f"/v1/counters/{name}?max_age=0"
    found: int = (await lines.service.ask("GET", target, headers=lines.all)).json["value"]
    return found


async def test_the_prefixes_and_the_rate_of_the_key_hold(
    limited: Lines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(statsd, "LONGEST_PAUSE", 0.1)
    bucket = limited.statsd._enter().bucket
    assert bucket is not None
    limited.send(b"app.a:1|c\nother:1|c\n" + b"app.a:1|c\n" * 1_999)
    await limited.until_seen(2_001)
    assert limited.lost() == {"prefix": 1}
    await limited.statsd.sender.send_all()
    assert await value(limited, "app.a") == 2_000
    assert bucket._held < -1_000  # a batch may be larger than what the rate allows now: others have to wait for it
    limited.send(b"app.b:1|c")
    await limited.until_seen(2_002)
    sending = asyncio.create_task(limited.statsd.sender.send_all())
    await poll(lambda: "more than its 10 increments a second" in caplog.text)
    limited.send(b"app.b:1|c")
    await limited.until_seen(2_003)
    assert (limited.statsd.sender.lines, await value(limited, "app.b")) == (2, 0)
    bucket._held = 10.0
    await sending
    assert (await value(limited, "app.b"), await value(limited, "other")) == (2, 0)
    assert limited.lost() == {"prefix": 1}


async def test_a_key_that_is_revoked_counts_nothing(limited: Lines) -> None:
    keys_file(Path(str(limited.service.ingest._settings.keys_file)).parent, other={})
    assert limited.service.ingest._doors._ring is not None
    await limited.service.ingest._doors._look()
    limited.send(b"app.a:1|c\napp.a:1|c")
    await limited.until_seen(2)
    await limited.statsd.sender.send_all()
    assert limited.lost() == {"key": 2}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "send a key"),
        ("csk_lines_0", "not valid"),
        ("read", "needs the scope write"),
        ("cpk", "may only count, from pages of its origins"),
    ],
)
async def test_a_key_that_may_not_count_ends_the_start(tmp_path: Path, key: str, says: str) -> None:
    file, keys = keys_file(
        tmp_path,
        read={"scopes": ["read"]},
        cpk={"scopes": ["write"], "prefixes": ["a"], "origins": ["https://a.example"], "publishable": True},
    )
    with pytest.raises(SettingsError, match=f"COUNTERSINK_STATSD_KEY: .*{says}"):
        async with lines_of(tmp_path, keys_file=str(file), statsd_key=keys.get(key, key)):
            pass


async def test_a_key_under_whose_prefixes_no_line_can_count_ends_the_start(tmp_path: Path) -> None:
    file, keys = keys_file(tmp_path, lines={"scopes": ["write"], "prefixes": ["statsd:", "it's:"]}, all={})
    settings = {"keys_file": str(file), "statsd_key": keys["lines"]}
    with pytest.raises(
        SettingsError, match=r"begin with 'statsd:' or .*with COUNTERSINK_STATSD_NAME='statsd:\{name\}'"
    ):
        async with lines_of(tmp_path, **settings):
            pass
    async with lines_of(tmp_path, **settings, statsd_name="statsd:{name}") as lines:
        lines.all = authorization(keys["all"])
        lines.send(b"a:1|c")
        await lines.until_seen(1)
        await lines.statsd.sender.send_all()
        assert (await value(lines, "statsd:a"), lines.lost()) == (1, {})


async def test_that_a_prefix_loses_lines_is_said_once_for_each_key(
    limited: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    assert limited.statsd._caller is not None
    said = "a StatsD line was not counted: the key lines may not use the counter 'other'. Put a prefix"
    limited.send(b"app.a:1|c\nother:1|c\nother:1|c", b"another:1|c")
    await limited.until_seen(4)
    assert caplog.text.count("was not counted") == caplog.text.count(said) == 1
    limited.statsd._caller = limited.statsd._caller._replace(key=make(id="b", scopes=["write"], prefixes=["b"])[0])
    limited.send(b"other:1|c")
    await limited.until_seen(5)
    assert caplog.text.count("was not counted") == 2
    assert limited.lost() == {"prefix": 4}


async def test_new_names_have_the_limit_of_any_request(tmp_path: Path) -> None:
    limits = Settings.read({"COUNTERSINK_MAX_COUNTERS": "=2"}).max_counters
    async with lines_of(tmp_path, max_counters=limits) as lines:
        assert await lines.counted(b"a:1|c\nb:1|c\nc:1|c\nc:1|c\na:1|c") == {"a": 2, "b": 1}
        assert lines.lost() == {"new-name": 2}


async def test_names_that_are_made_up_take_no_more_than_their_room(lines: Lines) -> None:
    lines.statsd.tally._most_names = 3
    totals = await lines.counted(b"\n".join(b"n%d:1|c" % number for number in range(10)) + b"\nn0:1|c")
    assert totals == {"n0": 2, "n1": 1, "n2": 1}
    assert lines.lost() == {"room": 7}
    assert await lines.counted(b"n9:1|c") == totals | {"n9": 1}


@pytest.mark.parametrize("taken", [False, True])
async def test_what_could_not_be_published_is_sent_again_and_counts_once(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, *, taken: bool
) -> None:
    publisher: Any = lines.service.ingest.publishing._publisher
    publish = publisher.publish
    failures = 0

    async def fail(*arguments: Any) -> None:
        nonlocal failures
        if taken:
            await publish(*arguments)
        failures += 1
        if failures < 3:
            raise TransientError("nobody answers")
        await publish(*arguments)

    monkeypatch.setattr(publisher, "publish", fail)
    lines.send(b"a:1|c\na:1|c|@0.5")
    await lines.until_seen(2)
    await lines.statsd.sender.send_all()
    assert failures == 3
    await lines.service.apply()
    assert (await lines.service.totals(), lines.lost()) == ({"a": 3}, {})


async def test_what_has_come_is_published_before_the_end(lines: Lines) -> None:
    reader, writer = await asyncio.open_connection(*lines.address)
    writer.write(b"b:1|c\nb:2|c")
    await lines.until_seen(1)
    lines.send(*[b"a:1|c"] * 100)  # nobody has read them yet
    await lines.statsd.stop()
    assert await lines.service.totals() == {"a": 100, "b": 3}
    assert await reader.read() == b""
    writer.close()


async def test_what_can_not_be_published_before_the_end_is_said_to_be_lost(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = failing(TransientError("nobody answers"))
    monkeypatch.setattr(lines.service.ingest.publishing._publisher, "publish", fails)
    lines.send(b"a:1|c\na:1|c")
    await lines.until_seen(2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await lines.statsd.stop()
    assert lines.lost() == {"stop": 2}
    assert "2 StatsD lines are LOST" in caplog.text
    caplog.clear()


async def test_packets_that_the_kernel_drops_are_counted(lines: Lines) -> None:
    if not os.path.exists("/proc/net/udp"):  # noqa: ASYNC240, PTH110 (no other system tells)
        return
    before = metrics.STATSD_DROPPED.get()
    lines.udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    lines.send(*[b"a:1|c"] * 1_000)  # before the service gets a turn
    tending = asyncio.create_task(lines.statsd.tend())
    await poll(lambda: lines.seen() > 0 and metrics.STATSD_DROPPED.get() > before)
    tending.cancel()
    assert lines.seen() + metrics.STATSD_DROPPED.get() - before == 1_000
