"""A push subscription of Pub/Sub's emulator into /v1/events. The emulator signs no tokens: a proxy adds one, as Google
does, and loses answers.
"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

import aiohttp
from aiohttp import web
from google.pubsub_v1 import types

from shared.model.words import Message
from tests.emulators.pubsub_fixtures import Pubsub
from tests.http.keys import keys_file
from tests.http.service import running
from tests.world.google_issuer import ACCOUNT, issuing, token
from tests.world.serving import serving

MESSAGES: Sequence[Message] = (
    Message(b'{"counter": "shop:a", "delta": 2}'),
    Message(b'[{"counter": "shop:a"}, {"counter": "shop:b", "id": "i"}]', {"colour": "red"}),
    Message(b"", {"counter": "shop:b", "delta": "5"}),
    Message(b'{"counter": "shop:c"}', {"ce-source": "//shop", "ce-id": "1"}),
    Message(b'{"counter": "shop:c"}', {"ce-source": "//shop", "ce-id": "1"}),  # published twice
    Message(b'{"counter": "other"}'),  # not under the key's prefix
)


class Google:
    """Sends on what the emulator pushes. The first answer to each message is lost."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.answers: dict[str, list[int]] = {}
        """Statuses, by the message's id."""

    async def push(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {"Authorization": f"Bearer {token()}", "Content-Type": request.headers["Content-Type"]}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self._url}/v1/events", data=body, headers=headers) as answer,
        ):
            answers = self.answers.setdefault(json.loads(body)["message"]["messageId"], [])
            answers.append(answer.status)
            return web.Response(status=503 if len(answers) == 1 else answer.status)


async def test_each_message_counts_once(pubsub: Pubsub, tmp_path: Path) -> None:
    file, keys = keys_file(tmp_path, pusher={"google": ACCOUNT, "scopes": ["write"], "prefixes": ["shop:"]}, ops={})
    async with issuing() as issuer, running(tmp_path, keys_file=str(file), **issuer.settings) as service:
        google = Google(service.url)
        app = web.Application()
        app.router.add_post("/", google.push)
        async with serving(web.AppRunner(app)) as port:
            name = f"projects/{pubsub.place.project}/subscriptions/push-{uuid4().hex}"
            pushing = types.Subscription.pb()(name=name, topic=pubsub.place.topic)
            pushing.push_config.push_endpoint = f"http://127.0.0.1:{port}/"
            await pubsub.change("Subscriber/CreateSubscription", pushing)
            await pubsub.publisher().publish(MESSAGES)
            async with asyncio.timeout(120):
                while sorted(answers[:2] for answers in google.answers.values()) != [[202, 202]] * 5 + [[403, 403]]:
                    await asyncio.sleep(0.05)
            await pubsub.delete_subscription(name)
        await service.apply()
        reader = {"Authorization": f"Bearer {keys['ops']}"}
        listed = await service.ask("GET", "/v1/counters?max_age=0", headers=reader)
        totals = {counter["name"]: counter["value"] for counter in listed.json["counters"]}
        assert totals == {"shop:a": 3, "shop:b": 6, "shop:c": 1}
