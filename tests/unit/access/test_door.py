"""What the door remembers of callers."""

from typing import Any

import pytest

from ingest.access.credentials import Credentials
from ingest.access.door import MOST_CALLERS, MOST_SAID, Door


def said(**others: Any) -> Credentials:
    return Credentials("localhost", "", False, False, "", (), ())._replace(**others)


@pytest.mark.parametrize("header", ["authorization", "forwarded"])
def test_nobody_can_fill_the_memory_with_headers(header: str) -> None:
    door = Door()
    for number in range(10):
        door.enter("GET", "/", "", said(**{header: (f"{number}" * (MOST_SAID // 2),) * 2}), "127.0.0.1")
    assert not door._callers
    for number in range(MOST_CALLERS + 10):
        door.enter("GET", "/", "", said(**{header: (f"{number}",)}), "127.0.0.1")
    assert 0 < len(door._callers) <= MOST_CALLERS
