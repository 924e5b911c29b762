"""What the door remembers of callers, and which address behind proxies is the client's."""

from pathlib import Path
from typing import Any

import pytest

from ingest.access.callers import Credentials, client_of
from ingest.access.door import MOST_CALLERS, MOST_SAID, Door
from ingest.access.keys import SCOPES, KeyRing, Need, Scope
from ingest.api.routes import find
from ingest.http.problems import Problem
from shared.config.lists import networks
from shared.config.settings import Settings
from tests.http.keys import SHOP, keys_file
from tests.world.manual_clock import ManualClock

HOME = find("GET", "/")


def said(**others: Any) -> Credentials:
    return Credentials("localhost", "", False, False, "", (), ())._replace(**others)


@pytest.mark.parametrize(
    ("method", "path", "scopes"),
    [
        ("POST", "/v1/counters/a%2Freset", {"write"}), ("POST", "/v1/counters/a/reset", {"admin"}),
        ("GET", "/v1/receipts/a/b", {"read", "write"}),
    ],
)  # fmt: skip
def test_an_escaped_slash_is_part_of_a_name_and_any_other_may_lead_elsewhere(
    method: str, path: str, scopes: set[str]
) -> None:
    assert {*find(method, path).need} == scopes


@pytest.mark.parametrize("header", ["authorization", "forwarded"])
def test_nobody_can_fill_the_memory_with_headers(header: str) -> None:
    door = Door(Settings(), ManualClock())
    for number in range(10):
        door.enter(HOME, said(**{header: (f"{number}" * (MOST_SAID // 2),) * 2}), "127.0.0.1")
    assert not door._callers
    for number in range(MOST_CALLERS + 10):
        door.enter(HOME, said(**{header: (f"{number}",)}), "127.0.0.1")
    assert 0 < len(door._callers) <= MOST_CALLERS


@pytest.mark.parametrize(
    ("trusted", "peers", "told"),
    [
        ("", ("169.254.1.1",), "169.254.1.1"),
        ("", ("",), "a program on the Unix socket"),
        ("10.0.0.0/8", ("10.1.1.1", "192.168.1.1", "192.168.1.2"), "192.168.1.1"),
        ("10.0.0.0/8", ("10.1.1.1", ""), None),
    ],
)
def test_the_first_proxy_that_is_not_listed_is_told_once(
    caplog: pytest.LogCaptureFixture, trusted: str, peers: tuple[str, ...], told: str | None
) -> None:
    """Its clients share the limits of one, which nobody would notice until one of them sends much."""
    door = Door(Settings(trusted_proxies=networks(trusted) if trusted else ()), ManualClock())
    for number in range(3):
        for peer in peers:
            door.enter(HOME, said(), peer)
            door.enter(HOME, said(forwarded=(f"203.0.113.{number}",)), peer)
    told_of = [line.startswith(f"{told} sends X-Forwarded-For") for line in caplog.messages]
    assert told_of == ([True] if told else [])


TRUSTED = networks("10.0.0.0/8, 192.168.1.1, fd00::/8")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("1.2.3.4", ["5.6.7.8"], "1.2.3.4"), ("10.0.0.1", [], "10.0.0.1"), ("10.0.0.1", ["5.6.7.8"], "5.6.7.8"),
        ("10.0.0.1", ["9.9.9.9, 5.6.7.8"], "5.6.7.8"),
        ("10.0.0.1", ["9.9.9.9", "5.6.7.8, 10.1.1.1"], "5.6.7.8"),
        ("10.0.0.1", ["9.9.9.9,5.6.7.8,192.168.1.1,10.3.4.5"], "5.6.7.8"),
        ("10.0.0.1", ["10.1.1.1, 10.2.2.2"], "10.1.1.1"), ("10.0.0.1", ["9.9.9.9, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["9.9.9.9, nonsense, 10.1.1.1"], "10.1.1.1"), ("10.0.0.1", ["5.6.7.8:1234"], "5.6.7.8"),
        ("10.0.0.1", ["[2001:db8::1]:1234"], "2001:db8::1"), ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1, fd00::5"], "2001:db8::1"), ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["5.6.7.8,"], "10.0.0.1"), ("::ffff:10.0.0.1", ["5.6.7.8"], "5.6.7.8"),
        ("fe80::1%eth0", ["5.6.7.8"], "fe80::1%eth0"), ("", ["5.6.7.8"], "5.6.7.8"),
        pytest.param("10.0.0.1", ["9.9.9.9" + ",10.0.0.1" * 1_000], "10.0.0.1", id="a chain not read to its begin"),
    ],
)  # fmt: skip
def test_the_client_is_the_last_one_that_is_no_proxy(peer: str, forwarded: list[str], client: str) -> None:
    assert client_of(peer, forwarded, TRUSTED) == client
    assert client_of(peer, forwarded, ()) == peer


def test_a_new_scope_is_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCOPES, "peek", Scope("peek", reads=True))
    assert (Need("peek", "read").reads, Need("peek", "write").reads, Need("peek").counts) == (True, False, False)
    of_page = {"scopes": ["peek", "write"], "publishable": True, "prefixes": ["p"], "origins": [SHOP]}
    file, texts = keys_file(tmp_path, page=of_page, peeks={"scopes": ["peek"]})
    door = Door(Settings(), ManualClock(), KeyRing(file, ManualClock()))
    for key, why in (("page", "may only count and peek, from"), ("peeks", "it needs the scope read")):
        with pytest.raises(Problem, match=why):
            door.enter(find("GET", "/metrics"), said(authorization=(f"Bearer {texts[key]}",), origin=SHOP), "")
