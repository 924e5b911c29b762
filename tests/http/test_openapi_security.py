"""The OpenAPI document says where a publishable key will do, and which errors the door answers: the door is asked."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from ingest.access.callers import Credentials, credentials_in
from ingest.access.door import Door
from ingest.access.keys import SCOPES, KeyRing
from ingest.api.routes import find
from ingest.http.problems import Problem, problem_of
from shared.config.settings import Settings
from shared.model.errors import ShareError
from tests.http import contract
from tests.http.keys import ALL, SHOP, keys_file
from tests.world.manual_clock import ManualClock

OPERATIONS = [
    (method.upper(), path)
    for path, item in contract.DOCUMENT["paths"].items()
    for method in item
    if method in contract.METHODS
]
KEYS: dict[str, dict[str, Any]] = {
    **{scope: {"scopes": [scope]} for scope in SCOPES},
    "slow": {"scopes": ALL, "rate": 1},
    "cpk": {"scopes": ["write"], "origins": [SHOP], "publishable": True, "prefixes": ["p"]},
}


class Doors:
    """One with keys, of which the rate of `slow` is used up, and one without."""

    def __init__(self, folder: Path) -> None:
        file, self._texts = keys_file(folder, **KEYS)
        clock = ManualClock()
        self._with_keys, self._without = Door(Settings(), clock, KeyRing(file, clock)), Door(Settings(), clock)
        self._with_keys.enter(find("POST", "/v1/counters/p"), self._said("slow"), "192.0.2.1").spend(5)

    def _said(self, key: str = "", origin: str = "") -> Credentials:
        headers = {"Host": "h"} | ({"Origin": origin} if origin else {})
        if key:
            headers["Authorization"] = f"Bearer {self._texts[key]}"
        return credentials_in(CIMultiDictProxy(CIMultiDict(headers)))

    def ask(
        self, one: tuple[str, str], key: str = "", *, origin: str = "", in_query: bool = False, keyless: bool = False
    ) -> int:
        """The status that is answered: to a key, if there is one, from a page of an origin."""
        method, path = one
        query = f"key={self._texts[key]}" if in_query else ""
        target = path.replace("{name}", "p").replace("{id}", "j")
        door = self._without if keyless else self._with_keys
        try:
            door.enter(find(method, target, query), self._said("" if in_query else key, origin), "192.0.2.1")
        except (Problem, ShareError) as error:
            return problem_of(error).status
        return 200


@pytest.fixture
def doors(tmp_path: Path) -> Doors:
    return Doors(tmp_path)


def known_of(one: tuple[str, str]) -> dict[str, Any]:
    method, path = one
    found: dict[str, Any] = contract.DOCUMENT["paths"][path][method.lower()]
    return found


def takes_publishable_keys(known: dict[str, Any]) -> bool:
    return any("write" in one.get("publishableKey", ()) for one in known.get("security", []))


def test_it_says_where_a_publishable_key_will_do(doors: Doors) -> None:
    for one, in_query in product(OPERATIONS, (True, False)):
        known = known_of(one)
        enough = "security" not in known or takes_publishable_keys(known)
        assert doors.ask(one, "cpk", origin=SHOP, in_query=in_query) == (200 if enough else 403), one
        assert doors.ask(one, "write", in_query=True) == (401 if "security" in known else 200), one


def test_all_that_the_door_answers_is_documented(doors: Doors) -> None:
    for one in OPERATIONS:
        found = {
            *(doors.ask(one, key) for key in ("", *KEYS)),
            doors.ask(one, "cpk", origin="https://evil.example", in_query=True),
            doors.ask(one, origin="https://evil.example", keyless=True),
        }
        assert {str(status) for status in found - {200}} <= known_of(one)["responses"].keys(), one


def test_a_key_with_a_rate_is_429_where_it_counts(doors: Doors) -> None:
    for one in OPERATIONS:
        limited = doors.ask(one, "slow") == 429
        assert limited is takes_publishable_keys(known_of(one)), one
        assert not limited or "429" in known_of(one)["responses"], one
