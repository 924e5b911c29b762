"""The OpenAPI document says where a publishable key will do, and which errors the door answers: the door is asked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from ingest.access import scopes
from ingest.access.callers import credentials_in
from ingest.access.door import Door
from ingest.access.keys import KeyRing
from ingest.api.routes import find
from ingest.http.problems import Problem, problem_of
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
    **{scope: {"scopes": [scope]} for scope in scopes.SCOPES},
    "slow": {"scopes": ALL, "rate": 1},
    "cpk": {"scopes": ["write"], "origins": [SHOP], "publishable": True, "prefixes": ["p"]},
}
Ask = Callable[..., int]
"""Returns the status that the door answers: to a key, if there is one, from a page of an origin. The rate of the key
`slow` is used up.
"""


@pytest.fixture(params=OPERATIONS, ids=" ".join)
def operation(request: pytest.FixtureRequest) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture
def known(operation: tuple[str, str]) -> dict[str, Any]:
    method, path = operation
    found: dict[str, Any] = contract.DOCUMENT["paths"][path][method.lower()]
    return found


@pytest.fixture
def ask(operation: tuple[str, str], tmp_path: Path) -> Ask:
    file, texts = keys_file(tmp_path, **KEYS)
    clock = ManualClock()
    with_keys, without = Door(KeyRing(file, clock), clock=clock), Door()
    method, path = operation

    def status(key: str = "", *, origin: str = "", in_query: bool = False, keyless: bool = False) -> int:
        headers = {"Host": "h"} | ({"Origin": origin} if origin else {})
        if key and not in_query:
            headers["Authorization"] = f"Bearer {texts[key]}"
        query = f"key={texts[key]}" if in_query else ""
        said = credentials_in(CIMultiDictProxy(CIMultiDict(headers)))
        target = path.replace("{name}", "p").replace("{id}", "j")
        try:
            (without if keyless else with_keys).enter(find(method, target, query), said, "192.0.2.1")
        except (Problem, ShareError) as error:
            return problem_of(error).status
        return 200

    said = credentials_in(CIMultiDictProxy(CIMultiDict({"Host": "h", "Authorization": f"Bearer {texts['slow']}"})))
    with_keys.enter(find("POST", "/v1/counters/p"), said, "192.0.2.1").spend(5)
    return status


def scopes_of(known: dict[str, Any], scheme: str) -> set[str]:
    return {scope for one in known.get("security", []) for scope in one.get(scheme, [])}


@pytest.mark.parametrize("in_query", [True, False])
def test_it_says_where_a_publishable_key_will_do(ask: Ask, known: dict[str, Any], *, in_query: bool) -> None:
    enough = "security" not in known or "write" in scopes_of(known, "publishableKey")
    assert ask("cpk", origin=SHOP, in_query=in_query) == (200 if enough else 403)
    assert ask("write", in_query=True) == (401 if "security" in known else 200)


def test_all_that_the_door_answers_is_documented(ask: Ask, known: dict[str, Any]) -> None:
    found = {
        *(ask(key) for key in ("", *KEYS)),
        ask("cpk", origin="https://evil.example", in_query=True),
        ask(origin="https://evil.example", keyless=True),
    }
    assert {str(status) for status in found - {200}} <= known["responses"].keys()


def test_a_key_with_a_rate_is_429_where_it_counts(ask: Ask, known: dict[str, Any], operation: tuple[str, str]) -> None:
    limited = ask("slow") == 429
    assert limited is ("write" in scopes_of(known, "publishableKey"))
    assert not limited or "429" in known["responses"]
