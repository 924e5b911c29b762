"""Reads an increment from a form, as browsers send it: `counter=page%3Ahome&delta=2`. Pure."""

import re
from typing import Any, Final
from urllib.parse import parse_qsl

from ingest.parsing.json_object import BodyError

LONGEST: Final = 8_192
"""Bytes. The longest name and the longest id, with all their bytes percent-encoded, have 4,200."""
_BEGINS: Final = re.compile(rb"(?:counter|delta|id)=")
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9a-fA-F]{2})")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def is_form(body: bytes) -> bool:
    """Whether it is a form, whatever its Content-Type says. No JSON begins like one."""
    return body[:1] in b"cdi" and _BEGINS.match(body) is not None


def fields(body: bytes) -> dict[str, Any]:
    """The fields of a form. A whole number under `delta` becomes one; all else is text, and may be wrong."""
    try:
        if len(body) > LONGEST or _BAD_ESCAPE.search(body):
            raise ValueError
        text = body.rstrip(b"\r\n").decode()
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=8)
    except ValueError:
        raise BodyError(400, f"the body is not a form of at most {LONGEST} bytes in percent-encoded UTF-8") from None
    found: dict[str, Any] = dict(pairs)
    if len(found) < len(pairs):
        raise BodyError(400, "the form has a field twice: send each field once")
    if _WHOLE.fullmatch(found.get("delta", "")):
        found["delta"] = int(found["delta"])
    return found
