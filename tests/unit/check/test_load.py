"""Who of the clients of `countersink check` reads."""

from typing import Any

import pytest

from countersink_server.check.ledger import History, Ledger
from countersink_server.check.load import Load


@pytest.mark.parametrize(("clients", "readers"), [(2, 1), (3, 1), (4, 1), (7, 1), (8, 2)])
def test_a_quarter_reads_and_at_least_one(clients: int, readers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bool] = []
    monkeypatch.setattr(Load, "_client", lambda _, its: reads.append(its))
    nowhere: Any = None
    Load(nowhere, Ledger(History(None)), "x").run(0, clients, lambda: None)
    assert (len(reads), sum(reads)) == (clients, readers)
