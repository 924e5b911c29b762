"""The OpenAPI document and the service say the same, also of publishable keys and of the errors of the door.

Each answer in all of these tests is held against it, too, by contract.py.
"""

import re
from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from ingest.access.callers import Credentials, credentials_in
from ingest.access.door import Door
from ingest.access.keys import SCOPES, KeyRing
from ingest.api.routes import find
from ingest.http.problems import Problem, problem_of
from shared.config.settings import Settings
from shared.fleet import FleetView
from shared.model.errors import ShareError
from tests.http import contract
from tests.http.keys import ALL, SHOP, keys_file
from tests.http.service import Service, running
from tests.world.manual_clock import ManualClock
from tests.world.memory.fleet import MemoryFleetBook
from tests.world.memory.store import MemoryStore

PATHS: dict[str, dict[str, Any]] = contract.DOCUMENT["paths"]
OPERATIONS = [(path, method.lower()) for method, path in contract.OPERATIONS]
ELSEWHERE = {"/v1/counters/{name}/watch", "/v1/watch", "/v1/counters/{name}/series"}
"""Streams do not end, and series need rules: see test_watch.py and test_series.py."""
EXAMPLES = {
    "by": "2", "wait": "applied&timeout=0", "timeout": "0", "ack": "none", "return": "value", "max_age": "1",
    "name": "a", "prefix": "a", "contains": "a", "limit": "3", "page_token": "cg==", "v": "1", "id": "x",
    "order": "value", "unused_for": "1d", "label": "visits", "color": "f60", "style": "square",
    "__GCP_CloudEventsMode": "CE_PUBSUB_BINDING",
}  # fmt: skip
EVENT = b'{"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"counter": "a"}}'


def example(parameter: str) -> str:
    assert parameter in EXAMPLES, f"EXAMPLES of this file needs a value for the parameter {parameter}"
    return EXAMPLES[parameter]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    clock = ManualClock()
    looks = FleetView(MemoryFleetBook(MemoryStore(clock)), clock, 0.0)
    async with running(tmp_path, pixels=("a",), badges=("a",), looks=looks) as it:
        yield it


def _parameters(path: str, method: str, where: str) -> dict[str, dict[str, Any]]:
    both = [*PATHS[path].get("parameters", []), *PATHS[path][method].get("parameters", [])]
    return {item["name"]: item for item in both if item["in"] == where}


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from _nodes(child)
    elif isinstance(node, list):
        for child in node:
            yield from _nodes(child)


def _schemas() -> Iterator[dict[str, Any]]:
    yield from contract.DOCUMENT["components"]["schemas"].values()
    for node in _nodes([contract.DOCUMENT["paths"], contract.DOCUMENT["components"]["responses"]]):
        if isinstance(node.get("schema"), dict):
            yield node["schema"]


async def test_it_is_served_as_json(service: Service) -> None:
    answer = await service.get("/openapi.json")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert answer.json == contract.DOCUMENT
    assert answer.json["info"]["version"] == contract.VERSION


def test_it_has_the_form_of_openapi_3_1() -> None:
    document = contract.DOCUMENT
    assert document["openapi"] == "3.1.0"
    assert document.keys() <= {"openapi", "info", "servers", "tags", "paths", "components"}
    assert {"title", "version"} <= document["info"].keys()
    ids = [PATHS[path][method]["operationId"] for path, method in OPERATIONS]
    assert len(ids) == len(set(ids))
    tags = {tag["name"] for tag in document["tags"]}
    for path, item in PATHS.items():
        assert path.startswith("/")
        assert item.keys() <= {"parameters", *contract.METHODS}
    for path, method in OPERATIONS:
        known = PATHS[path][method]
        assert known.keys() <= {
            *("operationId", "tags", "summary", "description", "parameters", "requestBody", "responses", "security")
        }
        assert set(known["tags"]) <= tags
        assert set(_parameters(path, method, "path")) == set(re.findall(r"\{(\w+)\}", path))
        for status, response in known["responses"].items():
            found = contract.resolve(response)
            assert re.fullmatch(r"[2345]\d\d", status)
            assert found["description"]
            assert found.keys() <= {"description", "headers", "content"}
        for where in ("path", "query", "header"):
            for parameter in _parameters(path, method, where).values():
                assert parameter.get("required", False) is (
                    where == "path" or (path.endswith("/series") and parameter["name"] == "by")
                )
                assert parameter["description"]
                assert parameter["schema"]


def test_its_schemas_are_valid_its_references_lead_somewhere_and_none_is_unused() -> None:
    for schema in _schemas():
        contract.check_schema(schema)
    references = {node["$ref"] for node in _nodes(contract.DOCUMENT) if "$ref" in node}
    for reference in references:
        assert contract.resolve({"$ref": reference})
    references |= {
        f"#/components/securitySchemes/{name}"
        for path, method in OPERATIONS
        for one in PATHS[path][method].get("security", [])
        for name in one
    }
    for kind, entries in contract.DOCUMENT["components"].items():
        assert {f"#/components/{kind}/{name}" for name in entries} <= references


async def test_every_operation_and_parameter_in_it_is_answered(service: Service) -> None:
    for number, (path, method) in enumerate(one for one in OPERATIONS if one[0] not in ELSEWHERE):
        target = path.replace("{name}", "a").replace("{id}", f"x{number}")
        bodies = {
            ("/v1/increments", "post"): b'[{"counter": "a"}]',
            ("/v1/events", "post"): EVENT,
            ("/v1/counters/{name}/shards", "put"): b'{"shards": 2}',
            ("/v1/counters/{name}", "put"): b'{"value": 2}',
            ("/v1/jobs", "post"): b'{"kind": "add", "prefix": "a", "delta": 1}',
            ("/v1/dead-letters/replay", "post"): b'{"all": true}',
            ("/v1/dead-letters/drop", "post"): b'{"ids": ["1"]}',
        }
        body = bodies.get((path, method))
        headers = {"Content-Type": "application/cloudevents+json"} if body is EVENT else None
        if path.startswith("/v1/jobs/{id}"):
            await service.post("/v1/jobs", b'{"kind": "export", "prefix": "a", "id": "x%d"}' % number)
            await service.work()
        for query in ("", *(f"?{name}={example(name)}" for name in _parameters(path, method, "query"))):
            assert (await service.ask(method.upper(), target + query, body, headers)).status in {200, 202}, query
        for name in _parameters(path, method, "header"):
            assert name == "Idempotency-Key", (path, method)
        if _parameters(path, method, "query"):
            unknown = await service.ask(method.upper(), f"{target}?undocumented=1", body, headers)
            assert unknown.status == 422, (path, method)


def test_an_operation_with_a_body_says_what_can_be_wrong_with_it() -> None:
    for path, method in OPERATIONS:
        statuses = PATHS[path][method]["responses"].keys()
        assert {"400", "405", "414"} <= statuses, (path, method)
        assert ({"408", "413", "415"} <= statuses) is ("requestBody" in PATHS[path][method]), (path, method)


def event(more: str) -> str:
    """An event with these attributes, and with the others that it must have."""
    others = {"specversion": "1.0", "id": "1", "source": "s", "type": "t"}
    return orjson.dumps(others | orjson.loads(f"{{{more}}}")).decode()


REQUESTS = {
    "Single": [
        '{"delta": 1}', '{"delta": 0.5}', "{}", '{"id": ""}', '{"id": null}', '{"x": 1}', "[]", '{"delta": null}',
    ],
    "Batch": [
        '[{"counter": "a"}]', '[{"counter": "a", "delta": true}]', '[{"counter": "a", "x": 1}]',
        '[{"counter": ""}]', '[{"counter": ".."}]', '[{"counter": "__a__"}]', '[{"counter": "__a"}]',
        '[{"counter": "...", "id": "x"}]', '[{"counter": "a\\u0085"}]', "[]", '{"counter": "a"}',
        '{"counters": {"a": 1}}', '{"counters": {"a": 1.5}}', '{"counters": {"": 1}}', '{"counters": {}}',
        '{"counters": {"a": 1}, "x": 1}', '{"counters": {"a": 9007199254740991}}',
        '{"counters": {"a": 9007199254740992}}', "{}", "1",
    ],
    "Event": [
        event(data) if data.startswith('"') else data
        for data in (
            EVENT.decode(),
            '"data": {"counter": "a", "delta": 2, "colour": "red"}',
            '"data": [{"counter": "a"}, {"counter": "b", "id": "i"}]',
            '"data": {"counters": {"a": 1}, "keyed": []}',
            '"data": {"counters": {}, "keyed": [{"counter": "a", "id": "i"}]}',
            '"data": {"counters": {}}',
            '"data": {"counters": {"a": 1}, "counter": "a"}',
            '"data": {"counters": {"a": 1}, "keyed": [{"counter": "a"}]}',
            '"data": {"counter": "a", "delta": 0.5}',
            '"data": {"counter": "a", "keyed": []}',
            '"data": []',
            '"data": 1',
            '"data": null',
            '"data": null, "counter": "a"',
            '"counter": "a", "delta": 2',
            '"counter": "a", "delta": true',
            '"counter": ".."',
            '"counter": 1',
            '"type": "", "counter": "a"',
            '"source": 7, "counter": "a"',
            '{"id": "1", "source": "s", "type": "t", "data": {"counter": "a"}}',
            "[]",
        )
    ],
    "SetValue": [
        '{"value": 1}', '{"value": -9007199254740991}', '{"value": 9007199254740992}', "{}", "1", '{"value": "1"}',
    ],
    "NewJob": [
        '{"kind": "add", "prefix": "a", "delta": 1}',
        '{"kind": "add", "prefix": "", "delta": -1, "id": "A.1_-"}',
        '{"kind": "add", "prefix": "a", "delta": 1, "id": null}',
        '{"kind": "add", "prefix": "a", "delta": 1, "id": "-"}',
        '{"kind": "add", "prefix": "a", "delta": 1, "id": ""}',
        '{"kind": "add", "prefix": "a", "delta": 0.5}',
        '{"kind": "other", "prefix": "a"}',
        '{"kind": "add", "delta": 1}',
        '{"kind": "add", "prefix": 1, "delta": 1}',
        '{"kind": "add", "prefix": "a", "delta": 1, "x": 1}',
        '{"kind": "add", "prefix": "a", "delta": 1, "by": "hour"}',
        '{"kind": "reset", "prefix": "a", "to": "2026-01-01T00:00:00Z"}',
        '{"kind": "export", "prefix": "a", "by": "week"}',
        '{"kind": "export", "prefix": "a", "by": ["hour"]}',
        '{"kind": "export", "prefix": "a", "by": null}',
        '{"kind": "export", "prefix": "a", "from": "2026-01-01T00:00:00Z"}',
        '{"kind": "export", "prefix": "a", "by": "hour", "from": 1}',
        "{}",
        "[]",
    ],
    "Nothing": ["{}", "[]", "1", '{"value": 1}'],
    "SetShards": [
        '{"shards": 1}', '{"shards": 0}', '{"shards": true}', "{}", "[]", '{"shards": 1, "x": 1}',
        '{"shards": 1, "compact": true}', '{"shards": 1, "compact": 1}', '{"compact": true}',
    ],
}  # fmt: skip


async def test_a_body_fits_its_schema_if_and_only_if_it_is_taken(service: Service) -> None:
    all_ = ((schema, body) for schema, bodies in REQUESTS.items() for body in bodies)
    for number, (schema, body) in enumerate(all_):
        target, method = {
            "Single": ("/v1/counters/a", "POST"),
            "Batch": ("/v1/increments", "POST"),
            "SetValue": ("/v1/counters/a", "PUT"),
            "Nothing": ("/v1/counters/a/reset", "POST"),
            "SetShards": ("/v1/counters/a/shards", "PUT"),
            "NewJob": ("/v1/jobs", "POST"),
            "Event": ("/v1/events", "POST"),
        }[schema]
        headers = {"Content-Type": "application/cloudevents+json"} if schema == "Event" else None
        answer = await service.ask(method, target, body.replace('"1"', f'"{number}"').encode(), headers)
        documented = {"$ref": f"#/components/schemas/{schema}"}
        assert contract.fits(orjson.loads(body), documented) is (answer.status < 300), (schema, body)


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
    found: dict[str, Any] = PATHS[path][method.lower()]
    return found


def takes_publishable_keys(known: dict[str, Any]) -> bool:
    return any("write" in one.get("publishableKey", ()) for one in known.get("security", []))


def test_it_says_where_a_publishable_key_will_do(doors: Doors) -> None:
    for one, in_query in product(contract.OPERATIONS, (True, False)):
        known = known_of(one)
        enough = "security" not in known or takes_publishable_keys(known)
        assert doors.ask(one, "cpk", origin=SHOP, in_query=in_query) == (200 if enough else 403), one
        assert doors.ask(one, "write", in_query=True) == (401 if "security" in known else 200), one


def test_all_that_the_door_answers_is_documented(doors: Doors) -> None:
    for one in contract.OPERATIONS:
        found = {
            *(doors.ask(one, key) for key in ("", *KEYS)),
            doors.ask(one, "cpk", origin="https://evil.example", in_query=True),
            doors.ask(one, origin="https://evil.example", keyless=True),
        }
        assert {str(status) for status in found - {200}} <= known_of(one)["responses"].keys(), one


def test_a_key_with_a_rate_is_429_where_it_counts(doors: Doors) -> None:
    for one in contract.OPERATIONS:
        limited = doors.ask(one, "slow") == 429
        assert limited is takes_publishable_keys(known_of(one)), one
        assert not limited or "429" in known_of(one)["responses"], one
