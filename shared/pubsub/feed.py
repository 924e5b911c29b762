"""Publishes the events of the feed on a topic."""

import json
from collections.abc import Sequence
from typing import Final

from shared.model.errors import CountersinkError
from shared.model.feed import CHANGED, Event
from shared.model.words import Message
from shared.pubsub.client import PubsubClient
from shared.pubsub.publisher import PubsubPublisher

PATIENCE: Final = 5.0
"""Seconds for which a publish is tried. After that, the feed puts the events off."""


class PubsubReceiver:
    """It took an event if Pub/Sub has it on disk."""

    def __init__(self, client: PubsubClient, topic: str, source: str) -> None:
        self._client = client
        self._publisher = PubsubPublisher(client, topic, patience=PATIENCE)
        self._source = source

    async def tell(self, events: Sequence[Event]) -> Sequence[str]:
        try:
            await self._publisher.publish([message_of(event, self._source) for event in events])
        except CountersinkError as error:
            return [str(error)] * len(events)
        return [""] * len(events)

    async def close(self) -> None:
        await self._client.close()


def message_of(event: Event, source: str) -> Message:
    """A CloudEvent in binary mode. What changed has the fields by which BigQuery keeps the greatest sequence."""
    attributes = {f"ce-{name}": value for name, value in event.attributes(source).items() if name != "datacontenttype"}
    data = event.data
    if event.type == CHANGED:
        data = data | {"_CHANGE_TYPE": "UPSERT", "_CHANGE_SEQUENCE_NUMBER": f"{data['sequence']:016x}"}
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Message(text.encode(), attributes | {"content-type": "application/json"})
