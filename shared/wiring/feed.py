"""Chooses the receiver of the feed by its URL, and says which settings are refused where."""

import logging
import os
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from shared.config import urls
from shared.config.settings import Settings
from shared.config.urls import shown
from shared.model.errors import SettingsError
from shared.model.feed import Told, told
from shared.ports.feed import Receiver
from shared.receivers.event_file import EventFile
from shared.receivers.web_hook import WebHook, keys_of
from shared.runtime.clock import Clock, SystemClock
from shared.wiring.files import needs

_log = logging.getLogger(__name__)

TO: Final = "COUNTERSINK_FEED_TO"
_FORM: Final = f"{TO}: must be https://HOST/PATH, http:// on this machine, file:///FILE or pubsub://PROJECT/TOPIC"
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}


def told_by(settings: Settings) -> Told:
    return told(settings.feed, settings.thresholds, settings.feed_to)


def receiver_of(settings: Settings, topic: str, clock: Clock) -> tuple[Receiver, str]:
    """The receiver, and what the log calls it. `topic` is part of the source of the events."""
    source = f"countersink/{topic}"
    try:
        url = urlsplit(settings.feed_to)
        host = url.hostname or ""
    except ValueError:
        raise SettingsError(_FORM) from None
    if url.scheme == "pubsub":
        there = urls.topic(TO, settings.feed_to)
        with needs("google", TO, settings.feed_to):
            from shared.pubsub.client import PubsubClient, PubsubPlace  # noqa: PLC0415 (the extra may be missing)
            from shared.pubsub.publisher import PubsubReceiver  # noqa: PLC0415
        client = PubsubClient(os.environ.get("PUBSUB_EMULATOR_HOST"))
        return PubsubReceiver(client, PubsubPlace(*there).topic, source), settings.feed_to
    if url.scheme == "file" and not host and len(url.path) > 1:
        file = Path(unquote(url.path))
        if not file.parent.is_dir():
            raise SettingsError(f"{TO}: make the folder {file.parent}, where this process can write")
        return EventFile(file, source), url.path
    if not host or (url.scheme != "https" and not (url.scheme == "http" and host in _LOOPBACK)):
        raise SettingsError(_FORM)
    if not settings.feed_secret:
        _log.warning("the web hook can't verify the sender of events: set COUNTERSINK_FEED_SECRET to sign them")
    try:
        keys = keys_of(settings.feed_secret)
    except ValueError as error:
        raise SettingsError(
            f"COUNTERSINK_FEED_SECRET: {error}; echo whsec_$(openssl rand -base64 32) makes one"
        ) from None
    return WebHook(settings.feed_to, keys, source, clock), shown(settings.feed_to)


async def check_receiver(settings: Settings) -> None:
    """Raise the `SettingsError` with which a process that reports would not start."""
    if settings.feed_to:
        receiver, _ = receiver_of(settings, "", SystemClock())
        await receiver.close()
