"""Generates bodies of increments: good ones, bad ones, and good ones with some bytes changed."""

import json
from random import Random
from typing import Any, Final

NAMES: Final = (
    "c", "d", "c", "page:1", "page:2", "é", "a/b", "", ".", "__x__", "\x7f", "x" * 401, "full", 'q"q', "a\\b", 7,
)  # fmt: skip
NUMBERS: Final = (
    "1", "2", "3", "-7", "0", "1e3", "-0", "1.0", "01", "+1", "9007199254740991", "9007199254740992",
    "-9007199254740992", "9223372036854775807", "18446744073709551615", "18446744073709551616", "1" * 30, "1e400",
    "-1e-400", "0.1", "1E2", "true", "null", "NaN", "-", "0x1", '"1"', "[]", "{}",
)  # fmt: skip
_GOOD_NUMBERS: Final = 5
_IDS: Final = (
    "one", "two", "three", "é", "", "i" * 1_000, "i" * 1_001, "own-" + "0" * 32 + ".x", 7, None, "a:b", 'a"b',
)  # fmt: skip
_GOOD_IDS: Final = 4
_FIELDS: Final = ("delta", "id", "counter", "counters", "by", "", "d", "Delta", "__proto__", ":")
PLAIN_NAMES: Final = ("c", "d", "page:1", "a b", "x" * 400, "__x__", "", ".")
PLAIN_DELTAS: Final = (1, 1, 2, -3, 2**53 - 1, -(2**53) + 1, 2**53)
PLAIN_IDS: Final = ("one", "two", "i" * 1_000, "", "i" * 1_001)
_KINDS: Final = ("counter", "counter delta", "counter delta", "counter id", "delta counter id", "counter delta delta")
"""The fields of an item."""
_INSERTED: Final = (
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\\ud800", b"\\u0000", b"\\u0064", b"\xed\xa0\x80", b"\xc3", b'"', b"\\",
    b"\\n", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\r\n", b"\t", b"\x0b", b"\x7f", b"-", b"0", b"e", b".",
    b'"delta":1,', b'"id":"x",', b'"counter":"c",', b"/**/", b"[" * 50, b'{"a":' * 50,
)  # fmt: skip


def single(chance: Random) -> bytes:
    """The body of one increment, mostly a good one."""
    kind = chance.random()
    if kind < 0.35:
        return chance.choice((b"", b"{}", b" ", b"\r\n{}", b'{"delta":1}', b'{"delta": 2}'))
    fields = []
    if chance.random() < 0.8:
        fields.append(("delta", _number(chance)))
    if chance.random() < 0.5:
        fields.append(("id", json.dumps(_id(chance), ensure_ascii=chance.random() < 0.5)))
    while chance.random() < 0.1:
        fields.append((chance.choice(_FIELDS), chance.choice(NUMBERS)))
    chance.shuffle(fields)
    return perhaps_damaged(chance, _object(chance, fields).encode(errors="surrogatepass"))


def batch(chance: Random) -> bytes:
    """The body of a batch, in one of its three forms."""
    number = chance.choice((0, 1, 2, 3, 3, 8))
    kind = chance.random()
    if kind < 0.35:
        text = _object(
            chance, [("counters", _object(chance, [(_name(chance), _number(chance)) for _ in range(number)]))]
        )
    else:
        items = [_item(chance) for _ in range(number)]
        text = "[" + chance.choice((",", ", ", "\n,")).join(items) + "]" if kind < 0.75 else "\n".join(items)
    return perhaps_damaged(chance, text.encode(errors="surrogatepass"))


def plain_batch(chance: Random) -> bytes:
    """A batch of a form for which there is a parser of its own, or nearly so."""
    names = [chance.choice(PLAIN_NAMES[: chance.choice((4, 4, len(PLAIN_NAMES)))]) for _ in range(4)]
    deltas = [chance.choice(PLAIN_DELTAS[: chance.choice((2, 4, len(PLAIN_DELTAS)))]) for _ in names]
    if chance.random() < 0.2:
        return perhaps_damaged(chance, json.dumps({"counters": dict(zip(names, deltas, strict=True))}).encode())
    ids = [chance.choice(PLAIN_IDS[: chance.choice((3, len(PLAIN_IDS)))]) for _ in names]
    kinds = [chance.choice(_KINDS)] * 4 if chance.random() < 0.7 else chance.choices(_KINDS, k=4)
    items = []
    for kind, name, delta, client_id in zip(kinds, names, deltas, ids, strict=True):
        fields = {"counter": name, "delta": delta, "id": client_id}
        members = ",".join(f"{json.dumps(field)}:{json.dumps(fields[field])}" for field in kind.split())
        items.append(f"{{{members}}}")
    if chance.random() < 0.5:
        return perhaps_damaged(chance, b"[%b]" % ",".join(items).encode())
    between = [chance.choice(("\n", "\n", "\n", "\n\n", " ", "", "\r\n", ",\n")) for _ in items]
    return perhaps_damaged(chance, "".join(map("".join, zip(items, between, strict=True))).encode())


def perhaps_damaged(chance: Random, body: bytes) -> bytes:
    return damaged(chance, body) if chance.random() < 0.25 else body


def damaged(chance: Random, data: bytes) -> bytes:
    """Some bytes of it are gone, doubled, moved, others, or one bit is."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        begin = chance.randint(0, len(data))
        end = min(len(data), begin + chance.choice((0, 1, 1, 2, 9)))
        there = data[begin:end]
        kind = chance.randrange(5)
        if kind == 0:
            there = b""
        elif kind == 1:
            there *= chance.choice((2, 2, 30))
        elif kind == 2:
            there = bytes([byte ^ 1 << chance.randrange(8) for byte in there])
        elif kind == 3:
            there = chance.choice(_INSERTED)
        else:
            begin_of_other = chance.randint(0, len(data))
            there = data[begin_of_other : begin_of_other + 9]
        data = data[:begin] + there + data[end:]
    return data


def _item(chance: Random) -> str:
    fields = [("counter", json.dumps(_name(chance), ensure_ascii=chance.random() < 0.5))]
    if chance.random() < 0.7:
        fields.append(("delta", _number(chance)))
    if chance.random() < 0.2:
        fields.append(("id", json.dumps(_id(chance))))
    if chance.random() < 0.05:
        fields.append((chance.choice(_FIELDS), chance.choice(NUMBERS)))
    return chance.choice(NUMBERS) if chance.random() < 0.03 else _object(chance, fields)


def _object(chance: Random, fields: list[tuple[Any, str]]) -> str:
    colon, comma = chance.choice(((":", ","), (": ", ", "), (" :\t", "\n,")))
    return (
        "{" + comma.join(f"{json.dumps(str(name), ensure_ascii=False)}{colon}{value}" for name, value in fields) + "}"
    )


def _name(chance: Random) -> Any:
    return chance.choice(NAMES if chance.random() < 0.15 else NAMES[:6])


def _number(chance: Random) -> str:
    return chance.choice(NUMBERS if chance.random() < 0.25 else NUMBERS[:_GOOD_NUMBERS])


def _id(chance: Random) -> Any:
    return chance.choice(_IDS if chance.random() < 0.2 else _IDS[:_GOOD_IDS])
