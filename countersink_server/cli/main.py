"""The command line: the table of commands, and how errors are reported."""

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from textwrap import TextWrapper

from countersink import __version__
from countersink.answers import RequestError
from countersink_server.cli import (
    audit,
    backup,
    check,
    completion,
    copy,
    counters,
    dead_letters,
    imports,
    keys,
    map,  # noqa: A004 (a command)
    output,
    plan,
    serve,
    setup,
    status,
    watch,
)
from countersink_server.cli.arguments import CommandParser, columns
from countersink_server.cli.target import KEY, URL, with_data, with_key, with_target
from shared.config.settings import table
from shared.model.errors import CountersinkError

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit with 0 on success, 1 and one line on failure, 2 on wrong usage."""
    output.show_anything()
    options = parser_of_all().parse_args(arguments)
    try:
        options.run(options)
        output.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        output.give_up()
    except KeyboardInterrupt:
        output.give_up()
        sys.exit(130)
    except Exception as error:  # users get one line, whatever it was
        _log.debug("what went wrong", exc_info=True)
        output.give_up()
        said = with_data(line_of(error), options)
        sys.exit(f"countersink: {said if isinstance(error, OSError) else with_target(said, options)}")


def line_of(error: BaseException) -> str:
    """Why it failed, on one line. Of a group of errors it is the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
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


def parser_of_all() -> CommandParser:
    """The parser of all commands."""
    parser = CommandParser(
        prog="countersink",
        description="A counter service: every accepted increment counts exactly once.",
        epilog=_settings(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"countersink {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    families = (
        serve,
        counters,
        watch,
        status,
        keys,
        setup,
        plan,
        dead_letters,
        map,
        audit,
        check,
        backup,
        imports,
        copy,
        completion,
    )
    for family in families:
        family.add_commands(commands)
    return parser


def _settings() -> str:
    rows = [
        *table(),
        ("COUNTERSINK_URL", URL, "URL of the service, for all commands that ask one, except map"),
        (KEY, "none", "key that commands send to the service"),
    ]
    width = max(len(name) for name, _, _ in rows)
    wrapper = TextWrapper(
        columns(), subsequent_indent=" " * (width + 4), break_long_words=False, break_on_hyphens=False
    )
    lines = [wrapper.fill(f"  {name:{width}}  {help_} [{default}]") for name, default, help_ in rows]
    return "settings (environment):\n" + "\n".join(lines)
