"""Whatever the body, the parser takes exactly what the slow model takes, and refuses in one way only."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.parsing import parse
from ingest.parsing.parse import BodyError
from tests.http import parse_model as model

NAMES = st.one_of(
    st.sampled_from(["a", "b", "a:b", "é", "", ".", "..", "__x__", "____", "__", "a\x85", "\x00", "x" * 401]),
    st.text(max_size=4),
)
DELTAS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([model.BIG, -model.BIG, model.BIG + 1, 2**63, 2**64, 10**30, 1.0, 1e3, True, None, "1"]),
)
IDS = st.one_of(st.none(), st.sampled_from(["x", "y:z", "", "x" * 1001, 7]), st.text(max_size=3))
ITEMS = st.one_of(
    st.fixed_dictionaries({"counter": NAMES}, optional={"delta": DELTAS, "id": IDS}),
    st.fixed_dictionaries({"counter": NAMES}),
    st.dictionaries(st.sampled_from(["counter", "delta", "id", "counters", "by"]), DELTAS | NAMES, max_size=3),
    DELTAS,
)
SPACE = st.sampled_from(["", " ", "\n", "\r\n", "\t"])


@st.composite
def texts(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> str:
    """JSON of a value, in one of the ways to write it."""
    indent = draw(st.sampled_from([None, None, 0, 1]))
    return draw(SPACE) + json.dumps(draw(values), ensure_ascii=draw(st.booleans()), indent=indent) + draw(SPACE)


@st.composite
def objects_with_names_twice(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(["a", "a:", "counter", "delta", "id", "\\u0061"]), min_size=1, max_size=4))
    return "{" + ",".join(f'"{name}":{draw(st.sampled_from(["1", chr(34) + "a:b" + chr(34)]))}' for name in names) + "}"


@st.composite
def damaged(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """Some bytes of it gone, doubled, or others."""
    body = draw(bodies)
    begin = draw(st.integers(0, len(body)))
    end = draw(st.integers(begin, min(len(body), begin + 4)))
    return (
        body[:begin] + draw(st.sampled_from([b"", body[begin:end] * 2, b'"', b"}", b"\xff", b"\\ud800"])) + body[end:]
    )


OBJECTS = texts(ITEMS) | objects_with_names_twice()
BODIES = st.one_of(
    texts(st.lists(ITEMS, max_size=5)),
    texts(st.dictionaries(NAMES, DELTAS, max_size=5).map(lambda names: {"counters": names})),
    objects_with_names_twice().map(lambda text: f'{{"counters":{text}}}'),
    st.lists(OBJECTS, max_size=5).map("\n".join),
    st.lists(OBJECTS, max_size=3).map(lambda found: f"[{','.join(found)}]"),
    st.text(max_size=12),
).map(lambda text: text.encode(errors="surrogatepass"))
ANY = BODIES | damaged(BODIES) | st.binary(max_size=12)


def _batch(body: bytes) -> model.Meaning:
    parsed = parse.batch(body)
    taken = parsed.batch
    assert taken.increments > 0
    assert taken.counts.keys() <= taken.sums.keys()
    plain = sum(taken.counts.get(name, 1) for name in taken.sums)
    assert taken.increments == plain + len(taken.keyed)
    assert all(item["reason"] for item in parsed.rejected)
    return model.Meaning(
        Counter(taken.sums),
        [(item.counter, item.delta, item.id or "") for item in taken.keyed],
        [item["index"] if "index" in item else item["counter"] for item in parsed.rejected],
        taken.increments,
    )


@settings(max_examples=600, deadline=None)
@given(ANY)
@example(b'{"counters": {"a": 1, "\\u0061": 2}}')
@example(b'{"counter": "a:b"}\n{"counter": "a", "counter": "b"}')
@example(b'{"counters":\n{"a":1,\n"a":1}}')
@example(b"\x0b[1]")
@example(b'x\n{"counter": "a"}')
@example(b'[\n{"counter": "a"}\n')
@example(b'{"counter": "a", "delta": -0}')
def test_a_batch_is_taken_as_the_model_takes_it(body: bytes) -> None:
    try:
        expected = model.batch(body)
    except model.BadError:
        with pytest.raises(BodyError) as caught:
            _batch(body)
        assert caught.value.status in {400, 413, 422}
        assert caught.value.detail
    else:
        assert _batch(body) == expected


SINGLES = st.one_of(
    texts(st.fixed_dictionaries({}, optional={"delta": DELTAS, "id": IDS})), OBJECTS, st.text(max_size=12)
).map(lambda text: text.encode(errors="surrogatepass"))


@settings(max_examples=400, deadline=None)
@given(SINGLES | damaged(SINGLES) | st.binary(max_size=12))
@example(b"\x0c")
@example(b'{"delta": 1, "d\\u0065lta": 1}')
def test_a_single_is_taken_as_the_model_takes_it(body: bytes) -> None:
    try:
        expected = model.single(body)
    except model.BadError:
        with pytest.raises(BodyError) as caught:
            parse.single(body, None)
        assert caught.value.status in {400, 422}
        assert caught.value.detail
    else:
        assert parse.single(body, None) == expected


@settings(max_examples=250, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([1, -1, model.BIG, -model.BIG])), min_size=1))
def test_what_is_accepted_adds_up_item_by_item(items: list[tuple[str, int]]) -> None:
    """As an array and as lines; as a map too, where a sum may be one delta."""
    sums = Counter[str]()
    for name, delta in items:
        sums[name] += delta
    rows = [{"counter": name, "delta": delta} for name, delta in items]
    bodies = [json.dumps(rows), "\n".join(map(json.dumps, rows))]
    if all(model.is_delta(total) for total in sums.values()):
        bodies.append(json.dumps({"counters": sums}))
    for body in bodies:
        assert parse.batch(body.encode()).batch.sums == dict(sums)
