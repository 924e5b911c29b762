"""Receivers say of each event whether it was taken for good."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from shared.model.buckets import Instant, WallSeconds
from shared.model.feed import Change, Event, changed
from shared.receivers import EventFile, WebHook, keys_of, signatures
from tests.world.manual_clock import ManualClock
from tests.world.serving import serving

EVENTS = [changed(Change(name, 2**70, Instant(7), WallSeconds(1_800_000_000.0))) for name in ("a/é", "b")]
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def names(path: Path) -> list[str]:
    return [json.loads(line)["subject"] for line in path.read_text().splitlines()]


async def test_a_file_gets_whole_lines_also_after_it_was_moved_away(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text('{"subject":"whole"}\n{"specversion":"1.0","id":"bro')
    file = EventFile(path, "s")
    assert await file.tell(EVENTS) == ["", ""]
    assert names(path) == ["whole", "a/é", "b"]
    assert json.loads(path.read_text().splitlines()[1])["data"]["value"] == 2**70
    path.rename(tmp_path / "events.1")
    assert await file.tell(EVENTS[1:]) == [""]
    assert (names(path), len(names(tmp_path / "events.1"))) == (["b"], 3)
    await file.close()
    assert await EventFile(tmp_path, "s").tell(EVENTS) == ["Is a directory"] * 2


async def test_a_file_that_is_something_else_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "events"
    for other in ('{"precious": 1}', 'a\n{"spec', '{"specversion":"0.3"'):
        path.write_text(other)
        file = EventFile(path, "s")
        ours = other.endswith('{"spec')
        assert [bool(why) for why in await file.tell(EVENTS)] == [not ours] * 2
        assert path.read_text().startswith("a\n" if ours else other)
        await file.close()


def test_the_signature_is_that_of_the_standard() -> None:
    signed = signatures(keys_of(f"{KEY} {KEY}"), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == " ".join(["v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="] * 2)


@pytest.mark.parametrize("text", ["secret", "whsec_", "whsec_AAAA", "whsec_!!!!", f"{KEY} x"])
def test_a_weak_secret_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be whsec_"):
        keys_of(text)


class Hook:
    """Refuses one name."""

    def __init__(self) -> None:
        self.got: list[tuple[web.Request, bytes]] = []

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((request, await request.read()))
        return web.Response(status=500 if b'"subject":"b"' in self.got[-1][1] else 204)


@pytest.fixture
async def hook() -> AsyncIterator[tuple[Hook, str]]:
    hook = Hook()
    application = web.Application()
    application.router.add_post("/hook", hook.take)
    async with serving(web.AppRunner(application)) as port:
        yield hook, f"http://127.0.0.1:{port}"


async def test_a_web_hook_gets_each_event_with_its_id_and_a_signature(hook: tuple[Hook, str]) -> None:
    got, url = hook
    receiver = WebHook(f"{url}/hook", keys_of(KEY), "s", ManualClock())
    assert await receiver.tell(EVENTS) == ["", "it answered 500"]
    request, body = min(got.got, key=lambda one: one[1])
    headers = request.headers
    assert headers["webhook-id"] == "7/a/%C3%A9"
    assert headers["webhook-timestamp"] == "1800000000"
    assert headers["webhook-signature"] == signatures(keys_of(KEY), headers["webhook-id"], 1_800_000_000, body)
    assert json.loads(body)["data"]["counter"] == "a/é"
    await receiver.close()
    unsigned = WebHook(f"{url}/hook", keys_of(""), "s", ManualClock())
    assert await unsigned.tell(EVENTS[:1]) == [""]
    assert "webhook-signature" not in got.got[-1][0].headers
    await unsigned.close()
    away = WebHook("http://127.0.0.1:9/hook", keys_of(KEY), "s", ManualClock())
    assert all(why.startswith("no answer: ") for why in await away.tell(EVENTS))
    await away.close()


def test_an_event_has_the_attributes_of_cloudevents() -> None:
    event: Event = EVENTS[0]
    assert json.loads(event.structured("countersink/t")) == {
        "specversion": "1.0",
        "id": "7/a/é",
        "source": "countersink/t",
        "type": "countersink.counter.changed",
        "subject": "a/é",
        "time": "2027-01-15T08:00:00.000Z",
        "datacontenttype": "application/json",
        "data": {"counter": "a/é", "value": 2**70, "as_of": "2027-01-15T08:00:00.000Z", "sequence": 7},
    }
