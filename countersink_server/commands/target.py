"""Decides what a command talks to: a running service, or the data itself. All commands use the same options for it."""

import argparse
import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from countersink.answers import RejectedError, RequestError
from countersink_server.commands.arguments import Refused, seconds
from countersink_server.commands.output import note
from countersink_server.process.logs import set_up
from shared.config import urls
from shared.config.settings import Settings
from shared.model.errors import SettingsError

URL: Final = "http://127.0.0.1:8080"
URL_VARIABLE: Final = "COUNTERSINK_URL"
KEY: Final = "COUNTERSINK_KEY"
PATIENCE: Final = 10.0
BROKER: Final = "COUNTERSINK_BROKER"
STORE: Final = "COUNTERSINK_STORE"
_ON_DATA: Final = re.compile(r"countersink (?:doctor|provision|sweep|audit|backup|dlq [a-z]+)\b")
_URL_HELP: Final = f"URL of the service; also {URL_VARIABLE} [{URL}]"
_DATA_HELP: Final = f"folder with the data, instead of {BROKER}"

Parser = argparse.ArgumentParser


def add_service(parser: Parser, *, patience: bool = True) -> None:
    """The command asks a service, or with --data, this process does what the service would do."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help=_URL_HELP)
    where.add_argument("--data", metavar="DIR", help="work on the data in this folder, without a service")
    if patience:
        add_patience(parser)


def add_only_service(parser: Parser, instead: str) -> None:
    """The command needs a running service."""
    parser.add_argument("--url", help=_URL_HELP)
    parser.add_argument("--data", action=Refused, instead=instead)


def add_only_data(parser: Parser) -> None:
    """The command opens the data itself, by the settings or with --data."""
    parser.add_argument("--data", metavar="DIR", help=_DATA_HELP)
    parser.add_argument(
        "--url", action=Refused, instead="this command opens the data itself: use --data DIR, or the settings"
    )


def add_either(parser: Parser, help_: str) -> None:
    """The command opens the data itself, and with --url a service does the work."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", help=help_)
    where.add_argument("--data", metavar="DIR", help=_DATA_HELP)


def add_neither(parser: Parser, instead: str) -> None:
    """The command works on something else."""
    for option in ("--url", "--data"):
        parser.add_argument(option, action=Refused, instead=instead)


def add_patience(parser: Parser, only: str = "") -> None:
    parser.add_argument(
        "--patience",
        type=seconds,
        default=PATIENCE,
        metavar="S",
        help=f"{only}seconds to retry while there is no answer, or the service is overloaded [{PATIENCE:g}]",
    )


def url_of(options: argparse.Namespace) -> str:
    """The URL of the service."""
    variable = os.environ.get(URL_VARIABLE)
    url: str = options.url or variable or URL
    options.target = urls.shown(url).rstrip("/")
    if variable and not options.url:
        _show(f"{options.target} ({URL_VARIABLE})")
    return url


@contextlib.contextmanager
def naming_the_url(options: argparse.Namespace) -> Iterator[None]:
    """Says of a URL that is wrong, or of a key, who named it. Make the client inside."""
    try:
        yield
    except ValueError as error:
        if options.url:
            options.refuse(f"argument --url: {error}")
        raise SettingsError(f"{URL_VARIABLE}={error}") from None
    except RejectedError as error:
        raise SettingsError(f"{KEY}: {error}") from None


def settings_of(options: argparse.Namespace) -> Settings:
    """Read the settings from the environment and --data, and log to standard error."""
    settings = Settings.read(environment_of(options))
    set_up(settings)
    options.target = _described(settings)
    if BROKER in os.environ or STORE in os.environ:
        _show(f"{options.target} ({BROKER if BROKER in os.environ else STORE})")
    return settings


def environment_of(options: argparse.Namespace) -> Mapping[str, str]:
    """The environment, in which --data says where the data is."""
    environment = dict(os.environ)
    if options.data is not None:
        for variable in (BROKER, STORE):
            if variable in environment:
                options.refuse(f"--data and {variable} both say where the data is: say one of them")
        try:
            environment[BROKER] = url_of_folder(options.data)
        except UnicodeEncodeError:
            options.refuse("argument --data: the folder's name is not UTF-8")
    return environment


def url_of_folder(folder: str) -> str:
    """The URL of the data file in the folder: absolute, and safe for all characters in the path."""
    file = Path(folder).absolute() / "countersink.db"
    return f"sqlite:///{quote(str(file))}"


def _described(settings: Settings) -> str:
    if urls.scheme_of(settings.broker) == "sqlite":
        with contextlib.suppress(SettingsError):
            return str(urls.sqlite_file(BROKER, settings.broker).absolute())
    return " and ".join(filter(None, (settings.broker, settings.store)))


def _show(target: str) -> None:
    """Say to people what a variable chose: they may have forgotten it. Scripts, and their logs, set it themselves."""
    if sys.stderr is not None and sys.stderr.isatty():
        note(f"countersink: using {target}")


def with_data(said: str, options: Any) -> str:
    """The text, whose commands on the data get the folder that this command was given: without it they would look at
    other data.
    """
    folder = getattr(options, "data", None)
    return said if folder is None else _ON_DATA.sub(lambda found: f"{found[0]} --data {shlex.quote(folder)}", said)


def with_key(error: RequestError) -> str:
    """Why a request failed, on one line; if it is because of the key, also where commands take it from."""
    said = " ".join(str(error).split())
    if error.status not in {401, 403}:
        return said
    if KEY not in os.environ:
        return f"{said}. Set {KEY} to a key of the service"
    return f"{said}. The key is that in {KEY}"


def with_target(said: str, options: Any) -> str:
    """The reason for a failure, and what the command talked to."""
    target: str = getattr(options, "target", "")
    return said if not target or target in said else f"{said} ({target})"
