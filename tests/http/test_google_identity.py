"""Service accounts of Google as keys: their ID tokens, from a local issuer."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from countersink import AsyncClient
from ingest.access.door import Doors
from ingest.access.google_tokens import (
    KEPT,
    MOST_TOKENS,
    PAUSE,
    SKEW,
    Certificates,
    GoogleTokens,
    UnverifiedError,
)
from ingest.access.keys import parse, written
from ingest.api.watch import WatchRoutes
from ingest.http.problems import Problem
from shared.config.settings import Settings
from shared.model.errors import OverloadedError, SettingsError
from shared.runtime.clock import SystemClock
from tests.http.both_ways import by_aiohttp
from tests.http.keys import authorization, guarded, keys_file
from tests.http.service import Service, running
from tests.world.google_issuer import ACCOUNT, AUDIENCE, Issuer, issuing, token
from tests.world.manual_clock import ManualClock

OTHER: Final = "scheduler@my-project.iam.gserviceaccount.com"
HOUR: Final = 3_600.0


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with issuing() as one:
        yield one


@pytest.fixture
async def service(tmp_path: Path, issuer: Issuer) -> AsyncIterator[Service]:
    keys_file(tmp_path, eventarc={"google": ACCOUNT, "scopes": ["write"], "prefixes": ["p:"]}, ops={})
    async with running(tmp_path, keys_file=str(tmp_path / "keys.json"), **issuer.settings) as it:
        yield it


async def count(service: Service, text: str, name: str = "p:a") -> Any:
    return await service.incr(name, Authorization=f"Bearer {text}")


async def test_a_token_is_verified_once_and_then_takes_the_fast_path(service: Service, issuer: Issuer) -> None:
    text = token()
    asked = by_aiohttp(service)
    answers = await asyncio.gather(*[count(service, text) for _ in range(5)])
    assert [answer.status for answer in answers] == [202] * 5
    assert issuer.fetches == 1
    asked, before = by_aiohttp(service), asked
    assert before < asked
    assert (await count(service, text)).status == 202
    assert by_aiohttp(service) == asked
    event = b'{"counter": "p:a", "delta": 4}'
    headers: dict[str, Any] = {"ce_specversion": "1.0", "ce_id": "1", "ce_source": "s", "ce_type": "t"}
    assert (await service.post("/v1/events", event, Authorization=f"Bearer {token()}", **headers)).status == 202
    assert issuer.fetches == 1


async def test_the_key_of_the_account_says_what_it_may_do(service: Service) -> None:
    text = token()
    assert (await count(service, text, "q:a")).status == 403
    answer = await service.ask("GET", "/v1/counters/p:a", headers=authorization(text))
    assert answer.status == 403
    assert "eventarc" in answer.json["detail"]


def parts(one: str, other: str) -> str:
    """A token with the signature of another one."""
    return f"{one.rpartition('.')[0]}.{other.rpartition('.')[2]}"


WRONG: Final[dict[str, tuple[Callable[[], str], str, int]]] = {
    "another audience": (partial(token, aud="https://b.example"), "audience 'https://b.example': set COUNTERSINK_", 0),
    "several audiences": (partial(token, aud=[AUDIENCE]), "for the audience ['https", 0),
    "no audience": (partial(token, aud=None), "for the audience None", 0),
    "Firebase's": (partial(token, iss="https://securetoken.google.com/p"), "issued by 'https://securetoken", 0),
    "expired": (partial(token, ago=2 * HOUR), "has expired", 0),
    "without an end": (partial(token, exp=None), "not signed as Google", 0),
    "another certificate": (partial(token, key="unknown"), "no certificate 'unknown'", 1),
    "of the future": (partial(token, ago=-HOUR), "too early", 1),
    "another signature": (lambda: parts(token(), token(sub="2")), "signature", 1),
    "no signature": (lambda: parts(token(), "a.SIGNATURE_REMOVED_BY_GOOGLE"), "--no-invoker-iam-check", 0),
    "unverified": (partial(token, email_verified=False), "has not verified", 1),
    "not said to be verified": (partial(token, email_verified=None), "has not verified", 1),
    "no e-mail": (partial(token, email=None), "--include-email", 1),
    "a stranger's": (partial(token, OTHER), f"keys new ID --google {OTHER}", 1),
    "no Base64": (lambda: "eyJ.e.e", "can't be read", 0),
    "no object": (lambda: "eyJhbGciOiJub25lIn0.W10.e", "can't be read", 0),
    "deep": (lambda: f"eyJhbGciOiJub25lIn0.{'W1tb' * 1_500}.e", "can't be read", 0),
    "an access token": (lambda: "ya29.access", "not valid", 0),
}


async def test_a_wrong_token_is_refused_and_the_answer_and_the_log_say_what_to_do(
    service: Service, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    google = service.ingest.door._google
    assert google is not None
    for what, (make, said, fetches) in WRONG.items():
        google._certificates = Certificates(issuer.url, SystemClock())
        issuer.fetches, service.ingest.door._tells_again = 0, 0.0
        text = make()
        for _ in range(2):
            answer = await count(service, text)
            assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), what
            assert said in answer.json["detail"], what
        assert issuer.fetches == fetches, what
        assert len([line for line in caplog.messages if said in line]) == text.startswith("eyJ"), what  # once
        caplog.clear()


async def test_clocks_may_differ_a_little(service: Service) -> None:
    for ago in (HOUR + SKEW / 2, -SKEW / 2):
        assert (await count(service, token(ago=ago))).status == 202


async def test_the_client_asks_for_its_token_before_each_attempt(service: Service) -> None:
    said: Iterator[str | Exception] = iter([token(), OSError("no metadata"), token(sub="2"), token(sub="3")])

    def key() -> str:
        one = next(said)
        if isinstance(one, Exception):
            raise one
        return one

    async with AsyncClient(service.url, key) as client:
        for _ in range(3):
            await client.increment("p:a")
    with pytest.raises(StopIteration):
        next(said)
    await service.apply()
    reading = await service.ingest.reader.read(["p:a"])
    assert [one.value for one in reading] == [3]


async def test_a_revoked_account_is_refused_at_the_next_look_at_the_file(service: Service, tmp_path: Path) -> None:
    texts = token(), token(sub="2")
    assert (await count(service, texts[0])).status == 202
    (tmp_path / "keys.json").write_bytes(written([]))
    await service.ingest._doors._look()
    for text in texts:
        answer = await count(service, text)
        assert answer.status == 401
        assert ACCOUNT in answer.json["detail"]


async def test_a_stream_ends_with_its_token(service: Service, tmp_path: Path) -> None:
    keys_file(tmp_path, reader={"google": ACCOUNT, "scopes": ["read"]})
    await service.ingest._doors._look()
    clock = service.chapter(WatchRoutes)._clock = ManualClock(time.time() + HOUR + SKEW - 1)
    text = token()
    head = (
        f"GET /v1/counters/p:a/watch HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Bearer {text}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(*service.address)
    with contextlib.closing(writer):
        writer.write(head.encode())
        said = await reader.readuntil(b"data: ")
        clock.turn(2)
        await reader.read()  # the service closes it
    assert b"200 OK" in said


async def test_without_certificates_a_token_may_be_sent_again(service: Service, issuer: Issuer) -> None:
    issuer.status = 503
    for _ in range(3):
        answer = await count(service, token())
        assert (answer.status, answer.headers["Retry-After"]) == (503, "10")
    assert issuer.fetches == 1


# What is remembered, and for how long.


def verifying(issuer: Issuer) -> tuple[GoogleTokens, ManualClock]:
    clock = ManualClock(time.time())
    return GoogleTokens([AUDIENCE], issuer.url, clock), clock


async def test_a_token_is_remembered_until_it_expires(issuer: Issuer) -> None:
    tokens, clock = verifying(issuer)
    text = token()
    with pytest.raises(UnverifiedError):
        tokens.find(text)
    await tokens.verify(text, [ACCOUNT])
    clock.turn(HOUR)
    assert tokens.find(text)[0] == ACCOUNT
    clock.turn(SKEW + 1)
    with pytest.raises(UnverifiedError):
        tokens.find(text)
    with pytest.raises(Problem, match="expired"):
        await tokens.verify(text, [ACCOUNT])
    assert not tokens._known


async def test_the_memory_is_bounded_and_strangers_are_not_in_it(issuer: Issuer) -> None:
    tokens, _ = verifying(issuer)
    text = token()
    tokens._known.update({str(number): ("", math.inf) for number in range(MOST_TOKENS)})
    await tokens.verify(text, [ACCOUNT])
    with pytest.raises(Problem):
        await tokens.verify(token(OTHER), [ACCOUNT])
    assert len(tokens._known) == MOST_TOKENS
    assert [*tokens._known][-1] == text


async def test_certificates_rotate_and_no_token_makes_them_be_fetched_again_at_once(issuer: Issuer) -> None:
    tokens, clock = verifying(issuer)
    await tokens.verify(token(), [ACCOUNT])
    for number in range(20):
        with pytest.raises(Problem, match="no certificate"):
            await tokens.verify(token(key="b", sub=str(number)), [ACCOUNT])
    assert issuer.fetches == 1
    issuer.keys = ["b"]
    clock.turn(PAUSE)
    await asyncio.gather(*[tokens.verify(token(key="b", sub=str(number)), [ACCOUNT]) for number in range(5)])
    assert issuer.fetches == 2
    with pytest.raises(Problem, match="no certificate 'a'"):
        await tokens.verify(token(), [ACCOUNT])  # Google has withdrawn it


async def test_old_certificates_are_fetched_again_and_serve_for_a_day_while_there_are_no_others(issuer: Issuer) -> None:
    tokens, clock = verifying(issuer)
    issuer.max_age = 100
    for seconds, fetches in ((0, 1), (99, 1), (1, 2)):
        clock.turn(seconds)
        await tokens.verify(token(), [ACCOUNT])
        assert issuer.fetches == fetches
    issuer.status = 500
    clock.turn(100)
    await tokens.verify(token(), [ACCOUNT])
    clock.turn(KEPT)
    with pytest.raises(OverloadedError, match="can't be fetched"):
        await tokens.verify(token(lasts=3 * KEPT), [ACCOUNT])
    issuer.status = 200
    clock.turn(PAUSE)
    await tokens.verify(token(lasts=3 * KEPT), [ACCOUNT])


async def test_a_service_without_an_audience_says_what_to_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(tmp_path, ops={}) as (service, _):
        answer = await count(service, token())
        assert answer.status == 401
        assert "COUNTERSINK_AUDIENCE" in answer.json["detail"]
    file, _ = keys_file(tmp_path, eventarc={"google": ACCOUNT})
    Doors(Settings(keys_file=str(file)), SystemClock())
    (said,) = [line for line in caplog.messages if ACCOUNT in line]
    assert "set COUNTERSINK_AUDIENCE" in said
    caplog.clear()
    with pytest.raises(SettingsError, match="random 'secret'"):
        parse(b'{"keys": [{"id": "a", "google": "%b", "scopes": ["read"]}]}' % ACCOUNT.encode())
