"""Reads settings that are lists with commas: networks, origins, hosts, prefixes, limits, rules of the feed, and
templates of names. Pure.
"""

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, NamedTuple, TypeVar

from shared.model.buckets import DAY, HOUR, Millis
from shared.model.feed import FeedRule, ThresholdRule
from shared.model.jobs import ExpireRule
from shared.model.words import MAX_DELTA, MAX_NAME_BYTES, flaw_of_size

T = TypeVar("T")
Rule = TypeVar("Rule", FeedRule, ThresholdRule, ExpireRule)

Network = IPv4Network | IPv6Network

MOST_RANKED: Final = 1_000
"""The most counters that a request for the largest can get."""
MOST_COUNTERS: Final = 10**12
"""The most counters that a limit can allow."""


class NameLimit(NamedTuple):
    """There may be so many counters whose names begin with the prefix."""

    prefix: str
    most: int


LONGEST_INTERVAL: Final = 30 * DAY
MOST_THRESHOLDS: Final = 100
"""Numbers in one list."""
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": HOUR, "d": DAY}
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:]+")


def networks(text: str) -> tuple[Network, ...]:
    return _each(text, _network)


def origins(text: str) -> tuple[str, ...]:
    return _each(text, _origin)


def hosts(text: str) -> tuple[str, ...]:
    """Names or addresses, in lower case, without ports."""
    return _each(text, _host)


def audiences(text: str) -> tuple[str, ...]:
    """URLs or other names, compared letter by letter with what a token says."""
    return _each(text, _audience)


def name_limits(text: str) -> tuple[NameLimit, ...]:
    """Limits such as `page:=100000,=1000000`. A prefix may hold `=`, but no comma. The empty one is for all names."""
    limits = _each(text, _name_limit)
    if len({limit.prefix for limit in limits}) < len(limits):
        raise ValueError("a prefix is there twice")
    return limits


def tops(text: str) -> tuple[NameLimit, ...]:
    """How many of the largest counters may be asked for, such as `page:=1000`."""
    limits = name_limits(text)
    for limit in limits:
        if not 1 <= limit.most <= MOST_RANKED:
            raise ValueError(f"{limit.prefix}={limit.most}: the number must be from 1 to {MOST_RANKED}")
    return limits


def prefixes(text: str) -> tuple[str, ...]:
    """What names begin with. A prefix may hold no comma."""
    return _each(text, _prefix)


def feed_rules(text: str) -> tuple[FeedRule, ...]:
    """Rules such as `page:=10s,=1m`, with prefixes as in `name_limits`."""
    return of_prefixes(text, "page:=10s", _feed_rule)


def threshold_rules(text: str) -> tuple[ThresholdRule, ...]:
    """Rules such as `page:=every 1000,quota:=at 100 1000`, with prefixes as in `name_limits`."""
    return of_prefixes(text, "page:=every 1000", _threshold_rule)


def flaw_of_origin(value: object) -> str | None:
    """Why this is no origin as browsers send it; None if it is one."""
    if type(value) is str and _ORIGIN.fullmatch(value):
        return None
    return "must be an origin such as https://www.example.com, in lower case and without a path"


def _each(text: str, read: Callable[[str], T]) -> tuple[T, ...]:
    """Raises `ValueError` that names the item that is wrong."""
    return tuple(read(word.strip()) for word in text.split(",")) if text else ()


def _network(word: str) -> Network:
    try:
        return ip_network(word, strict=False)
    except ValueError:
        raise ValueError(f"{word!r} must be a network such as 10.0.0.0/8, or an address") from None


def _origin(word: str) -> str:
    if flaw := flaw_of_origin(word):
        raise ValueError(f"{word!r} {flaw}")
    return word


def _audience(word: str) -> str:
    if not word or not word.isascii() or not word.isprintable() or " " in word:
        raise ValueError(f"{word!r} must be an audience such as https://counts.example.com")
    return word


def _name_limit(word: str) -> NameLimit:
    prefix, equals, digits = word.rpartition("=")
    if not (equals and digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) <= MOST_COUNTERS):  # noqa: PLR2004 (more digits are too many)
        raise ValueError(
            f"{word!r} must be a prefix, '=' and a whole number from 0 to {MOST_COUNTERS}, as in page:=1000"
        )
    if flaw := flaw_of_size(prefix, MAX_NAME_BYTES):
        raise ValueError(f"the prefix of {word!r} {flaw}")
    return NameLimit(prefix, int(digits))


def of_prefixes(text: str, form: str, read: Callable[[str, str], Rule]) -> tuple[Rule, ...]:
    """Rules such as `page:=10s,=1m`: a prefix, which may hold `=`, but no comma, and what `read` reads."""

    def one(word: str) -> Rule:
        prefix, equals, rest = word.rpartition("=")
        try:
            if not equals:
                raise ValueError(f"must be a prefix, '=' and a rule, as in {form}")
            if flaw := flaw_of_size(prefix, MAX_NAME_BYTES):
                raise ValueError(f"has a prefix that {flaw}")
            return read(prefix, rest)
        except ValueError as error:
            raise ValueError(str(error) if word == text else f"{word!r} {error}") from None

    rules = _each(text, one)
    if len({rule.prefix for rule in rules}) < len(rules):
        raise ValueError("a prefix is there twice")
    return rules


def _feed_rule(prefix: str, rest: str) -> FeedRule:
    number, unit = rest[:-1], _UNITS.get(rest[-1:], 0)
    if not (unit and _DIGITS.fullmatch(number) and int(number) * unit <= LONGEST_INTERVAL):
        raise ValueError("must say how often, from 0s to 30d, in s, m, h or d, as in page:=10s")
    return FeedRule(prefix, Millis(int(number) * unit))


def _threshold_rule(prefix: str, rest: str) -> ThresholdRule:
    kind, *words = rest.split() or [""]
    numbers = sorted({int(word) for word in words if _DIGITS.fullmatch(word)})
    good = len(numbers) == len(words) > 0 and numbers[0] > 0 and numbers[-1] <= MAX_DELTA
    if good and kind == "every" and len(numbers) == 1:
        return ThresholdRule(prefix, numbers[0])
    if good and kind == "at" and len(numbers) <= MOST_THRESHOLDS:
        return ThresholdRule(prefix, 0, (*numbers,))
    raise ValueError(
        "must say 'every' and a number, or 'at' and at most 100 different numbers, as in quota:=at 100 1000; numbers"
        f" are from 1 to {MAX_DELTA}"
    )


def _prefix(word: str) -> str:
    if not word:
        raise ValueError("a prefix must not be empty")
    if flaw := flaw_of_size(word, MAX_NAME_BYTES):
        raise ValueError(f"{word!r} {flaw}")
    return word


def _host(word: str) -> str:
    name = word.lower().removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(name):
        raise ValueError(f"{word!r} must be the name or the address of a host, without a port")
    return name


# Makes the name of a counter from the name and the tags of a StatsD line. Pure.


_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_TAG: Final = "tag."


class NameTemplate(NamedTuple):
    texts: tuple[str, ...]
    """What stands before, between and behind the places."""
    tags: tuple[str | None, ...]
    """The tag whose value comes at each place; None for the name."""

    def is_plain(self) -> bool:
        return self == PLAIN

    def name_of(self, name: str, tags: Mapping[str, str]) -> str:
        """The counter's name. A tag that a line lacks is empty."""
        values = [name if tag is None else tags.get(tag, "") for tag in self.tags]
        return "".join([self.texts[0], *(part for pair in zip(values, self.texts[1:], strict=True) for part in pair)])


PLAIN: Final = NameTemplate(("", ""), (None,))


def template_text(text: str) -> str:
    """The text of a template, if it is a valid one."""
    name_template(text)
    return text


def name_template(text: str) -> NameTemplate:
    """Read a template such as {name}:{tag.host}."""
    parts = _FIELD.split(text)
    texts, fields = parts[::2], parts[1::2]
    if not fields or "{" in "".join(texts) or "}" in "".join(texts):
        raise ValueError("must be a text with {name} or {tag.TAG} in it")
    for field in fields:
        if field != "name" and not (field.startswith(_TAG) and len(field) > len(_TAG)):
            raise ValueError(f"{{{field}}} is neither {{name}} nor {{tag.TAG}}")
    return NameTemplate(tuple(texts), tuple(None if one == "name" else one.removeprefix(_TAG) for one in fields))
