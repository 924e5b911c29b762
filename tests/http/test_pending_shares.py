"""One client that floods while nothing is applied: others are still counted."""

from pathlib import Path
from typing import Final

import pytest

from tests.http.service import Service, running

LIMIT: Final = 2**20


async def ids(service: Service, number: int) -> int:
    body = b"[%b]" % b",".join([b'{"counter":"f","id":"%d.%d"}' % (number, item) for item in range(200)])
    return (await service.post("/v1/increments", body, client=1)).status


async def names(service: Service, number: int) -> int:
    body = b'{"counters":{%b}}' % b",".join([b'"%d.%d":1' % (number, item) for item in range(3_000)])
    return (await service.post("/v1/increments", body, client=1)).status


async def keyed(service: Service, number: int) -> int:
    body = b'{"counters":{%b}}' % b",".join([b'"%d.%d":1' % (number, item) for item in range(500)])
    return (await service.post("/v1/increments", body, client=1, Idempotency_Key=f"{number}")).status


async def unread(service: Service, number: int) -> int:
    return (await service.incr(f"{number:0390}", b'{"id": "%0990d"}' % number, "?ack=none", client=1)).status


@pytest.mark.parametrize("flood", [ids, names, keyed, unread])
async def test_a_client_that_floods_leaves_room_for_others(tmp_path: Path, flood: object) -> None:
    async with running(tmp_path, max_pending_bytes=LIMIT) as service:
        assert callable(flood)
        publisher = service.parts.publisher
        for _ in range(2):
            number, status = 0, 202
            while status == 202:
                number += 1
                status = await flood(service, number)
                assert number < 3_000
            assert status == 429
            for number in range(50):
                assert (await service.incr(f"polite{number % 3}", client=2)).status == 202
                assert (await service.incr("polite", b'{"id": "%d"}' % number, client=2)).status == 202
                await flood(service, 10_000 + number)
            pending, most = publisher.pending()  # type: ignore[attr-defined] # it is of SQLite here
            assert most // 3 < pending < most
            answer = await service.post("/v1/increments", b'{"counters":{"a":1}}', client=1, Idempotency_Key="z")
            if answer.status == 429:
                assert "COUNTERSINK_MAX_PENDING_BYTES" in answer.json["detail"]
            await service.apply()
            assert await flood(service, 20_000) in {202, 200}
            await service.apply()


async def test_what_is_applied_no_longer_counts_against_its_sender(tmp_path: Path) -> None:
    async with running(tmp_path, max_pending_bytes=LIMIT) as service:
        for number in range(40):
            if await ids(service, number) == 429:
                await service.apply()
                assert await ids(service, number) == 202
        shares = service.ingest.publishing._shares
        assert shares is not None
        await service.apply()
        assert (await service.incr("c")).status == 202
        assert shares._published.held == sum(shares._published.holders.values()) < LIMIT // 8
