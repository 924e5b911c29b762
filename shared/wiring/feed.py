"""Chooses the receiver of the feed by its URL, and says where there can't be a feed."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from shared.config.settings import Settings
from shared.config.urls import shown
from shared.model.errors import SettingsError
from shared.model.feed import Told, told
from shared.ports.feed import Receiver
from shared.receivers.event_file import EventFile
from shared.receivers.web_hook import WebHook, keys_of
from shared.runtime.clock import Clock

_FORM: Final = "COUNTERSINK_FEED_TO: must be https://HOST/PATH, http:// on this machine, or file:///FILE"
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
    if url.scheme == "file" and not host and len(url.path) > 1:
        return EventFile(Path(unquote(url.path)), source), url.path
    if not host or (url.scheme != "https" and not (url.scheme == "http" and host in _LOOPBACK)):
        raise SettingsError(_FORM)
    try:
        keys = keys_of(settings.feed_secret)
    except ValueError as error:
        raise SettingsError(
            f"COUNTERSINK_FEED_SECRET: {error}; echo whsec_$(openssl rand -base64 32) makes one"
        ) from None
    return WebHook(settings.feed_to, keys, source, clock), shown(settings.feed_to)


def refuse_feed(settings: Settings) -> None:
    if settings.feed_to:
        raise SettingsError(
            "COUNTERSINK_FEED and COUNTERSINK_THRESHOLDS need a SQLite file: on Google Cloud nothing is told yet."
            " Remove them, and read counters with GET /v1/counters or an export instead"
        )
