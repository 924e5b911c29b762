"""Decides what a command talks to, a running service or the data itself, and says why an answer takes long."""

import argparse
import asyncio
import contextlib
import logging
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

from countersink import AsyncClient, Counter
from countersink.answers import RejectedError, RequestError
from countersink.client import CLOSING
from countersink_server.cli.arguments import Refused, filled, folder, seconds
from countersink_server.cli.output import note
from countersink_server.serve.logs import set_up
from shared.config import urls
from shared.config.settings import Settings
from shared.model.errors import CountersinkError, SettingsError

URL: Final = "http://127.0.0.1:8080"
URL_VARIABLE: Final = "COUNTERSINK_URL"
KEY: Final = "COUNTERSINK_KEY"
PATIENCE: Final = 10.0
BROKER: Final = "COUNTERSINK_BROKER"
STORE: Final = "COUNTERSINK_STORE"
_ON_DATA: Final = re.compile(r"countersink (?:up|doctor|provision|sweep|audit|backup|dlq [a-z]+)\b")
_URL_HELP: Final = f"URL of the service; also {URL_VARIABLE} [{URL}]"
_DATA_HELP: Final = f"folder with the data, instead of {BROKER}"

Parser = argparse.ArgumentParser


def add_service(parser: Parser, *, patience: bool = True) -> None:
    """The command asks a service, or with --data, this process does what the service would do."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", type=filled, help=_URL_HELP)
    where.add_argument("--data", type=folder, metavar="DIR", help="work on the data in this folder, without a service")
    if patience:
        add_patience(parser)


def add_only_service(parser: Parser, instead: str) -> None:
    parser.add_argument("--url", type=filled, help=_URL_HELP)
    parser.add_argument("--data", action=Refused, instead=instead)


def add_only_data(parser: Parser) -> None:
    """The command opens the data itself, by the settings or with --data."""
    parser.add_argument("--data", type=folder, metavar="DIR", help=_DATA_HELP)
    parser.add_argument(
        "--url", action=Refused, instead="this command opens the data itself: use --data DIR, or the settings"
    )


def add_either(parser: Parser, help_: str) -> None:
    """The command opens the data itself, and with --url a service does the work."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", type=filled, help=help_)
    where.add_argument("--data", type=folder, metavar="DIR", help=_DATA_HELP)


def add_neither(parser: Parser, instead: str) -> None:
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
    variable = os.environ.get(URL_VARIABLE)
    url: str = options.url or variable or URL
    options.target = urls.shown(url).rstrip("/")
    if variable and not options.url:
        _show(f"{options.target} ({URL_VARIABLE})")
    return url


def key_of_caller() -> str | None:
    """The key in the environment. An empty one is none."""
    return os.environ.get(KEY) or None


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
                options.refuse(f"--data and {variable} both say where the data is: use one of them")
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


def with_key(error: RequestError, source: str = KEY) -> str:
    """Why a request failed, on one line; if it is because of the key, also where this one comes from."""
    said = " ".join(str(error).split())
    if error.status not in {401, 403}:
        return said
    if source == KEY and key_of_caller() is None:
        return f"{said}. Set {KEY} to a key of the service"
    return f"{said}. The key comes from {source}"


def cause_of(error: BaseException) -> BaseException:
    """The first error of a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def line_of(error: BaseException) -> str:
    """Why it failed, on one line."""
    error = cause_of(error)
    said = " ".join(str(error).split())
    if isinstance(error, RequestError):
        return with_key(error)
    if isinstance(error, CountersinkError):
        return said
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    where = traceback.extract_tb(error.__traceback__)[-1:]
    places = "".join(f" in {os.path.basename(frame.filename)}:{frame.lineno}" for frame in where)  # noqa: PTH119 (a name)
    return f"a bug in Countersink{places}, {type(error).__name__}: {said} (COUNTERSINK_LOG_LEVEL=DEBUG shows more)"


def with_target(said: str, options: Any) -> str:
    target: str = getattr(options, "target", "")
    return said if not target or target in said else f"{said} ({target})"


SILENCE: Final = 1.0
"""Seconds after which it says why it waits."""
AGAIN: Final = 5.0
"""Seconds until it says so again."""

_LOG: Final = logging.getLogger("countersink.client")

P = ParamSpec("P")
T = TypeVar("T")


class PatientClient(AsyncClient):
    """Says on standard error why an answer takes long. It sends one request at a time. Use one in a process."""

    def __init__(
        self, url: str, key: str | None = None, *, patience: float, shown: str, say: Callable[[str], None]
    ) -> None:
        """`shown` is how people know the service."""
        super().__init__(url, key, patience=patience)
        self._say = say
        self._waiting = f"waiting for an answer from {shown}"
        self._trying = "trying again" + ("" if patience == float("inf") else f" for up to {patience:g} s")
        self._failure = _LastFailure()

    async def close(self, timeout: float = CLOSING) -> bool:
        self._failure.close()
        return await super().close(timeout)

    async def _run(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._patiently(super()._run(method, *args, **kwargs), self._waiting)

    async def _next(self, signs: Iterator[Counter | None]) -> Counter | None:
        return await self._patiently(super()._run(next, signs), "")  # of a stream, silence is no bad sign

    async def _patiently(self, asking: Coroutine[Any, Any, T], waiting: str) -> T:
        """`waiting`: what to say if nothing failed, and there is no answer yet."""
        self._failure.text = ""
        asked = asyncio.create_task(asking, name="ask the service")
        try:
            pause, told = SILENCE, False
            while not (await asyncio.wait([asked], timeout=pause))[0]:
                failure = self._failure.text
                if failure or waiting:
                    self._say(f"countersink: {failure} ({self._trying})" if failure else f"countersink: {waiting}")
                    pause, told = AGAIN, True
            if told and self._failure.text and asked.exception() is None:
                self._say("countersink: it answers again")
            return asked.result()
        finally:
            asked.cancel()


class _LastFailure(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        _LOG.setLevel(logging.INFO)
        _LOG.addHandler(self)
        _LOG.propagate = False

    def close(self) -> None:
        _LOG.setLevel(logging.NOTSET)
        _LOG.removeHandler(self)
        _LOG.propagate = True
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
