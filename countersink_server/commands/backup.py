"""The command backup: copies the SQLite file while the service runs."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from countersink_server.commands.output import json_of, tell
from countersink_server.commands.setup import add
from countersink_server.commands.target import settings_of
from shared.config import urls
from shared.model.errors import SettingsError


def add_commands(commands: "argparse._SubParsersAction[Any]") -> None:
    parser = add(
        commands,
        "backup",
        _backup,
        "copy the SQLite file while the service runs",
        more="The copy is of one instant, and is checked. Any name will do; `countersink up --data DIR` starts on a"
        " copy that is named countersink.db in DIR.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="where the copy goes; it must not exist")


async def _backup(options: argparse.Namespace) -> None:
    from shared.sqlite.backup import copy  # noqa: PLC0415 (who asks for help should not wait for it)
    from shared.wiring.files import BROKER, only_file  # noqa: PLC0415

    settings = settings_of(options)
    if urls.scheme_of(settings.broker) == "pubsub":
        raise SettingsError(f"{BROKER} is Pub/Sub: back up Datastore as docs/google-cloud.md says")
    copied = await asyncio.to_thread(copy, only_file(settings), options.file)
    if options.json:
        tell(json_of({"file": str(options.file), **copied._asdict()}))
        return
    tell(
        f"{options.file}: {copied.counters:,} counters, {copied.pending:,} pending messages, {copied.size:,} bytes;"
        " checked and synced"
    )
