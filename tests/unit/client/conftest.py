"""What holds for all tests of the client."""

import pytest


@pytest.fixture(autouse=True)
def _long_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would ask again, or give up, if the machine paused."""
    for name in ("client.ONE_TRY", "client.SHORTEST_TRY", "sender.ONE_TRY", "transport.LONGEST_CONNECT"):
        monkeypatch.setattr(f"countersink.{name}", 120.0)
