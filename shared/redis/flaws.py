"""Finds out whether a Redis can hold the overlay."""

from typing import Final

from shared.redis.server import Server

OLDEST: Final = (6, 0)


async def flaws_of(server: Server) -> list[str]:
    """One sentence for each thing that is wrong, with what to do."""
    found = []
    info = _read(await server.plain("INFO", looking=True))
    version = info.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        found.append(f"{server.shown} is Redis {version}; {OLDEST[0]}.{OLDEST[1]} or later is needed")
    if info.get("cluster_enabled") == "1":
        found.append(f"{server.shown} is a cluster; the overlay needs a single server, with replicas or without")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        found.append(
            f"{server.shown} has maxmemory-policy {policy}: it may drop entries, and reads would miss them without"
            " notice; set it to noeviction"
        )
    if info.get("role") not in {None, "master"}:
        found.append(f"{server.shown} is a replica; name the server that takes writes")
    return found


def _read(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode().splitlines() if ":" in line)
    return {name: value for name, _, value in lines}
