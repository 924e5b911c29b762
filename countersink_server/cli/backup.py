"""The command backup: copies the SQLite file while the service runs."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from countersink_server.cli.output import json_of, tell
from countersink_server.cli.setup import add
from countersink_server.cli.target import settings_of


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
    from shared.wiring.files import backup  # noqa: PLC0415 (who asks for help should not wait for it)

    copied = await asyncio.to_thread(backup, settings_of(options), options.file)
    if options.json:
        tell(json_of({"file": str(options.file), **copied._asdict()}))
        return
    tell(
        f"{options.file}: {copied.counters:,} counters, {copied.pending:,} pending messages, {copied.size:,} bytes;"
        " checked and synced"
    )
