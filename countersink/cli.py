"""The command line: what can be said, and what becomes of errors."""

import argparse
import os
import sys
from collections.abc import Sequence

from countersink import __version__, serving, shell
from shared.errors import CountersinkError
from shared.settings import table


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit 0 when it is done, 1 with one line when it failed, 2 when it was said wrong."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except CountersinkError as error:
        sys.exit(f"countersink: {error}")
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="countersink",
        description="Counts exactly once what happens more often than a database can write one row.",
        epilog=_settings(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"countersink {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serving.add_commands(commands)
    shell.add_commands(commands)
    return parser


def _settings() -> str:
    width = max(len(name) for name, _, _ in table())
    lines = [f"  {name:{width}}  {help_} [{default}]" for name, default, help_ in table()]
    return "settings (environment):\n" + "\n".join(lines)
