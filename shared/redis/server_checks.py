"""Finds out whether a Redis can hold the overlay."""

from collections.abc import Iterator
from typing import Final

from shared.config.findings import FAIL, WARN, Finding
from shared.redis.links import FullError
from shared.redis.server import Server

PART: Final = "overlay"
OLDEST: Final = (6, 0)
KEEPS: Final = "noeviction"
PROBE: Final = "countersink:doctor"
"""A key that doctor writes, to see whether there is memory left. It expires after seconds."""
FULL: Final = (
    "it is full: raise its maxmemory, or start flushers if many increments wait; until then each increment takes two"
    " seconds, reads are not exact while one waits, and counters can't be set"
)
UNSAID: Final = (
    f"does not say whether it drops entries when its memory is full: set its maxmemory-policy to {KEEPS}, or reads"
    " could miss increments and say that they are exact"
)


def flaw_of_policy(policy: str) -> str | None:
    """Why a server with this policy can't be the overlay; None if it can, or does not say.

    Nobody is told of an entry that is dropped, and reads would miss it. Our keys never expire, so they survive policies
    that drop only keys with an expiry (`volatile-…`, the default of some managed services).
    """
    if policy in {"", KEEPS} or policy.startswith("volatile-"):
        return None
    return f"Redis has maxmemory-policy {policy} and may drop entries: set its maxmemory-policy to {KEEPS}"


async def findings_of(server: Server) -> list[Finding]:
    """A finding for each thing that is wrong, with what to do."""
    info = _read(await server.plain("INFO", looking=True))
    found = [*_findings(info)]
    if all(mark != FAIL for mark, _ in found):  # a replica, or a cluster, takes no such write
        try:
            await server.plain("SET", PROBE, "", "EX", 10, looking=True)
        except FullError:
            found.append((FAIL, FULL))
    return [Finding(mark, PART, f"{server.shown}: {said}") for mark, said in found]


def _findings(info: dict[str, str]) -> Iterator[tuple[str, str]]:
    version = info.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        yield FAIL, f"it is Redis {version}; {OLDEST[0]}.{OLDEST[1]} or later is needed"
    if info.get("cluster_enabled") == "1":
        yield FAIL, "it is a cluster; the overlay needs a single server, with replicas or without"
    policy = info.get("maxmemory_policy", "")
    if not policy:
        yield WARN, f"it {UNSAID}"
    if flaw := flaw_of_policy(policy):
        yield FAIL, f"{flaw}; until then no process uses it, and no read is exact"
    if info.get("role") not in {None, "master"}:
        yield FAIL, "it is a replica; name the server that takes writes"


def _read(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}
