"""The command keys: adds keys to the keys file, lists them, and revokes them."""

import argparse
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from countersink_server.cli.arguments import HELPS, LINES, Commands, command, integer, prefix
from countersink_server.cli.output import json_of, note, plain, replacing, tell
from countersink_server.cli.target import add_neither
from ingest.access.keys import (
    SCOPES,
    Key,
    KeysFile,
    content_of,
    for_pages,
    is_ours,
    keys_in,
    make,
    place_of,
    written,
)
from shared.config.settings import Settings
from shared.model.errors import CountersinkError, SettingsError, amount

LOCK_WITHIN = 10.0
"""Seconds to wait for another command that changes the file."""
PAUSE = 0.02
_Edit = Callable[[list[Key]], Sequence[Key]]


def add_commands(commands: Commands) -> None:
    keys = commands.add_parser(
        "keys",
        help=HELPS["keys"],
        description="Make, list and revoke the keys of a service. They are in the file that"
        " COUNTERSINK_KEYS_FILE names. Services read it again within a second after it has changed.",
    )
    actions = keys.add_subparsers(title="actions", metavar="ACTION", required=True)
    new = command(
        actions,
        "new",
        _new,
        help_="add a key, and print it; it is shown only once",
        description="Add a key to the file, which is made if there is none, and print the key on standard output."
        " The file holds only its SHA-256, so the key can't be shown again.",
        json=LINES,
    )
    new.add_argument("id", metavar="ID", help="name of the key: letters, digits, '-', '_' and '.'")
    scope = new.add_argument(
        "--scope",
        dest="scopes",
        type=_scopes,
        action="extend",
        required=True,
        metavar="SCOPES",
        help="what the key may do, or several of these with commas; can be repeated: "
        + ", ".join(f"{name} ({scope.allows})" for name, scope in SCOPES.items())
        + f"; a publishable key may have only {' and '.join(for_pages())} [write, for a publishable key]",
    )
    new.add_argument(
        "--google",
        metavar="ACCOUNT",
        help="a key without a secret: the Google service account with this address sends its ID tokens instead,"
        " such as NAME@PROJECT.iam.gserviceaccount.com; nothing is printed",
    )
    new.add_argument(
        "--prefix",
        dest="prefixes",
        action="append",
        type=prefix,
        default=[],
        metavar="P",
        help="only counters whose names begin with P; can be repeated",
    )
    new.add_argument(
        "--rate", type=float, metavar="N", help="maximum number of increments a second, in each ingest process"
    )
    new.add_argument(
        "--owner",
        default="",
        metavar="O",
        help="keys of one owner share ids, jobs and receipts, so one can replace another; without an owner they share"
        " those of requests without a key; a publishable key shares nothing",
    )
    new.add_argument(
        "--expires",
        type=_instant,
        metavar="DATE",
        help="when the key ends: a time, or a date such as 2027-01-31, which means 00:00 UTC of that day [never]",
    )
    new.add_argument("--note", metavar="TEXT", help="what the key is for")
    new.add_argument(
        "--publishable",
        action=_Publishable,
        scope=scope,
        help="a key that may appear in a web page: it may only count, and read counters if it has the scope read,"
        " under its prefixes, from its origins",
    )
    new.add_argument(
        "--origin",
        dest="origins",
        action="append",
        default=[],
        metavar="O",
        help="for a publishable key: an origin of pages, such as https://www.example.com; can be repeated",
    )
    new.add_argument(
        "--client-rate",
        type=float,
        metavar="N",
        help="for a publishable key: maximum number of increments a second from each client address, in each ingest"
        " process, and of counters read; after a pause, as many at once as the key may send in a second [1/10 of"
        " --rate, at least 1; without --rate 10]",
    )
    new.add_argument(
        "--max-delta", type=integer, metavar="N", help="for a publishable key: the largest delta; the smallest is 1 [1]"
    )
    new.add_argument(
        "--max-new",
        type=integer,
        metavar="N",
        help="for a publishable key: maximum number of new counters an hour, in each ingest process; one client may"
        " make as many as it leaves free for others [1000]",
    )
    revoke = command(actions, "revoke", _revoke, help_="remove a key", json=LINES)
    revoke.add_argument("id", metavar="ID")
    for parser in (
        new,
        revoke,
        command(actions, "list", _list, help_="list the keys, without their secrets", json=LINES),
    ):
        add_neither(parser, "keys are in a file of their own: set COUNTERSINK_KEYS_FILE")


def _new(options: argparse.Namespace) -> None:
    said = {one.name: getattr(options, one.name, None) for one in fields(Key)}
    try:
        key, text = make(**{"scopes": ["write"]} | {name: value for name, value in said.items() if value is not None})
    except SettingsError as error:
        why = str(error).removeprefix(f"the key {options.id!r:.120}: ")
        options.refuse(re.sub(f"'({'|'.join(said)})'", lambda found: _option(found[1]), why, count=1))

    def add(keys: list[Key]) -> Sequence[Key]:
        if same := [one.id for one in keys if key.google and one.google == key.google and one.id != key.id]:
            raise CountersinkError(f"the key {same[0]!r} is for this account already: revoke it first")
        if any(one.id == key.id for one in keys):
            raise CountersinkError(
                f"the key {key.id!r} exists already: choose another id, or revoke it first. To replace a key while it"
                " is in use, give both the same --owner, and revoke the old key when nobody uses it any more"
            )
        return [*keys, key]

    _change(_file(), add)
    if key.ends <= time.time():
        note(f"countersink: the key {key.id} has expired already, at {key.expires}: services refuse it")
    if options.json:
        tell(json_of({"id": key.id, "key": text} if text else {"id": key.id, "google": key.google}))
    elif text:
        tell(text)


def _option(field: str) -> str:
    """What sets the field of a key."""
    others = {"id": "ID", "scopes": "--scope", "prefixes": "--prefix", "origins": "--origin"}
    return others.get(field, f"--{field.replace('_', '-')}")


def _list(options: argparse.Namespace) -> None:
    now = datetime.now(UTC).timestamp()
    keys = _read(file := place_of(_file())).keys
    if not file.exists():
        note(f"countersink: {file} does not exist yet: countersink keys new makes it")
    width = max([len(key.id) for key in keys], default=0)
    for key in keys:
        if options.json:
            tell(json_of(_said(key, now)))
            continue
        said = [
            ",".join(key.scopes),
            *([f"prefixes {', '.join(map(repr, key.prefixes))}"] if key.prefixes else []),
            *([f"origins {', '.join(key.origins)}"] if key.origins else []),
            *([f"account {key.google}"] if key.google else []),
            *([f"{key.rate:g}/s"] if key.rate else []),
            *([f"{key.client_rate:g}/s for each client"] if key.client_rate else []),
            *([f"deltas up to {key.max_delta}"] if key.max_delta is not None else []),
            *([f"{amount(key.max_new, 'new counter')} an hour"] if key.max_new is not None else []),
            *([f"owner {key.owner}"] if key.owner else []),
            *([f"{'expires' if now < key.ends else 'EXPIRED'} {key.expires}"] if key.expires else []),
            *([plain(key.note)] if key.note else []),
        ]
        tell(f"{key.id:{width}}  {'publishable, ' if key.publishable else ''}{', '.join(said)}")


def _said(key: Key, now: float) -> dict[str, Any]:
    lists = {name: list(getattr(key, name)) for name in ("scopes", "prefixes", "origins")}
    texts = {name: getattr(key, name) or None for name in ("google", "rate", "owner", "expires", "note")}
    of_pages = {name: getattr(key, name) for name in ("client_rate", "max_delta", "max_new") if key.publishable}
    return {"id": key.id} | lists | texts | {"expired": key.ends <= now, "publishable": key.publishable} | of_pages


def _revoke(options: argparse.Namespace) -> None:
    def remove(keys: list[Key]) -> Sequence[Key]:
        kept = [key for key in keys if key.id != options.id]
        if len(kept) == len(keys):
            raise CountersinkError(f"there is no key {options.id!r}: countersink keys list shows all")
        return kept

    _change(_file(), remove)
    if options.json:
        tell(json_of({"id": options.id, "revoked": True}))


def _file() -> Path:
    settings = Settings.read(os.environ)
    if not settings.keys_file:
        raise SettingsError("COUNTERSINK_KEYS_FILE does not name a file: set it to the file for the keys")
    return Path(settings.keys_file)


def _read(file: Path) -> KeysFile:
    return keys_in(content_of(file), file) if file.exists() else KeysFile()


def _change(file: Path, edit: _Edit) -> None:
    """Replace the file in one step. Commands that run at the same time wait for each other."""
    file = place_of(file)
    with _alone(file):
        there = _read(file)
        content = written(edit([*there.keys]), there.secret)
        with replacing(file) as out:
            out.write(content)
            if os.path.lexists(file) and is_ours(old := file.lstat()):  # a service may read it as another user
                os.fchmod(out.fileno(), old.st_mode & 0o7777)
                with suppress(PermissionError):
                    os.fchown(out.fileno(), -1, old.st_gid)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Hold a lock file beside the keys file, which is removed at the end. Nobody else can open it, and so hold it."""
    lock = file.with_name(f".{file.name[:100]}.lock")
    until = time.monotonic() + LOCK_WITHIN
    while (number := _held(lock)) is None:
        if time.monotonic() > until:
            raise CountersinkError(
                f"another process has held {lock} for {LOCK_WITHIN:g} seconds: wait until it has ended, or end it"
            )
        time.sleep(PAUSE)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(number)


def _held(lock: Path) -> int | None:
    """The lock file, locked; None if another process holds it, or has removed it meanwhile."""
    try:
        number = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CountersinkError(
            f"the lock file {lock} can't be opened ({error.strerror}): check whose it is, and whether you may write to"
            " its folder"
        ) from error
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(number), lock.lstat()):
            return number
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(number)
        raise
    os.close(number)
    return None


class _Publishable(argparse.Action):
    """A flag without which `--scope` is required."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, scope: argparse.Action, help: str) -> None:  # noqa: A002 (argparse's word)
        super().__init__(option_strings, dest, nargs=0, default=False, help=help)
        self._scope = scope

    def __call__(self, _: object, namespace: argparse.Namespace, *__: object) -> None:
        namespace.publishable, self._scope.required = True, False


def _scopes(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise argparse.ArgumentTypeError(f"must be names of scopes with single commas between them, is {text!r}")
    return words


def _instant(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a date or a time such as 2027-01-31, is {text!r}") from None
    if moment.tzinfo is None and ":" in text:
        raise argparse.ArgumentTypeError(f"must say its zone, as in {text}Z, is {text!r}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.isoformat()
