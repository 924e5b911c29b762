"""The command completion: prints a script for a shell that completes commands and options. argparse knows them all."""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from countersink_server.cli.arguments import Commands, command
from countersink_server.cli.main import parser_of_all
from countersink_server.cli.output import tell

PROGRAM: Final = "countersink"
FILES: Final = "files"
FOLDERS: Final = "folders"
ANY: Final = "any"
_PLACES: Final = {"FILE": FILES, "DIR": FOLDERS}
"""The kind of a value, by its name in the help. Values with other names are not completed."""


def add_commands(commands: Commands) -> None:
    parser = command(
        commands,
        "completion",
        _completion,
        description="Print a script that completes commands and options. In ~/.bashrc, write: source <(countersink"
        " completion bash). For zsh, write the script to a file _countersink in a folder of $fpath; for fish, to"
        " ~/.config/fish/completions/countersink.fish.",
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


class Word(NamedTuple):
    """Something to complete: a command, an option, or a value of an argument."""

    text: str
    help: str
    value: str | None = None
    """What follows the option: `FILES`, `FOLDERS` or `ANY`. None if nothing does."""


def _completion(options: argparse.Namespace) -> None:
    tell(SHELLS[options.shell](dict(words_of(parser_of_all(), PROGRAM))))


def words_of(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, Sequence[Word]]]:
    """The words of each command. Its path is its name after those of the commands that it belongs to."""
    words: list[Word] = []
    for action in parser._actions:  # noqa: SLF001 (there is no other way to ask)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {choice.dest: choice.help for choice in action._choices_actions}  # noqa: SLF001
            for name, command in action.choices.items():
                words.append(Word(name, helps.get(name) or ""))
                yield from words_of(command, f"{path} {name}")
        elif action.help != argparse.SUPPRESS:
            value = None if action.nargs == 0 else _PLACES.get(str(action.metavar), ANY)
            words += [Word(option, action.help or "", value) for option in action.option_strings]
            if not action.option_strings and action.choices is not None:
                words += [Word(choice, "") for choice in action.choices]
    yield path, words


def bash(commands: Mapping[str, Sequence[Word]]) -> str:
    folders, files, others = (_patterns(commands, value) for value in (FOLDERS, FILES, ANY))
    cases = "\n".join(
        f"        {shlex.quote(path)}) words={shlex.quote(' '.join(word.text for word in words))} ;;"
        for path, words in commands.items()
    )
    return f"""\
# Completes the commands and options of countersink in bash. Made by: countersink completion bash
_countersink() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} at={PROGRAM} word words kind=
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$at $word" in
        {_paths(commands)}) at="$at $word" ;;
        esac
    done
    COMPREPLY=()
    case "$at $previous" in
        {folders}) kind=-d ;;
        {files}) kind=-f ;;
        {others}) return ;;
    esac
    if [ -n "$kind" ]; then
        compopt -o filenames 2>/dev/null
        local IFS=$'\\n'
        COMPREPLY=($(compgen "$kind" -- "$current"))
        return
    fi
    case "$at" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _countersink {PROGRAM}"""


def zsh(commands: Mapping[str, Sequence[Word]]) -> str:
    folders, files, others = (_patterns(commands, value) for value in (FOLDERS, FILES, ANY))
    cases = "\n".join(
        f"        {shlex.quote(path)}) items=({' '.join(map(_described, words))}) ;;"
        for path, words in commands.items()
    )
    return f"""\
#compdef {PROGRAM}
# Completes the commands and options of countersink in zsh. Made by: countersink completion zsh
_countersink() {{
    local at={PROGRAM} word
    local -a items
    for word in "${{(@)words[2,CURRENT-1]}}"; do
        case "$at $word" in
        {_paths(commands)}) at="$at $word" ;;
        esac
    done
    case "$at ${{words[CURRENT-1]}}" in
        {folders}) _files -/; return ;;
        {files}) _files; return ;;
        {others}) return 1 ;;
    esac
    case "$at" in
{cases}
    esac
    _describe -o {PROGRAM} items
}}
if [ "$funcstack[1]" = _countersink ]; then
    _countersink "$@"
else
    compdef _countersink {PROGRAM}
fi"""


def fish(commands: Mapping[str, Sequence[Word]]) -> str:
    paths = " ".join(shlex.quote(path) for path in commands if path != PROGRAM)
    lines = [
        "# Completes the commands and options of countersink in fish. Made by: countersink completion fish",
        "function __countersink_at",
        f"    set -l at {PROGRAM}",
        "    for word in (commandline -opc)[2..-1]",
        f'        contains -- "$at $word" {paths}; and set at "$at $word"',
        "    end",
        '    test "$at" = "$argv"',
        "end",
        f"complete -c {PROGRAM} -f",
    ]
    takes = {None: "", ANY: " -x", FILES: " -rF", FOLDERS: " -xa '(__fish_complete_directories)'"}
    for path, words in commands.items():
        for word in words:
            name = word.text.lstrip("-")
            kind = "-a" if name == word.text else "-l" if word.text.startswith("--") else "-s"
            what = f"{kind} {name}{takes[word.value]} -d {_fish_quoted(word.help)}"
            lines.append(f"complete -c {PROGRAM} -n '__countersink_at {path}' {what}")
    return "\n".join(lines)


SHELLS: Final[Mapping[str, Callable[[Mapping[str, Sequence[Word]]], str]]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _paths(commands: Mapping[str, Sequence[Word]]) -> str:
    return "|".join(shlex.quote(path) for path in commands if path != PROGRAM)


def _patterns(commands: Mapping[str, Sequence[Word]], value: str) -> str:
    """A pattern for each option that takes such a value, after its command."""
    found = [f"{path} {word.text}" for path, words in commands.items() for word in words if word.value == value]
    return "|".join(map(shlex.quote, found))


def _described(word: Word) -> str:
    return shlex.quote(f"{word.text}:{word.help}" if word.help else word.text)


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
