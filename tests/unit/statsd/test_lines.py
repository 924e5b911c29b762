"""What a line of the StatsD protocol counts."""

import contextlib
from random import Random

import pytest

from ingest.statsd.tally import LARGE, MALFORMED, MILLION, TYPE, LineError, read
from shared.config.lists import PLAIN, name_template
from shared.model.words import MAX_DELTA


@pytest.mark.parametrize(
    ("line", "name", "delta"),
    [
        ("a:1|c", "a", MILLION), ("a.b-c/d e:2|c", "a.b-c/d e", 2 * MILLION), ("a:-3|c", "a", -3 * MILLION),
        ("a:+3|c", "a", 3 * MILLION), ("a:0|c", "a", 0), ("a:1|c|@0.1", "a", 10 * MILLION),
        ("a:1|c|@0.3", "a", 3_333_333), ("a:2|c|@1", "a", 2 * MILLION), ("a:1|c|@1e-05", "a", 100_000 * MILLION),
        ("a:1.5|c", "a", 1_500_000), ("a:1|c|#x:y,z", "a", MILLION), ("a:1|c|#x:y|@0.5", "a", 2 * MILLION),
        ("a:1|c|@0.5|c:ci-4711|T1656581400", "a", 2 * MILLION), (f"a:{MAX_DELTA}|c", "a", MAX_DELTA * MILLION),
        ("é:1|c", "é", MILLION), (":1|c", "", MILLION),
    ],
)  # fmt: skip
def test_a_counter(line: str, name: str, delta: int) -> None:
    assert read(line, PLAIN) == (name, delta)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", MALFORMED), ("a", MALFORMED), ("a:1", MALFORMED), ("a:|c", MALFORMED), ("a|c", MALFORMED),
        ("a:x|c", MALFORMED), ("a:.|c", MALFORMED), ("a:1_0|c", MALFORMED), ("a: 1|c", MALFORMED),
        ("a:٣|c", MALFORMED), ("a:nan|c", MALFORMED), ("a:inf|c", MALFORMED), ("a:1:2|c", MALFORMED),
        ("a:1|c|@0", MALFORMED), ("a:1|c|@-1", MALFORMED), ("a:1|c|@1.5", MALFORMED), ("a:1|c|@x", MALFORMED),
        ("a:1|c|@nan", MALFORMED), (f"a:{'9' * 60}|c", MALFORMED), ("a:1|g", TYPE), ("a:+1|g", TYPE),
        ("a:1|ms|@0.1", TYPE), ("a:u|s", TYPE), ("a:1|h", TYPE), ("a:1|", TYPE), (f"a:{MAX_DELTA + 1}|c", LARGE),
        ("a:1e99|c", LARGE), ("a:1|c|@1e-99", LARGE),
    ],
)  # fmt: skip
def test_a_line_that_does_not_count(line: str, why: str) -> None:
    with pytest.raises(LineError) as error:
        read(line, PLAIN)
    assert error.value.why == why


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{name}", "hits"), ("{name}:{tag.host}", "hits:web-1"), ("{tag.env}/{name}:{tag.host}!", "prod/hits:web-1!"),
        ("{tag.host}", "web-1"), ("{name}{name}", "hitshits"), ("{name}:{tag.url}", "hits:http://x"),
        ("{name}:{tag.nothing}", "hits:"), ("{name}:{tag.flag}", "hits:"),
    ],
)  # fmt: skip
def test_a_template_makes_the_name(template: str, name: str) -> None:
    line = "hits:1|c|@0.5|#host:web-1,env:prod,flag,url:http://x"
    assert read(line, name_template(template)) == (name, 2 * MILLION)


@pytest.mark.parametrize(
    ("template", "prefix", "may"),
    [
        ("{name}", "statsd:", False), ("{name}", "statsd", True), ("{name}", "page/", True), ("{name}", ":", False),
        ("{name}", "a|b", True), ("statsd:{name}", "statsd:", True), ("statsd:{name}", "statsd:a.", True),
        ("statsd:{name}", "stat", True), ("statsd:{name}", "statsd:a:", False), ("app:{name}", "statsd:", False),
        ("{name}:{tag.host}", "statsd:", True), ("{name}:{tag.host}", "statsd:a:b", True),
        ("{name}:{tag.host}", "statsd:a,b", False), ("{name}:{tag.host}!", "a:b!c", True),
        ("{tag.url}", "http://x", True), ("{tag.a}", "a|", False), ("{name}-{name}:", "a-b:", True),
        ("{name}:x", "a:y", False), ("{name}:x", "a:xy", False), ("{name}:x", "a:x", True),
    ],
)  # fmt: skip
def test_whether_a_template_can_make_a_name_under_a_prefix(template: str, prefix: str, may: bool) -> None:
    assert name_template(template).may_begin_with(prefix) == may


@pytest.mark.parametrize("template", ["", "page", "{", "{name", "name}", "{}", "{tag.}", "{tag}", "{Name}", "{{name}}"])
def test_what_is_no_template(template: str) -> None:
    with pytest.raises(ValueError, match=r"\{"):
        name_template(template)


def test_no_bytes_make_it_fail_in_another_way() -> None:
    """A reader that fails would lose the rest of a packet."""
    good = 0
    for seed in range(20_000):
        random = Random(seed)
        text = [*random.choice(["a:1|c|@0.5|#x:y", "a:1|c", "é:-1.5e3|c|@1e-3", "a:9007199254740991|c|@0.1"])]
        for _ in range(random.randrange(4)):
            text[random.randrange(len(text))] = random.choice("a:|@#,.+-eE0123456789 \t\x00\x85é٣²")
        with contextlib.suppress(LineError):
            _, delta = read("".join(text), name_template("{name}{tag.x}"))
            assert abs(delta) <= MAX_DELTA * MILLION
            good += 1
    assert good > 5_000
