"""Draws badges: a label and a total beside each other, as SVG or for shields.io. Pure."""

import re
import unicodedata
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

import orjson

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
"""Of 255: on a brighter color, the text is dark."""


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
