"""Pixels that count, and badges, over HTTP: who may load them, and what is in them."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.api.pictures import COLORS, Badge, color_of, short
from tests.http.keys import SHOP, bearer, guarded
from tests.http.service import Service, running
from tests.http.test_browsers import CROSS, EVIL, ask

PIXEL = "/v1/counters/page:a/pixel.gif"
BADGE = "/v1/counters/page:a/badge.svg"
LINK = CROSS + b"Sec-Fetch-Mode: navigate\r\n"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, pixels=("page:",), badges=("page:", "stars")) as it:
        yield it


def texts(svg: bytes) -> list[str | None]:
    """The title, the label and the message."""
    root = ET.fromstring(svg)
    assert {node.tag for node in root.iter()} <= {
        SVG + tag for tag in ("svg", "title", "clipPath", "rect", "g", "text")
    }
    return [node.text for node in root.iter() if node.tag in {SVG + "title", SVG + "text"}]


async def test_a_pixel_counts_each_time_and_is_not_kept(service: Service) -> None:
    for _ in range(2):
        found = await service.get(PIXEL)
        assert (found.status, found.headers["Content-Type"]) == (200, "image/gif")
        assert found.headers["Cache-Control"] == "no-store"
        assert found.body[:6] == b"GIF89a"
    assert (await service.ask("HEAD", PIXEL)).status == 200
    for _ in range(2):
        assert (await service.get(f"{PIXEL}?id=mail-17")).status == 200
    assert (await service.get(f"{PIXEL}?id=")).status == 422
    assert (await service.get(f"{PIXEL}?by=5")).status == 422
    assert (await service.ask("POST", PIXEL)).status == 405
    assert await service.totals() == {"page:a": 3}
    await service.apply()
    assert await service.totals() == {"page:a": 3}


async def test_only_counters_under_the_prefixes_have_pictures(service: Service, tmp_path: Path) -> None:
    for picture in ("pixel.gif", "badge.json"):
        assert (await service.get(f"/v1/counters/other/{picture}")).status == 404
        assert (await service.get(f"/v1/counters/pag/{picture}")).status == 404
    assert (await service.get("/v1/counters/stars/pixel.gif")).status == 404
    (folder := tmp_path / "off").mkdir()
    async with running(folder) as off:
        for picture in (PIXEL, BADGE):
            assert (await off.get(picture)).status == 404
            assert (await ask(off, "GET", picture, CROSS)).status == 403
        assert await off.totals() == {}
    assert await service.totals() == {}


async def test_without_keys_pages_of_other_sites_show_those_under_the_prefixes_alone(service: Service) -> None:
    assert (await ask(service, "GET", PIXEL, CROSS)).status == 200
    assert (await ask(service, "GET", BADGE, CROSS)).status == 200
    for page in (CROSS, LINK, EVIL):
        assert (await ask(service, "GET", "/v1/counters/stars/pixel.gif", page)).status == 403
    assert (await ask(service, "POST", "/v1/counters/page:a", CROSS)).status == 403
    assert (await ask(service, "GET", PIXEL, CROSS, b"", b"evil.example")).status == 403
    assert await service.totals() == {"page:a": 1}


async def test_with_keys_a_pixel_needs_one_that_may_count_and_a_badge_needs_none(tmp_path: Path) -> None:
    site = {"scopes": ["write"], "prefixes": ["page:"], "origins": [SHOP], "publishable": True, "rate": 1}
    settings = {"pixels": ("page:", "z:"), "badges": ("page:",)}
    async with guarded(tmp_path, settings, all={}, reads={"scopes": ["read"]}, site=site) as (service, keys):
        used = f"?key={keys['site']}"
        assert (await ask(service, "GET", PIXEL)).status == 401
        assert (await ask(service, "GET", PIXEL, bearer(keys["reads"]))).status == 403
        assert (await ask(service, "GET", PIXEL + used, EVIL)).status == 403
        assert (await ask(service, "GET", f"/v1/counters/z:a/pixel.gif{used}", CROSS)).status == 403
        assert (await ask(service, "POST", f"/v1/counters/page:a{used}", CROSS)).status == 403
        assert (await ask(service, "POST", f"/v1/counters/pixel.gif{used}", CROSS)).status == 403
        assert (await ask(service, "GET", f"/v1/counters/page:a{used}", CROSS)).status == 403
        assert (await ask(service, "GET", PIXEL + used, CROSS)).status == 200
        assert (await ask(service, "GET", PIXEL + used, CROSS)).status == 429
        assert (await ask(service, "GET", BADGE, CROSS)).status == 200
        assert (await ask(service, "GET", "/v1/counters/z:a/badge.svg", CROSS)).status == 401
        assert (await ask(service, "GET", "/v1/counters/z:a/badge.svg", bearer(keys["all"]))).status == 404
        assert (await ask(service, "GET", "/v1/counters/page:a", bearer(keys["all"]))).json["value"] == 1


async def test_a_badge_shows_the_total(service: Service) -> None:
    assert (await service.incr("page:a", b'{"delta": 12399}')).status == 202
    found = await service.get(BADGE)
    assert (found.status, found.headers["Content-Type"]) == (200, "image/svg+xml")
    assert texts(found.body) == ["page:a: 12,399", "page:a", "12.3k"]
    assert found.headers["Cache-Control"] == "public, max-age=30"
    assert (await service.ask("GET", BADGE, headers={"If-None-Match": found.headers["ETag"]})).status == 304
    named = await service.get(f"{BADGE}?label=%3Cvisits%3E%20%26%20%22more%22&color=f2c200&style=square")
    assert texts(named.body) == ['<visits> & "more": 12,399', '<visits> & "more"', "12.3k"]
    assert b'fill="#f2c200"' in named.body
    assert b'rx="0"' in named.body
    assert b'rx="3"' in found.body
    shields = await service.get("/v1/counters/page:a/badge.json?label=visits&color=green")
    assert shields.json == {"schemaVersion": 1, "label": "visits", "message": "12.3k", "color": f"#{COLORS['green']}"}
    await service.incr("page:a")
    assert (await service.ask("GET", BADGE, headers={"If-None-Match": found.headers["ETag"]})).status == 200


async def test_a_name_from_anywhere_stays_text(service: Service) -> None:
    name = "page:</title><script>alert(1)</script>'\"&\ufffe"
    found = await service.get(f"/v1/counters/{quote(name, safe='')}/badge.svg")
    assert texts(found.body)[1] == name.replace("\ufffe", "\ufffd")
    assert found.headers["Content-Security-Policy"] == "default-src 'none'"


@given(st.text(min_size=1, max_size=80), st.integers(-(10**30), 10**30))
def test_any_text_makes_an_svg(label: str, value: int) -> None:
    svg = Badge(label, value, "0a66c2").svg()
    assert len(texts(svg)) == 3
    assert b"<script" not in svg


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((0, "0"), (999, "999"), (1_000, "1.0k"), (1_234, "1.2k"), (99_999, "99.9k"), (100_000, "100k")),
        *((999_999, "999k"), (1_000_000, "1.0M"), (-12_345, "-12.3k"), (2**53, "9.0P"), (10**22, "10000E")),
    ],
)
def test_large_totals_are_shortened_and_never_rounded_up(value: int, shown: str) -> None:
    assert short(value) == shown


def test_colors_are_names_or_digits() -> None:
    assert [color_of(text) for text in ("red", "#0aF", "0A66c2")] == [COLORS["red"], "00aaff", "0a66c2"]
    assert {color_of(text) for text in ("", "re", "#12", "1234567", "red;", "12345g")} == {None}
    assert all(re.fullmatch("[0-9a-f]{6}", color) for color in COLORS.values())
