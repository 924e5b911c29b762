"""Which address in X-Forwarded-For is the client's."""

import pytest

from ingest.access.callers import client_of
from shared.config.lists import networks

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
    ],
)  # fmt: skip
def test_the_client_is_the_last_one_that_is_no_proxy(peer: str, forwarded: list[str], client: str) -> None:
    assert client_of(peer, forwarded, TRUSTED) == client
    assert client_of(peer, forwarded, ()) == peer


def test_a_long_chain_is_not_read_to_its_begin() -> None:
    assert client_of("10.0.0.1", [",".join(["9.9.9.9", *["10.0.0.1"] * 1_000])], TRUSTED) == "10.0.0.1"
