"""Which scopes a path needs, however it is written."""

import pytest

from ingest.access import scopes
from ingest.api.routes import counts, find


@pytest.mark.parametrize(
    ("method", "path", "scopes"),
    [
        ("POST", "/v1/counters/a", {"write"}), ("POST", "/v1/counters/a%2Freset", {"write"}),
        ("POST", "/v1/counters/a/reset", {"admin"}), ("HEAD", "/v1/counters/a", {"read"}),
        ("GET", "/v1/receipts/a/b", {"read", "write"}), ("GET", "/v1/jobs/a/export", {"admin"}),
        ("DELETE", "/v1/jobs/a", {"admin"}), ("GET", "/metrics", {"read"}),
        ("GET", "/nothing", {*scopes.SCOPES}),
    ],
)  # fmt: skip
def test_a_path_needs_one_of_these(method: str, path: str, scopes: set[str]) -> None:
    assert find(method, path).need == scopes
    assert counts(path) == (find("POST", path).need == {"write"})
