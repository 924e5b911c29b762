"""Pictures: pixels that count, and badges that show a total, as SVG or for shields.io."""

import re
import unicodedata
from hashlib import sha256
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import unquote
from xml.sax.saxutils import escape, quoteattr

import orjson
from msgspec import Meta, Struct

from ingest.accept.publishing import Publishing
from ingest.api.fields import Id, Name
from ingest.api.increments import IncrementRoutes
from ingest.http.problems import Problem
from ingest.http.requests import COUNTERS, Call, File
from shared.counters.reader import Reader
from shared.http.answers import PUBLIC, line
from shared.model.words import flaw_of_id, flaw_of_name

# Which counters are shown as pictures. Pure.


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


def _named(path: str, prefixes: tuple[str, ...]) -> bool:
    name, slash, part = path.removeprefix(COUNTERS).partition("/")
    return path.startswith(COUNTERS) and bool(slash) and "/" not in part and unquote(name).startswith(prefixes)


# How a badge looks. Pure.


BADGE_AGE: Final = 30
"""Seconds for which browsers and proxies keep a badge. Its stored part may be as old already."""
DEFAULT_COLOR: Final = "blue"
GIF: Final = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;"
COLORS: Final = {
    "blue": "0a66c2",
    "gray": "5f6b76",
    "green": "2e7d32",
    "orange": "e06c00",
    "purple": "7b3fb5",
    "red": "c62828",
    "yellow": "f2c200",
}
STYLES: Final = ("round", "square")
LONGEST_LABEL: Final = 60
"""Characters of a label that are drawn. The title has all of them."""
_HEX: Final = re.compile(r"#?([0-9a-f]{6}|[0-9a-f]{3})")
_LABEL: Final = "3d444d"
_UNITS: Final = "kMGTPE"
_HEIGHT: Final = 20
_PADDING: Final = 6
_WIDTHS: Final = {
    **dict.fromkeys("!'.,:;I[]ijl|", 4),
    **dict.fromkeys(' "()-/frt{}', 5),
    **dict.fromkeys("%@MWmw…", 10),
    **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ&#+<=>", 8),
}
_WIDE: Final = 11
_OTHERS: Final = 7
_BRIGHT: Final = 150
"""The brightness, of 255, above which the text on a color is dark."""


class Badge(NamedTuple):
    """What a badge shows. The color is one for which `color_of` returned a text."""

    label: str
    value: int
    color: str
    style: str = STYLES[0]

    def svg(self) -> bytes:
        label, message = _cut(_printable(self.label)), short(self.value)
        left, right = _room(label), _room(message)
        title = f"{_printable(self.label)}: {self.value:,}"
        corner = 3 if self.style == "round" else 0
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img"'
            f" aria-label={quoteattr(title)}><title>{escape(title)}</title>"
            f'<clipPath id="c"><rect width="{left + right}" height="{_HEIGHT}" rx="{corner}"/></clipPath>'
            f'<g clip-path="url(#c)"><rect width="{left}" height="{_HEIGHT}" fill="#{_LABEL}"/>'
            f'<rect x="{left}" width="{right}" height="{_HEIGHT}" fill="#{self.color}"/></g>'
            f'<g font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
            f"{_text(label, 0, _LABEL)}{_text(message, left, self.color)}</g></svg>"
        ).encode()

    def json(self) -> bytes:
        """As the endpoint badge of shields.io reads it."""
        return orjson.dumps(
            {"schemaVersion": 1, "label": self.label, "message": short(self.value), "color": f"#{self.color}"}
        )


def color_of(text: str) -> str | None:
    """Six hexadecimal digits for a name or for digits; None if it is neither."""
    found = _HEX.fullmatch(text.lower())
    if found is None:
        return COLORS.get(text)
    return found[1] if len(found[1]) == len("rrggbb") else "".join(digit * 2 for digit in found[1])


def short(value: int) -> str:
    """Three digits at least, cut and not rounded, so that it never shows more than there is: 12.3k."""
    size, unit = abs(value), ""
    number = str(size)
    for power, letter in enumerate(_UNITS, 1):
        if size < 1_000**power:
            break
        tenths, unit = size * 10 // 1_000**power, letter
        number = f"{tenths // 10}" if tenths >= 1_000 else f"{tenths // 10}.{tenths % 10}"  # noqa: PLR2004 (100)
    return f"{'-' if value < 0 else ''}{number}{unit}"


def _printable(text: str) -> str:
    """XML can't hold some characters at all."""
    return "".join("\ufffd" if unicodedata.category(letter) in {"Cc", "Cn", "Cs"} else letter for letter in text)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def _width(text: str) -> int:
    return sum(
        0
        if unicodedata.combining(letter)
        else _WIDTHS.get(letter) or (_WIDE if unicodedata.east_asian_width(letter) in "WF" else _OTHERS)
        for letter in text
    )


def _room(text: str) -> int:
    return _width(text) + 2 * _PADDING


def _text(text: str, begin: int, background: str) -> str:
    """The text takes the width that was reckoned, whatever the font."""
    red, green, blue = bytes.fromhex(background)
    color = "1f2328" if 0.299 * red + 0.587 * green + 0.114 * blue > _BRIGHT else "fff"
    return (
        f'<text x="{begin + _PADDING}" y="14" fill="#{color}" textLength="{max(_width(text), 1)}"'
        f' lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
    )


# The handlers, and what they take and give.


class PixelAsks(Struct):
    id: Id | None = None
    """It counts once, however often the picture is shown."""


class BadgeAsks(Struct):
    label: Name | None = None
    """The text before the total. The counter's name if it is missing."""
    color: Annotated[
        str | None, Meta(extra_json_schema={"pattern": f"^(#?([0-9a-fA-F]{{3}}|[0-9a-fA-F]{{6}})|{'|'.join(COLORS)})$"})
    ] = None
    """The color of the total: a name, or 3 or 6 hexadecimal digits."""


class DrawnAsks(BadgeAsks):
    style: Literal["round", "square"] | None = None
    """The form of the corners."""


class BadgeData(Struct):
    schemaVersion: Literal[1]  # noqa: N815 (shields.io names it so)
    label: str
    message: str
    color: str


class PictureRoutes:
    """Only counters under the prefixes of a setting have pictures."""

    def __init__(self, pictures: Pictures, writes: IncrementRoutes, publishing: Publishing, reader: Reader) -> None:
        self._pictures = pictures
        self._writes = writes
        self._publishing = publishing
        self._reader = reader

    async def get_pixel(self, call: Call, name: str, asks: PixelAsks) -> File:
        """Count one, and return a picture of one transparent pixel

        For pages and mails that can't run scripts. Counters that are not under a prefix in COUNTERSINK_PIXELS have
        none: 404. `HEAD` does not count.
        """
        _check(name, self._pictures.pixels, "COUNTERSINK_PIXELS")
        if asks.id is not None and (flaw := flaw_of_id(asks.id)):
            raise Problem(422, f"'id' {flaw}", field="id")
        if not call.only_head:
            draft = await self._writes.take(name, 1, asks.id, call.caller)
            await self._publishing.durable(draft)
        return File(GIF, {"Content-Type": "image/gif", "Cache-Control": "no-store", **PUBLIC})

    async def get_badge(self, call: Call, name: str, asks: DrawnAsks) -> File:
        """A badge with the total, as SVG

        Nobody needs a key for it. Counters that are not under a prefix in COUNTERSINK_BADGES have none: 404.
        """
        badge = await self._badge(name, asks, asks.style or STYLES[0])
        return _cached(call, badge.svg(), "image/svg+xml")

    async def get_badge_data(self, call: Call, name: str, asks: BadgeAsks) -> File:
        """A badge with the total, for the endpoint badge of shields.io

        Nobody needs a key for it. Counters that are not under a prefix in COUNTERSINK_BADGES have none: 404.
        """
        return _cached(call, line((await self._badge(name, asks)).json()), "application/json")

    async def _badge(self, name: str, asks: BadgeAsks, style: str = STYLES[0]) -> Badge:
        _check(name, self._pictures.badges, "COUNTERSINK_BADGES")
        color = color_of(DEFAULT_COLOR if asks.color is None else asks.color)
        if asks.label is not None and (flaw := flaw_of_name(asks.label)):
            raise Problem(422, f"'label' {flaw}", field="label")
        if color is None:
            raise Problem(422, f"'color' must be 3 or 6 hexadecimal digits, or {', '.join(COLORS)}", field="color")
        (reading,) = await self._reader.read([name], BADGE_AGE)
        return Badge(name if asks.label is None else asks.label, reading.value, color, style)


def _cached(call: Call, body: bytes, media_type: str) -> File:
    headers = {
        "Content-Type": media_type,
        "Content-Security-Policy": "default-src 'none'",
        "Cache-Control": f"public, max-age={BADGE_AGE}",
        "ETag": f'"{sha256(body).hexdigest()[:16]}"',
        **PUBLIC,
    }
    return call.cached(body, headers)


def _check(name: str, prefixes: tuple[str, ...], setting: str) -> None:
    if not prefixes or not name.startswith(prefixes):
        raise Problem(404, f"pictures of this counter are off: {setting} lists the prefixes of counters that have them")
