"""The machine: its processors, who runs on which, and what a sync costs."""

import contextlib
import os
import platform
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any


def _processors() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


_ALL = _processors()
SERVER = _ALL[0] if len(_ALL) > 1 else None
"""The processor of whatever is measured, references too; None where we can't or needn't pin."""
GENERATOR = _ALL[1] if len(_ALL) > 1 else None


@contextlib.contextmanager
def on(processor: int | None) -> Iterator[None]:
    """What is started meanwhile stays on that processor, with all its threads."""
    if processor is None:
        yield
        return
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, _ALL)


def pinning() -> str:
    if SERVER is None:
        return "not pinned: one processor, or a system that can't"
    return f"pinned: the server and the references to processor {SERVER}, the generator to {GENERATOR}"


def describe(folder: Path) -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": os.cpu_count(),
        "processor": _model(),
        "pinning": pinning(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: version(name) for name in ("aiohttp", "uvloop", "orjson")},
        "file_system": _file_system(folder),
        "sync_ms": round(_sync(folder), 3),
        "load": round(os.getloadavg()[0], 2),
    }


def _model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _file_system(folder: Path) -> str:
    """Of the data: on tmpfs a sync would be no sync."""
    best, kind = "", "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, this = line.split()[:3]
            if folder.is_relative_to(mount) and len(mount) >= len(best):
                best, kind = mount, this
    return kind


def _sync(folder: Path) -> float:
    """Milliseconds until 4 KiB more of a file are durable: the median of some tries."""
    path = folder / "sync"
    times = []
    with path.open("wb", buffering=0) as file:
        for _ in range(100):
            begun = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begun)
    path.unlink()
    return statistics.median(times) * 1000


def cpu(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def commit() -> str | None:
    """The commit of this checkout, with a + if its code has changed since; None outside of a checkout."""
    here = Path(__file__).parent
    git = ("git", "-c", "safe.directory=*", "-C", str(here))
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True)
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ":/*.py"], check=False).returncode
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changed else "")


def resident(pid: int) -> float:
    """MiB of memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} says nothing of its memory")
