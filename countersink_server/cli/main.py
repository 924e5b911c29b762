"""The command line: the table of commands, and how errors are reported."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from textwrap import TextWrapper

from countersink import __version__
from countersink_server.cli import output
from countersink_server.cli.arguments import COMMANDS, CommandParser, columns
from countersink_server.cli.target import KEY, URL, line_of, with_data, with_target
from shared.config.settings import table

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit with 0 on success, 1 and one line on failure, 2 on wrong usage. Ctrl-C is a `KeyboardInterrupt`."""
    output.show_anything()
    options = argparse.Namespace()
    try:
        options = parser_of_all(sys.argv[1:] if arguments is None else arguments).parse_args(arguments)
        if asyncio.iscoroutine(running := options.run(options)):
            asyncio.run(running)
        output.flush()
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        output.give_up()
    except KeyboardInterrupt:
        output.give_up()
        raise
    except Exception as error:  # users get one line, whatever it was
        _log.debug("what went wrong", exc_info=True)
        output.give_up()
        said = with_data(line_of(error), options)
        sys.exit(f"countersink: {said if isinstance(error, OSError) else with_target(said, options)}")


def parser_of_all(arguments: Sequence[str] = ()) -> CommandParser:
    """The parser of all commands. If these arguments begin with a command, it knows that one and those of its module:
    nobody should wait until the others are imported. For --help, the table has all that is needed.
    """
    asked = next((module for module, commands in COMMANDS.items() if arguments and arguments[0] in commands), None)
    only_help = bool(arguments) and arguments[0] in {"-h", "--help", "--version"}
    parser = CommandParser(
        prog="countersink",
        description="A counter service: every accepted increment counts exactly once.",
        epilog=_settings(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"countersink {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module, helps in COMMANDS.items():
        if only_help:
            for name, help_ in helps.items():
                commands.add_parser(name, help=help_)
        elif asked in {None, module}:
            import_module(f"countersink_server.cli.{module}").add_commands(commands)
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
