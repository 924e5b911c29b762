"""Reads what this process takes: CPU time, memory and open files. The metrics have the names that all programs use."""

import os
import resource
import time
from math import nan
from pathlib import Path
from typing import Final

from shared.runtime import metrics

_PAGE: Final = resource.getpagesize()


def watch() -> None:
    """Show it in the metrics. Values that only Linux tells are not shown elsewhere."""
    metrics.CPU.set_function(time.process_time)
    metrics.RESIDENT.set_function(_resident)
    metrics.OPEN_FILES.set_function(_open_files)
    metrics.MAX_FILES.set_function(lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    metrics.PROCESS_START.set(_started())


def _resident() -> float:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return nan


def _open_files() -> float:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 (it is done at each scrape, and this is faster)
    except OSError:
        return nan


def _started() -> float:
    """When this process started, in seconds since 1970."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return nan
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
