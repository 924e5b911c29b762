"""The same bytes as a request and as a message count alike, or are refused for the same reason. docs/messages.md lists
the exceptions.
"""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from ingest.parsing import parse
from ingest.parsing.parse import BY_NAME, BodyError
from shared.model.buckets import BrokerMillis
from shared.model.errors import UnreadableError
from shared.model.receipts import key_of_envelope
from shared.model.words import MAX_DELTA, MAX_SUM, PART_ENTRIES, Delivery, Message
from shared.wire.codec import MAX_ITEMS, decode
from tests.http.fuzz import bodies
from tests.http.service import Service, running
from tests.meta.checkout import ROOT
from tests.world.flushing import Bench

PAGE: Final = ROOT / "docs" / "messages.md"
ROW: Final = re.compile(
    r"^\| ([^|]+) \| `+ ?(.+?) ?`+ \| (refused|counts `.+?`) \| (refused|counts `.+?`) \| .+ \|$", re.MULTILINE
)
BAD_AMONG_GOOD: Final = "a bad increment among good ones"
UNKNOWN_FIELD: Final = "an unknown field"
KEYED: Final = "`keyed`"
NOTHING: Final = "no increments in an object"
MANY_NAMES: Final = "more than 100,000 names in `counters`"
DELTA: Final = "the attribute `delta`"
COMPRESSED: Final = "compressed data"
FORM: Final = "a form"
CE: Final = {"ce-source": "//shop", "ce-id": "1"}
GZIP: Final = {"Content_Encoding": "gzip"}
SEEDS: Final = 1_000


@dataclass(frozen=True)
class Outcome:
    """What was counted, and why something was not."""

    totals: dict[str, int] = field(default_factory=dict)
    reason: str | None = None


@pytest.fixture(autouse=True)
def _no_error_is_logged() -> None:
    """A message that becomes a dead letter is logged as an error."""


async def posted(service: Service, body: bytes, **headers: Any) -> Outcome:
    """What this request added, and why not."""
    before = await service.totals()
    answer = await service.post("/v1/increments", body, **headers)
    reason = answer.json.get("detail")
    if rejected := answer.json.get("rejected"):
        first = rejected[0]
        where = f"item {first['index']}" if "index" in first else f"counter {first['counter'][:100]!r}"
        reason = f"{where}: {first['reason']}"
    return Outcome(await added(service, before), reason)


async def added(service: Service, before: dict[str, int]) -> dict[str, int]:
    await service.apply()
    after = {name: total - before.get(name, 0) for name, total in (await service.totals()).items()}
    return {name: difference for name, difference in after.items() if difference}


async def published(*messages: Message) -> Outcome:
    bench = Bench()
    await bench.broker.publish(messages)
    await bench.flusher.pull_once(0)
    await bench.flusher.flush_once()
    assert bench.broker.unburied() == 0
    names = await bench.store.names("", "", 2 * MAX_ITEMS)
    (reason,) = bench.broker.buried().values() or (None,)
    async with bench.store.snapshot() as snapshot:
        totals, _ = await snapshot.read(names, ())
    return Outcome({name: totals[name].value for name in names}, reason)


def as_of_a_message(reason: str | None, body: bytes) -> str | None:
    """A reason of HTTP in the words that a dead letter has. In an object there is no item to be named."""
    if reason is None:
        return None
    words = (
        ("no increment is valid; ", ""),
        (BY_NAME, ""),
        ("the body ", "the data "),
        ("one batch", "one message"),
        ("another batch", "another message"),
        ("or other values in one request", "in one message"),
        *([("item 0: ", "")] if body.strip().startswith(b"{") and b"}\n{" not in body else []),
    )
    for http, topic in words:
        reason = reason.replace(http, topic)
    return reason


def names(number: int) -> bytes:
    return json.dumps({"counters": {f"n{one}": 1 for one in range(number)}}).encode()


A: Final = b'{"counter": "a"}'
ALIKE: Final[dict[str, bytes]] = {
    "one increment": b'{"counter": "a", "delta": 2}',
    "no delta": A,
    "an id": b'{"counter": "a", "delta": 2, "id": "i"}',
    "id null": b'{"counter": "a", "id": null}',
    "id empty": b'{"counter": "a", "id": ""}',
    "id a number": b'{"counter": "a", "id": 7}',
    "id of 1,000 bytes": b'{"counter": "a", "id": "%s"}' % (b"i" * 1_000),
    "id of 1,001 bytes": b'{"counter": "a", "id": "%s"}' % (b"i" * 1_001),
    "delta 0": b'{"counter": "a", "delta": 0}',
    "delta -0": b'{"counter": "a", "delta": -0}',
    "delta negative": b'{"counter": "a", "delta": -3}',
    "delta the largest": b'{"counter": "a", "delta": %d}' % MAX_DELTA,
    "delta too large": b'{"counter": "a", "delta": %d}' % (MAX_DELTA + 1),
    "delta beyond 64 bits": b'{"counter": "a", "delta": %d}' % 2**70,
    "delta of 400 digits": b'{"counter": "a", "delta": 1%s}' % (b"0" * 400),
    "delta 1.0": b'{"counter": "a", "delta": 1.0}',
    "delta 1e3": b'{"counter": "a", "delta": 1e3}',
    "delta 1.5": b'{"counter": "a", "delta": 1.5}',
    "delta as text": b'{"counter": "a", "delta": "1"}',
    "delta a bool": b'{"counter": "a", "delta": true}',
    "delta null": b'{"counter": "a", "delta": null}',
    "delta NaN": b'{"counter": "a", "delta": NaN}',
    "delta Infinity": b'{"counter": "a", "delta": Infinity}',
    "delta 01": b'{"counter": "a", "delta": 01}',
    "delta an array": b'{"counter": "a", "delta": [1]}',
    "no counter": b'{"delta": 1}',
    "an empty object": b"{}",
    "counter null": b'{"counter": null}',
    "counter a number": b'{"counter": 1}',
    "counter empty": b'{"counter": ""}',
    "counter reserved": b'{"counter": "__x__"}',
    "counter a dot": b'{"counter": "."}',
    "counter with a control": b'{"counter": "a\\u0000"}',
    "counter of 400 bytes": b'{"counter": "%s"}' % ("é" * 200).encode(),
    "counter of 401 bytes": b'{"counter": "%s"}' % (b"a" * 401),
    "a lone surrogate": b'{"counter": "\\ud800"}',
    "two flaws": b'{"delta": "1", "counter": ""}',
    "a name twice": b'{"counter": "a", "counter": "b"}',
    "a name twice, over lines": b'{"counter": "a",\n"counter": "b"}',
    "an array": b'[{"counter": "a"}, {"counter": "b", "delta": 2}, {"counter": "a", "delta": 5}]',
    "an array with ids": b'[{"counter": "a", "id": "i"}, {"counter": "a", "id": "i"}, {"counter": "b", "id": "i"}]',
    "an array in an array": b'[[{"counter": "a"}]]',
    "an array of numbers": b"[1, 2]",
    "an array of null": b"[null]",
    "an array with a name twice": b'[{"counter": "a", "counter": "a"}]',
    "an empty array": b"[]",
    "an array that is cut off": b'[{"counter": "a"},\n{"counter": "b"}',
    "an array of more counters than fit into a commit": b"[%s]"
    % b",".join(b'{"counter": "c%d"}' % number for number in range(PART_ENTRIES + 1)),
    "an array of too many": b"[%s1]" % (b"1," * MAX_ITEMS),
    "lines": b'{"counter": "a"}\n{"counter": "b", "delta": 2}\n\n{"counter": "a"}\n',
    "lines with \\r\\n": b'{"counter": "a"}\r\n \t\r\n{"counter": "b"}\r\n',
    "one line": A + b"\n",
    "lines that are all bad": b'{"counter": ""}\n{"counter": "a", "delta": 1.0}\n',
    "lines of numbers": b"1\n2\n",
    "too many lines": b"1\n" * (MAX_ITEMS + 2),
    "too many empty lines": A + b"\n" * (MAX_ITEMS + 1) + A,
    "a map": b'{"counters": {"a": 2, "b": -3, "\\u00e9": 0}}',
    "a map over lines": b'{"counters": {\n"a": 2,\n"b": 3}}\n',
    "a map with a name twice": b'{"counters": {"a": 1, "a": 2}}',
    "a map of a bad delta": b'{"counters": {"a": 1.5}}',
    "a map of a delta as text": b'{"counters": {"a": "1"}}',
    "a map of a bad name": b'{"counters": {"__x__": 1}}',
    "counters an array": b'{"counters": ["a"]}',
    "counters null": b'{"counters": null}',
    "text": b'"a"',
    "a number": b"1",
    "null": b"null",
    "rubbish": b"rubbish",
    "single quotes": b"{'counter': 'a'}",
    "a comma too many": b'{"counter": "a",}',
    "bad UTF-8": b'{"counter": "\xff"}',
    "UTF-16": '{"counter": "a"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + A,
    "a vertical tab": b"\x0b" + A,
    "nested too deeply": b'{"counter": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
}
IN_OTHER_WORDS: Final = (
    (b'{"specversion": "1.0", "id": "i", "source": "s", "data": {"counter": "a"}}', "'counter' is missing"),
    (b'{"counters": {"a": 1}, "counter": "b"}', "'counter' can't be combined with 'counters' or 'keyed'"),
    (b'{"keyed": [{"counter": "a"}]}', "each item of 'keyed' needs an 'id'"),
    (b'{"keyed": [{"counter": "a", "id": "i"}, 7]}', "'keyed' item 1: must be an object with 'counter'"),
    (b'{"keyed": {}}', "'keyed' must be an array of increments"),
    (b" \n", "a message without data needs the attribute 'counter'"),
    (b"", "a message without data needs the attribute 'counter'"),
)
"""Refused by both, for the topic's own reasons."""
DIFFERENT: Final[list[tuple[str, bytes]]] = [
    (BAD_AMONG_GOOD, b'[{"counter": "a"}, {"counter": "b", "delta": 1.0}]'),
    (BAD_AMONG_GOOD, b'[{"counter": "a"}, 7]'),
    (BAD_AMONG_GOOD, b'{"counter": "a"}\n{"counter": "b"\n'),
    (BAD_AMONG_GOOD, b'\xef\xbb\xbf{"counter": "a"}\n{"counter": "b"}\n'),
    (BAD_AMONG_GOOD, b'{"counters": {"a": 1, "": 1}}'),
    (
        BAD_AMONG_GOOD,
        b"[%s]" % b",".join([b'{"counter": "a", "delta": %d}' % MAX_DELTA] * (MAX_SUM // MAX_DELTA + 1)),
    ),
    (UNKNOWN_FIELD, b'{"counter": "a", "colour": "red"}'),
    (UNKNOWN_FIELD, b'[{"counter": "a", "colour": "red"}]'),
    (UNKNOWN_FIELD, b'{"counters": {"a": 1}, "created": 7}'),
    (KEYED, b'{"counters": {"a": 1}, "keyed": [{"counter": "b", "id": "i"}]}'),
    (KEYED, b'{"keyed": [{"counter": "b", "id": "i"}]}'),
    (NOTHING, b'{"counters": {}}'),
    (MANY_NAMES, names(MAX_ITEMS + 1)),
]


OF_ZERO = {ALIKE["delta 0"], ALIKE["delta -0"]}
"""They are good, and make no counter."""


def alike() -> Iterator[tuple[str, bytes]]:
    """Each with ids of its own, so that one service can count all of them."""
    for what, body in ALIKE.items():
        yield what, body.replace(b'"i"', b'"%b"' % what.encode())


async def test_a_message_is_as_good_as_a_request(service: Service) -> None:
    for what, body in alike():
        http, topic = await posted(service, body), await published(Message(body))
        assert topic.totals == http.totals, what
        assert topic.reason == as_of_a_message(http.reason, body), what
        if body in OF_ZERO:
            assert (topic.totals, topic.reason) == ({}, None), what
        else:
            assert bool(topic.totals) != bool(topic.reason), what


async def test_what_no_request_may_be_is_no_message_either(service: Service) -> None:
    for body, reason in IN_OTHER_WORDS:
        assert (await posted(service, body)).totals == {}, body
        assert await published(Message(body)) == Outcome({}, reason)


async def test_a_difference_is_one_of_those_on_the_page(service: Service) -> None:
    for difference, body in DIFFERENT:
        http, topic = await posted(service, body), await published(Message(body))
        assert difference in differences(), body
        assert topic.totals != http.totals or difference is NOTHING, body
        if difference is BAD_AMONG_GOOD:
            assert http.totals, body
            assert topic == Outcome({}, as_of_a_message(http.reason, b"")), body
        else:
            assert (http.totals, topic.reason) == ({}, None), body
            assert http.reason, body


def differences() -> dict[str, tuple[str, Outcome, Outcome]]:
    """The rows on the page: an example, and what it does over HTTP and on the topic."""

    def outcome(text: str) -> Outcome:
        counted = text.split("`")[1].replace(", …", "") if "`" in text else None
        return Outcome(reason="refused") if counted is None else Outcome(json.loads(counted))

    return {
        what: (example, outcome(http), outcome(topic)) for what, example, http, topic in ROW.findall(PAGE.read_text())
    }


async def test_the_examples_of_differences_do_what_the_page_says(tmp_path: Path) -> None:
    seen = {}
    for number, (what, (example, http, topic)) in enumerate(differences().items()):
        seen[what] = number
        if what in {MANY_NAMES, DELTA}:
            continue
        headers = GZIP if what == COMPRESSED else {}
        body = gzip.compress(example.encode()) if headers else example.encode()
        (folder := tmp_path / str(number)).mkdir()
        async with running(folder) as service:
            by_http, by_topic = await posted(service, body, **headers), await published(Message(body))
        assert (by_http.totals, by_topic.totals) == (http.totals, topic.totals), what
        assert bool(by_topic.reason) == bool(topic.reason), what
    assert {*seen} == {what for what, _ in DIFFERENT} | {DELTA, COMPRESSED, FORM}


async def test_one_increment_is_as_good_as_a_request_for_its_counter(service: Service) -> None:
    several: list[dict[str, Any]] = [{}, {"delta": 5}, {"delta": 0}, {"delta": 5, "id": "i"}, {"id": None}, {"id": ""}]
    for fields in [*several, *({"delta": wrong} for wrong in ("5", 5.0, True, None, MAX_DELTA + 1))]:
        before = await service.totals()
        answer = await service.incr("a", json.dumps(fields).encode())
        topic = await published(Message(json.dumps({"counter": "a"} | fields).encode()))
        assert topic == Outcome(await added(service, before), answer.json.get("detail")), fields


async def test_an_attribute_delta_is_as_good_as_one_in_a_query(service: Service) -> None:
    for delta in ("5", "-5", "+5", "0", str(MAX_DELTA), str(MAX_DELTA + 1), "", "x", "1.0", "1e3", "5x"):
        before = await service.totals()
        answer = await service.incr("a", query="?by=" + delta.replace("+", "%2B"))
        topic = await published(Message(b"", {"counter": "a", "delta": delta}))
        assert topic.totals == await added(service, before), delta
        assert bool(topic.reason) == (answer.status == 422), delta


async def test_an_attribute_delta_may_be_written_in_more_ways(service: Service) -> None:
    example, http, topic = differences()[DELTA]
    assert (await service.incr("a", query=f"?by={example}")).status == 422
    assert (http.reason, topic.totals) == ("refused", {"a": int(example)})
    assert await published(Message(b"", {"counter": "a", "delta": example})) == topic


@pytest.mark.parametrize("data", [b'[{"counter": "a"}, {"counter": "a"}]', b'{"counter": "a"}\n{"counter": "a"}'])
def test_an_array_has_the_receipt_that_any_form_has(data: bytes) -> None:
    """So a dead letter of a version that could not read it counts once, if that version's flusher did not acknowledge
    the message either.
    """
    (one,) = decode(Delivery("1", Message(data), "7", BrokerMillis(5)), "t")
    (other,) = decode(Delivery("2", Message(data, {"ce-id": "i", "ce-source": "s"}), "8", BrokerMillis(6)), "t")
    assert (one.key, other.key) == (key_of_envelope("msg:t:7:5"), key_of_envelope("ce:1:si"))
    assert (one.sums, one.counts, one.increments) == ({"a": 2}, {"a": 2}, 2)


async def test_an_array_that_is_delivered_or_published_again_counts_once() -> None:
    data = b'[{"counter": "a"}, {"counter": "a", "id": "i"}, {"counter": "b", "delta": 3}]'
    again = Message(data, CE)
    assert await published(again, again, again) == Outcome({"a": 2, "b": 3})
    assert await published(Message(data), Message(data)) == Outcome({"a": 3, "b": 6})


async def test_a_refused_message_can_be_published_again_with_its_id() -> None:
    bad, good = Message(b'[{"counter": "a"}, {"counter": ""}]', CE), Message(b'[{"counter": "a"}]', CE)
    assert await published(bad, good, good) == Outcome({"a": 1}, "item 1: 'counter' must not be empty")


async def test_the_first_of_two_messages_with_one_id_counts() -> None:
    assert await published(Message(A, CE), Message(b'{"counter": "b"}', CE)) == Outcome({"a": 1})


@pytest.mark.parametrize("attributes", [{"ce-id": "1"}, {"ce-source": "", "ce-id": "1"}, {"id": "1"}])
async def test_half_an_id_is_none(attributes: dict[str, str]) -> None:
    assert await published(Message(A, attributes), Message(A, attributes)) == Outcome({"a": 2})


async def test_an_id_counts_once_over_http_and_on_the_topic(service: Service) -> None:
    assert (await service.incr("a", b'{"delta": 2, "id": "i"}')).status == 202
    data = b'[{"counter": "a", "delta": 2, "id": "i"}, {"counter": "a", "delta": 5}]'
    await service.parts.publisher.publish([Message(data)])
    await service.apply()
    assert await service.totals() == {"a": 7}


def as_request(body: bytes) -> Any:
    try:
        parsed = parse.batch(body)
    except BodyError:
        return None
    return None if parsed.bad else (parsed.batch.sums, parsed.batch.counts, tuple(parsed.batch.keyed))


def as_message(body: bytes) -> Any:
    try:
        (envelope,) = decode(Delivery("1", Message(body), "7", BrokerMillis(5)), "t")
    except UnreadableError:
        return None
    return dict(envelope.sums), dict(envelope.counts), envelope.keyed


def without_unknown_fields(body: bytes) -> bytes:
    def known(item: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in item.items() if name in {"counter", "delta", "id"}}

    try:
        data = json.loads(body)
    except ValueError:
        return b"\n".join(json.dumps(known(json.loads(line))).encode() for line in body.split(b"\n") if line.strip())
    if isinstance(data, dict):
        return json.dumps({"counters": data["counters"]} if "counters" in data else known(data)).encode()
    return json.dumps([known(item) for item in data]).encode()


def test_generated_bytes_agree() -> None:
    good = extra = 0
    for seed in range(SEEDS):
        body = bodies.batch(Random(seed))
        http, topic = as_request(body), as_message(body)
        if http == topic:
            good += topic is not None
            continue
        assert topic is not None, (seed, body)  # what HTTP accepts counts
        extra += 1
        if topic != ({}, {}, ()):
            assert as_request(without_unknown_fields(body)) == topic, (seed, body)
    assert good > SEEDS / 5
    assert extra > 10
