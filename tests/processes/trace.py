"""Reads what a process did to its files, as strace wrote it down, and says what of it a disk would still hold after a
loss of power.
"""

import random
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.needs import missing, program

CALLS = "openat,close,pwrite64,ftruncate,fdatasync,fsync,unlink,write"
"""All that changes a file, and what goes to sockets."""
_LINE = re.compile(rb"(\d+) +(.*)")
_CALL = re.compile(rb"(\w+)\((.*)\) += (-?\d+|\?)")
_UNFINISHED = b" <unfinished ...>"
_RESUMED = re.compile(rb"<\.\.\. \w+ resumed>(.*)")
_STRING = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"')


def strace_needed() -> None:
    """It must be there, and may trace: not every container lets it."""
    program("strace")
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        missing(f"strace may not trace here: {tried.stderr}")


def traced(trace: Path, *more: str) -> tuple[str, ...]:
    """Starts a command and writes its calls to `trace`; `more` of strace's options."""
    return ("strace", "-f", "-o", str(trace), "-xx", "-s", "100000", "-e", f"trace={CALLS}", *more)


@dataclass
class Call:
    """One that has ended."""

    name: str
    arguments: Sequence[bytes]
    data: bytes
    """Its first string."""
    result: int


def calls(trace: Path) -> Iterator[Call]:
    """In the order of their ends."""
    begun: dict[bytes, bytes] = {}
    with trace.open("rb") as lines:
        for line in lines:
            found = _LINE.match(line)
            if found is None:
                continue
            thread, text = found[1], found[2]
            if text.endswith(_UNFINISHED):
                begun[thread] = text[: -len(_UNFINISHED)]
                continue
            if resumed := _RESUMED.match(text):
                text = begun.pop(thread, b"") + resumed[1]
            call = _CALL.match(text)
            if call is not None and call[3] != b"?":
                string = _STRING.search(call[2])
                data = bytes.fromhex(string[1].replace(rb"\x", b"").decode()) if string else b""
                arguments = _STRING.sub(b"", call[2]).split(b", ")
                yield Call(call[1].decode(), arguments, data, int(call[3]))


@dataclass
class _File:
    durable: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes, and as (length, None) cuts, in their order."""


class Disk:
    """The files of one folder on a disk that keeps what was synced.

    What an fsync that failed was about is marked as written by many kernels and is lost, though reads go on to see it:
    so it is here.
    """

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._open: dict[int, str] = {}
        self.failed = 0
        """Syncs that did."""

    def restart(self) -> None:
        """Another process."""
        self._open = {}

    def see(self, call: Call, folder: Path) -> None:
        if call.name == "openat" and call.result >= 0:
            path = Path(call.data.decode(errors="replace"))
            self._open.pop(call.result, None)
            if path.parent == folder:
                self._open[call.result] = path.name
                self._files.setdefault(path.name, _File())
        elif call.name == "close":
            self._open.pop(int(call.arguments[0]), None)
        elif call.name == "unlink" and call.result == 0:
            path = Path(call.data.decode(errors="replace"))
            if path.parent == folder:
                self._files.pop(path.name, None)
        elif (name := self._open.get(_number(call))) is not None and name in self._files:
            self._change(self._files[name], call)

    def _change(self, file: _File, call: Call) -> None:
        if call.name == "pwrite64" and call.result > 0:
            file.unsynced.append((int(call.arguments[-1]), call.data[: call.result]))
        elif call.name == "ftruncate" and call.result == 0:
            file.unsynced.append((int(call.arguments[-1]), None))
        elif call.name in {"fdatasync", "fsync"}:
            if call.result == 0:
                for change in file.unsynced:
                    _do(file.durable, *change)
            else:
                self.failed += 1
            file.unsynced = []

    def after_power_was_lost(self, chance: random.Random) -> Mapping[str, bytes]:
        """Of what was not synced any part may have got to the disk; the index of the log is memory."""
        found = {}
        for name, file in self._files.items():
            if name.endswith("-shm"):
                continue
            content = bytearray(file.durable)
            share = chance.choice((0.0, 0.5, 1.0))
            for change in file.unsynced:
                if chance.random() < share:
                    _do(content, *change)
            found[name] = bytes(content)
        return found


def _number(call: Call) -> int:
    first = call.arguments[0]
    return int(first) if first.isdigit() else -1


def _do(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data
