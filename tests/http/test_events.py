"""CloudEvents over HTTP, as their SDK and as others write them, and what Pub/Sub pushes: each counts once."""

import base64
import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from ingest.accept.drafts import MAX_ENTRIES
from ingest.access.callers import OWNED_RECEIPT, event_id
from ingest.parsing.events import BATCH, MOST_EVENTS, ONE, PUBLISHED
from shared.config.settings import Settings
from shared.model.errors import UnreadableError
from shared.model.words import MAX_DELTA, Message
from shared.wire import codec
from tests.http.answer import Answer
from tests.http.faults import forget
from tests.http.keys import authorization, guarded
from tests.http.service import Service, running
from tests.http.test_messages_agree import alike

TOO_MANY: Final = "an array of more counters than fit into a commit"
"""On the topic it is applied in several commits; an event over HTTP is applied in one."""
SHOP: Final = "//shop.example/ä %"
DATA: Final[dict[str, tuple[Any, dict[str, int]]]] = {
    "one": ({"counter": "a", "delta": 2}, {"a": 2}),
    "no delta": ({"counter": "a", "colour": "red"}, {"a": 1}),
    "array": ('[{"counter": "a"}, {"counter": "b", "delta": 3}, {"counter": "a", "id": "i"}]', {"a": 2, "b": 3}),
    "map": ({"counters": {"a": 3, "b": -2}}, {"a": 3, "b": -2}),
    "keyed": ({"counters": {"a": 3}, "keyed": [{"counter": "a", "delta": 4, "id": "k"}]}, {"a": 7}),
    "text": ('{"counter": "a"}\n{"counter": "b"}', {"a": 1, "b": 1}),
    "bytes": (b'{"counters": {"a": 3}}', {"a": 3}),
    "attributes": (None, {"a": 5}),
    "empty text": ("", {"a": 5}),
}


def event(data: Any = None, id_: str = "1", source: str = SHOP, **more: Any) -> CloudEvent:
    own = {} if data else {"counter": "a", "delta": "5"}
    typed = {"datacontenttype": "application/x-ndjson"} if isinstance(data, str) else {}
    attributes = {"type": "sold", "source": source, "id": id_, **own, **typed, **more}
    return CloudEvent(attributes=attributes, data=data)


async def send(service: Service, mode: str, *events: CloudEvent, query: str = "", **headers: str) -> Answer:
    if mode == "batch":
        body = b"[" + b",".join(to_structured_event(one).body for one in events) + b"]"
        return await service.ask("POST", f"/v1/events{query}", body, {"Content-Type": BATCH} | headers)
    (one,) = events
    message = to_binary_event(one) if mode == "binary" else to_structured_event(one)
    return await service.ask("POST", f"/v1/events{query}", message.body, message.headers | headers)


async def bare(service: Service, body: Any, content_type: str = ONE, **headers: str) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await service.ask("POST", "/v1/events", data, {"Content-Type": content_type} | named)


def plain(**more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"counter": "a"}} | more


@pytest.mark.parametrize(
    ("mode", "again"), [("binary", "structured"), ("structured", "batch"), ("batch", "binary"), ("batch", "batch")]
)
async def test_each_mode_and_form_counts_once(service: Service, mode: str, again: str) -> None:
    expected, receipts = Counter[str](), []
    for what, (sent, totals) in DATA.items():
        first = await send(service, mode, event(sent, what))
        assert first.status == 202, what
        assert (first.json["rejected"], "duplicates" in first.json) == ([], False), what
        second = await send(service, again, event(sent, what))
        assert second.json == first.json | {"duplicates": first.json["accepted"], "duplicate": True}, what
        expected.update(totals)
        receipts.append(first.json["receipt"])
    assert await service.totals() == expected
    await service.apply()
    forget(service)
    for what, (sent, _) in DATA.items():
        assert (await send(service, again, event(sent, what))).status == 202, what
    assert await service.totals() == expected
    await service.apply()
    assert await service.totals() == expected
    for receipt in receipts:
        assert (await service.get(f"/v1/receipts/{receipt}")).json["state"] == "applied"


async def test_data_counts_as_a_message_on_the_topic_does(service: Service) -> None:
    totals = Counter[str]()
    for what, data in alike():
        if what == TOO_MANY:
            continue
        try:
            sums, _, keyed, _ = codec.content_of(Message(data))
            expected, reason = Counter(sums), None
            for counter, delta, *_ in {item.key: item for item in reversed(keyed)}.values():
                expected[counter] += delta
        except UnreadableError as error:
            expected, reason = Counter[str](), str(error)
        answer = await send(service, "binary", event(data, what))
        assert answer.json.get("detail") == (reason or (None if expected else "the data holds no increments")), what
        assert (answer.status, answer.field) == ((202, None) if reason is None and expected else (400, "data")), what
        totals.update(expected)
    await service.apply()
    assert await service.totals() == {name: total for name, total in totals.items() if total}


async def test_source_and_id_together_are_the_identity(service: Service) -> None:
    for source, id_ in (("a", "bc"), ("ab", "c"), ("a", "b"), ("b", "a"), ("2:ab", "c"), ("a", "bc")):
        assert (await send(service, "binary", event(id_=id_, source=source))).status == 202
    await service.apply()
    assert await service.totals() == {"a": 25}


def test_ids_of_owners_sources_and_events_are_joined_without_ambiguity() -> None:
    parts = [
        ("", "a", "bc"),
        ("", "ab", "c"),
        ("a", "b", "c"),
        ("a", "", "bc"),
        ("1:a1", "b", "c"),
        ("", "1:a1:b", "c"),
    ]
    assert len({event_id(*each) for each in parts}) == len(parts)
    assert all(event_id(*each).startswith(OWNED_RECEIPT) is (each[0] != "") for each in parts)


async def test_the_first_event_of_an_id_wins(service: Service) -> None:
    assert (await send(service, "binary", event({"counter": "a"}))).status == 202
    for mode in ("binary", "structured", "batch"):
        other = await send(service, mode, event({"counter": "b"}))
        assert (other.status, other.field) == (422, "id")
    forget(service)
    assert (await send(service, "binary", event({"counter": "b"}))).status == 202
    await service.apply()
    assert await service.totals() == {"a": 1}


async def test_other_increments_with_ids_make_another_event(service: Service) -> None:
    assert (await send(service, "binary", event('[{"counter": "a", "id": "i"}]'))).status == 202
    assert (await send(service, "binary", event('[{"counter": "a", "id": "j"}]'))).status == 422
    assert (await send(service, "binary", event('[{"counter": "a", "id": "i"}]'))).status == 202
    assert (await send(service, "binary", event('[{"counter": "a", "id": "i"}]', id_="2"))).status == 202
    assert (await service.incr("a", b'{"id": "i"}')).status == 202
    await service.apply()
    assert await service.totals() == {"a": 1}


async def test_good_events_of_a_batch_count_beside_bad_ones(service: Service) -> None:
    assert (await send(service, "binary", event({"counter": "z"}, "known"))).status == 202
    events = [
        event({"counter": "a"}),
        event('[{"counter": "b"}, {"counter": "b", "delta": 0.5}]', "2"),
        event({"counter": "c"}, "known"),
        event({"counter": "a", "delta": 10}, "3"),
        event({"counter": "a", "delta": 10}, "3"),
    ]
    answer = await send(service, "batch", *events)
    assert answer.status == 202
    assert [each["index"] for each in answer.json["rejected"]] == [1, 2]
    assert answer.json["rejected"][0]["reason"] == "item 1: 'delta' must be an integer"
    assert "other data" in answer.json["rejected"][1]["reason"]
    assert (answer.json["accepted"], answer.json["duplicates"]) == (3, 1)
    assert answer.json["receipt"].count(".") == 1
    await service.apply()
    assert await service.totals() == {"a": 11, "z": 1}


async def test_an_attribute_that_is_missing_or_wrong_is_named(service: Service) -> None:
    required = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
    for name, value, mode in product(required, (None, "", "x" * 1_001), ("binary", "structured", "batch")):
        attributes = {n: v for n, v in (required | {name: value}).items() if v is not None}
        if mode == "binary":
            headers = {f"ce_{n}": v for n, v in attributes.items()}
            answer = await bare(service, b'{"counter": "a"}', "text/plain", **headers)
        else:
            one = attributes | {"data": {"counter": "a"}}
            answer = await bare(service, [one] if mode == "batch" else one, BATCH if mode == "batch" else ONE)
        if name == "type" and value:
            assert answer.status == 202, mode
            continue
        field = f"ce-{name}" if mode == "binary" else name
        assert (answer.status, answer.field) == (400, None if mode == "batch" else field), (name, value, mode)
        assert field in answer.json["detail"]
    assert await service.totals() == {"a": 1}, "a type may be long"


BAD: Final[dict[str, tuple[Any, str, str | None]]] = {
    "no event": ([], BATCH, "no events"),
    "an object as a batch": (plain(), BATCH, "array"),
    "an array as an event": ([plain()], ONE, "object"),
    "not JSON": (b"{", ONE, "not valid JSON"),
    "a name twice": (b'{"id": "1", "id": "2"}', ONE, "twice"),
    "all bad": ([1, plain(data=None)], BATCH, "item 0: an event must be a JSON object"),
    "nothing": (plain(data=None), ONE, "'counter'"),
    "nothing in it": (plain(data={"counters": {}}), ONE, "no increments"),
    "a number": (plain(data=7), ONE, "'data' must be an object"),
    "Base64 and data": (plain(data_base64="YQ=="), ONE, "'data_base64' can't be combined with 'data'"),
    "no Base64": (plain(data=None, data_base64="?"), ONE, "Base64"),
    "Base64 of a number": (plain(data=None, data_base64=7), ONE, "Base64"),
    "a counter that is no text": (plain(data=None, counter=7), ONE, "'counter' must be a string"),
    "a delta that is no number": (plain(data=None, counter="a", delta=True), ONE, "'delta' must be an integer"),
    "a delta in words": (plain(data=None, counter="a", delta="two"), ONE, "'delta' must be an integer"),
    "a lone surrogate": (b'{"specversion":"1.0","id":"\\ud800","source":"s","type":"t"}', ONE, "JSON"),
    "an id that is a number": (plain(id=7), ONE, "'id' must be a string"),
    "another version": (plain(specversion="0.3"), ONE, "must be 1.0"),
    "too many names": (plain(data={"counters": {f"n{n}": 1 for n in range(MAX_ENTRIES + 1)}}), ONE, "at most 1000"),
    "too much": (
        plain(data=[{"counter": "a", "delta": MAX_DELTA, "id": str(n)} for n in range(300)]),
        ONE,
        "may add up to",
    ),
    "another format": (b"<event/>", "application/cloudevents+xml", "JSON only"),
    "no event at all": (b'{"counter": "a"}', "application/json", "ce-specversion"),
}


async def test_what_is_no_event_is_400(service: Service) -> None:
    for what, (body, content_type, says) in BAD.items():
        answer = await bare(service, body, content_type)
        assert answer.status == 400, what
        assert str(says) in answer.json["detail"], what
    assert await service.totals() == {}


async def test_headers_are_decoded_as_the_binding_says(service: Service) -> None:
    required = {"ce_specversion": "1.0", "ce_type": "t", "ce_source": "s"}
    for id_, counter in (("%41%22", "caf%C3%A9"), ('"A\\""', "caf%C3%A9"), ('A"', "caf%C3%A9"), ("B", '"a \\"b\\""')):
        answer = await bare(service, b" ", "application/json; charset=utf-8", ce_id=id_, ce_counter=counter, **required)
        assert answer.status == 202, answer
    assert await service.totals() == {'a "b"': 1, "café": 1}
    assert (await bare(service, b"", "", ce_id="%FF", ce_counter="a", **required)).field == "ce-id"


async def test_an_attribute_in_two_headers_is_refused(service: Service) -> None:
    heads = b"ce-specversion: 1.0\r\nce-type: t\r\nce-source: s\r\nce-id: 1\r\nce-id: 2\r\nce-counter: a\r\n"
    head = b"POST /v1/events HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: close\r\n%b\r\n"
    answer = await service.raw(head % heads)
    assert (answer.status, answer.field) == (400, "ce-id")


async def test_as_many_events_as_a_receipt_can_name_that_fits_into_a_url(tmp_path: Path) -> None:
    """Receipts of an owner are longer than those of nobody."""
    events = [plain(id=str(number)) for number in range(MOST_EVENTS + 1)]
    async with guarded(tmp_path, all={"owner": "one"}) as it:
        auth = authorization(it.keys["all"])
        assert (await bare(it.service, events, BATCH, **auth)).status == 413
        answer = await bare(it.service, events[1:], f"{BATCH.upper()}; charset=utf-8", **auth)
        assert (answer.status, answer.json["accepted"]) == (202, MOST_EVENTS)
        await it.service.apply()
        assert await it.totals() == {"a": MOST_EVENTS}
        assert (await it.ask("all", "GET", f"/v1/receipts/{answer.json['receipt']}")).json["state"] == "applied"


async def test_the_answer_comes_when_and_as_it_is_asked_for(service: Service) -> None:
    async with service.applying():
        waited = await send(service, "structured", event({"counters": {"a": 2, "b": 3}}), query="?wait=applied")
        assert (waited.status, waited.json["accepted"]) == (200, 2)
        again = await send(service, "batch", event({"counters": {"a": 2, "b": 3}}), query="?wait=applied&return=value")
        assert (again.status, again.json["duplicate"], again.json["values"]) == (200, True, {"a": 2, "b": 3})
    one = await send(service, "binary", event({"counter": "a"}, "2"), query="?ack=none")
    assert (one.status, one.json["durable"]) == (202, False)


async def test_an_event_is_of_the_owner_of_the_key_and_within_its_prefixes(tmp_path: Path) -> None:
    owners = {"one": {"owner": "one"}, "two": {"owner": "two"}, "none": {}}
    async with guarded(tmp_path, **owners, narrow={"prefixes": ["b:"]}) as it:
        service, keys = it
        receipts = {}
        for who in ("one", "two", "none", "one"):
            answer = await send(service, "binary", event({"counter": "a"}), **authorization(keys[who]))
            assert answer.status == 202
            receipts[who] = answer.json["receipt"]
        narrow = authorization(keys["narrow"])
        refused = await send(service, "batch", event({"counter": "b:1"}, "3"), event({"counter": "a"}, "4"), **narrow)
        assert refused.status == 403
        assert (await send(service, "binary", event({"counter": "b:1"}, "3"))).status == 401
        await service.apply()
        assert (await it.ask("none", "GET", "/v1/counters/a?max_age=0")).json["value"] == 3
        for who, receipt in receipts.items():
            for asks in ("one", "two", "none"):
                found = await it.ask(asks, "GET", f"/v1/receipts/{receipt}")
                assert found.status == (200 if asks == who else 404)


async def test_an_event_with_a_name_too_many_is_rejected_as_a_whole(tmp_path: Path) -> None:
    limits = Settings.read({"COUNTERSINK_MAX_COUNTERS": "=2"}).max_counters
    async with running(tmp_path, max_counters=limits) as service:
        many = [
            event({"counter": "a"}, "1"),
            event({"counters": {"b": 1, "c": 1, "d": 1}}, "2"),
            event('[{"counter": "b", "id": "x"}]', "3"),
        ]
        answer = await send(service, "batch", *many)
        assert (answer.status, answer.json["accepted"]) == (202, 2)
        assert [each["index"] for each in answer.json["rejected"]] == [1]
        assert "COUNTERSINK_MAX_COUNTERS" in answer.json["rejected"][0]["reason"]
        assert (await send(service, "batch", many[1])).status == 429
        await service.apply()
        assert await service.totals() == {"a": 1, "b": 1}


SUBSCRIPTION: Final = "projects/p/subscriptions/s"
SOURCE: Final = "//pubsub.googleapis.com/projects/p/topics/t"


def pushed(data: bytes | None = b'{"counter": "a", "delta": 2}', id_: str | None = "17", **attributes: Any) -> Any:
    message: dict[str, Any] = {"messageId": id_, "message_id": id_, "publishTime": "2026-11-27T01:00:00Z"}
    message |= {"attributes": {name.replace("_", "-"): value for name, value in attributes.items()}}
    message |= {} if data is None else {"data": base64.b64encode(data).decode()}
    return {"message": message, "subscription": SUBSCRIPTION}


async def deliver(service: Service, body: Any, how: str = "push") -> Answer:
    if how == "push":
        return await service.post("/v1/events", json.dumps(body).encode(), Content_Type="application/json")
    said = {
        "specversion": "1.0",
        "type": PUBLISHED,
        "source": SOURCE,
        "id": body.get("message", {}).get("messageId", "17"),
    }
    target = "/v1/events?__GCP_CloudEventsMode=CUSTOM_PUBSUB_projects%2Fp%2Ftopics%2Ft"
    if how == "Eventarc":
        headers: dict[str, Any] = {f"ce-{name}": value for name, value in said.items()}
        return await service.post(target, json.dumps(body).encode(), Content_Type="application/json", **headers)
    event = json.dumps(said | {"data": body})
    text, kind = (event, ONE) if how == "structured" else (f"[{event}]", BATCH)
    return await service.post(target, text.encode(), Content_Type=kind)


PUSHED: Final[list[tuple[dict[str, Any], dict[str, int]]]] = [
    ({"data": b'{"counter": "a", "delta": 2}'}, {"a": 2}),
    ({"data": b'[{"counter": "a"}, {"counter": "b", "id": "i"}]'}, {"a": 1, "b": 1}),
    ({"data": b'{"counter": "a"}\n{"counter": "b"}', "colour": "red"}, {"a": 1, "b": 1}),
    ({"data": None, "counter": "a", "delta": "5"}, {"a": 5}),
]


@pytest.mark.parametrize("how", ["push", "Eventarc", "structured", "batch"])
async def test_it_counts_as_on_the_topic_and_a_redelivery_counts_once(service: Service, how: str) -> None:
    expected = Counter[str]()
    for place, (message, totals) in enumerate(PUSHED):
        body = pushed(**message, id_=str(place))
        for _ in range(2):
            assert (await deliver(service, body, how)).status == 202, message
        forget(service)  # as another process
        assert (await deliver(service, body, how)).status == 202, message
        expected.update(totals)
    await service.apply()
    assert await service.totals() == expected


async def test_ids_of_the_publisher_are_the_identity_however_it_comes(service: Service) -> None:
    """The publisher has published twice, as no answer came."""
    for how, id_ in (("push", "17"), ("push", "18"), ("Eventarc", "19"), ("batch", "20")):
        assert (await deliver(service, pushed(id_=id_, ce_source="//shop", ce_id="1"), how)).status == 202
    await service.apply()
    assert await service.totals() == {"a": 2}


async def test_messages_of_other_subscriptions_and_other_messages_count_apart(service: Service) -> None:
    for body in (pushed(), pushed(id_="18"), pushed() | {"subscription": "projects/p/subscriptions/other"}):
        assert (await deliver(service, body)).status == 202
    await service.apply()
    assert await service.totals() == {"a": 6}


async def test_an_event_of_that_type_may_hold_plain_data(service: Service) -> None:
    for how in ("Eventarc", "structured"):
        assert (await deliver(service, {"counter": "a"}, how)).status == 202
    await service.apply()
    assert await service.totals() == {"a": 1}


OWN: Final = {"ce_source": "countersink", "ce_id": "1", "ce_type": "countersink.envelope.v1"}


BAD_MESSAGES: Final = [
    (pushed(b'{"counter": "a", "delta": 1.5}'), "data", "'delta' must be an integer"),
    (pushed(b"text"), "data", "JSON"),
    (pushed(None), "data", "needs the attribute 'counter'"),
    (pushed(b'{"counters": {}}'), "data", "no increments"),
    (pushed(id_=None), "messageId", "missing"),
    (pushed(id_=7), "id", "'id' must be a string"),  # type: ignore[arg-type] # as JSON may have it
    (pushed(colour=7), "attributes", "strings"),
    (pushed() | {"message": "text"}, "message", "object"),
    ({"message": {"data": "?", "messageId": "1"}}, "data", "Base64"),
    ({"message": {"data": 7, "messageId": "1"}}, "data", "Base64"),
    (pushed(b'{"counters": {"a": 1}}', **OWN), "data", "do not push its topic"),
    (pushed(ce_type="countersink.counter.changed"), "data", "do not push its topic"),
    ({"messages": []}, "ce-specversion", "nor is it a message"),
]


async def test_what_is_no_message_is_400(service: Service) -> None:
    for body, field, says in BAD_MESSAGES:
        answer = await deliver(service, body)
        assert (answer.status, answer.field) == (400, field), body
        assert says in answer.json["detail"], body
    assert await service.totals() == {}
