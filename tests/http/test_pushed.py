"""What a push subscription of Pub/Sub sends, by itself and in an event of Eventarc: each message counts once."""

import base64
import json
from collections import Counter
from typing import Any, Final

import pytest

from ingest.accept.admission import KnownIds
from ingest.parsing.events import BATCH, ONE, PUBLISHED
from tests.http.answer import Answer
from tests.http.service import Service

SUBSCRIPTION: Final = "projects/p/subscriptions/s"
SOURCE: Final = "//pubsub.googleapis.com/projects/p/topics/t"


def pushed(data: bytes | None = b'{"counter": "a", "delta": 2}', id_: str | None = "17", **attributes: Any) -> Any:
    message: dict[str, Any] = {"messageId": id_, "message_id": id_, "publishTime": "2026-11-27T01:00:00Z"}
    message |= {"attributes": {name.replace("_", "-"): value for name, value in attributes.items()}}
    message |= {} if data is None else {"data": base64.b64encode(data).decode()}
    return {"message": message, "subscription": SUBSCRIPTION}


async def send(service: Service, body: Any, how: str = "push") -> Answer:
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


COUNTS: Final[list[tuple[dict[str, Any], dict[str, int]]]] = [
    ({"data": b'{"counter": "a", "delta": 2}'}, {"a": 2}),
    ({"data": b'[{"counter": "a"}, {"counter": "b", "id": "i"}]'}, {"a": 1, "b": 1}),
    ({"data": b'{"counter": "a"}\n{"counter": "b"}', "colour": "red"}, {"a": 1, "b": 1}),
    ({"data": None, "counter": "a", "delta": "5"}, {"a": 5}),
]


@pytest.mark.parametrize("how", ["push", "Eventarc", "structured", "batch"])
async def test_it_counts_as_on_the_topic_and_a_redelivery_counts_once(service: Service, how: str) -> None:
    expected = Counter[str]()
    for place, (message, totals) in enumerate(COUNTS):
        body = pushed(**message, id_=str(place))
        for _ in range(2):
            assert (await send(service, body, how)).status == 202, message
        service.ingest.publishing._known_ids = KnownIds()  # as another process
        assert (await send(service, body, how)).status == 202, message
        expected.update(totals)
    await service.apply()
    assert await service.totals() == expected


async def test_ids_of_the_publisher_are_the_identity_however_it_comes(service: Service) -> None:
    """The publisher has published twice, as no answer came."""
    for how, id_ in (("push", "17"), ("push", "18"), ("Eventarc", "19"), ("batch", "20")):
        assert (await send(service, pushed(id_=id_, ce_source="//shop", ce_id="1"), how)).status == 202
    await service.apply()
    assert await service.totals() == {"a": 2}


async def test_messages_of_other_subscriptions_and_other_messages_count_apart(service: Service) -> None:
    for body in (pushed(), pushed(id_="18"), pushed() | {"subscription": "projects/p/subscriptions/other"}):
        assert (await send(service, body)).status == 202
    await service.apply()
    assert await service.totals() == {"a": 6}


async def test_an_event_of_that_type_may_hold_plain_data(service: Service) -> None:
    for how in ("Eventarc", "structured"):
        assert (await send(service, {"counter": "a"}, how)).status == 202
    await service.apply()
    assert await service.totals() == {"a": 1}


OWN: Final = {"ce_source": "countersink", "ce_id": "1", "ce_type": "countersink.envelope.v1"}


BAD: Final = [
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
    for body, field, says in BAD:
        answer = await send(service, body)
        assert (answer.status, answer.field) == (400, field), body
        assert says in answer.json["detail"], body
    assert await service.totals() == {}
