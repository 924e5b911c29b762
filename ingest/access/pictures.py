"""Tells which counters are shown as pictures: pixels that count, and badges. Pure."""

from typing import Final, NamedTuple
from urllib.parse import unquote

COUNTERS: Final = "/v1/counters/"
PIXEL: Final = "/pixel.gif"
BADGES: Final = ("/badge.svg", "/badge.json")


class Pictures(NamedTuple):
    """The prefixes of the counters, from COUNTERSINK_PIXELS and COUNTERSINK_BADGES."""

    pixels: tuple[str, ...] = ()
    badges: tuple[str, ...] = ()

    def show(self, path: str) -> bool:
        """Whether pages of all sites may show this. `path` is as it was sent."""
        return self.has_pixel(path) or self.has_badge(path)

    def has_pixel(self, path: str) -> bool:
        return bool(self.pixels) and path.endswith(PIXEL) and _named(path, self.pixels)

    def has_badge(self, path: str) -> bool:
        return bool(self.badges) and path.endswith(BADGES) and _named(path, self.badges)


NONE_SHOWN: Final = Pictures()


def _named(path: str, prefixes: tuple[str, ...]) -> bool:
    name, slash, part = path.removeprefix(COUNTERS).partition("/")
    return path.startswith(COUNTERS) and bool(slash) and "/" not in part and unquote(name).startswith(prefixes)
