"""Which scopes a path needs, however it is written."""

import pytest

from ingest.access.keys import SCOPES
from ingest.api.routes import ROUTES, find


@pytest.mark.parametrize(
    ("method", "path", "scopes"),
    [
        ("POST", "/v1/counters/a", {"write"}), ("POST", "/v1/counters/a%2Freset", {"write"}),
        ("POST", "/v1/counters/a/reset", {"admin"}), ("HEAD", "/v1/counters/a", {"read"}),
        ("GET", "/v1/receipts/a/b", {"read", "write"}), ("GET", "/v1/jobs/a/export", {"admin"}),
        ("DELETE", "/v1/jobs/a", {"admin"}), ("GET", "/metrics", {"read"}),
        ("GET", "/nothing", {*SCOPES}),
    ],
)  # fmt: skip
def test_a_path_needs_one_of_these(method: str, path: str, scopes: set[str]) -> None:
    assert {*find(method, path).need} == scopes


def test_pages_of_other_sites_may_count_and_read_counters() -> None:
    others = {route.label for route in ROUTES if not route.is_for_pages and route.tag in {"count", "read"}}
    assert others == {"GET /countersink.js", "GET /v1/receipts/{id}"}
    assert {route.tag for route in ROUTES if route.is_for_pages} == {"count", "read"}
