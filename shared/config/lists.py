"""Reads settings that are lists: networks, origins, hosts, prefixes, limits, rules of the feed, of what is kept and of
what is deleted; durations; and templates of names. Pure.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import permutations
from typing import Final, NamedTuple, TypeVar

from shared.model.buckets import DAY, HOUR, LENGTHS, Millis, Prefixed, Rule, Rules
from shared.model.feed import FeedRule, ThresholdRule
from shared.model.jobs import ExpireRule
from shared.model.words import MAX_DELTA, MAX_NAME_BYTES, flaw_of_size

T = TypeVar("T")

Network = IPv4Network | IPv6Network

MOST_RANKED: Final = 1_000
LARGEST_LIMIT: Final = 10**12


class NameLimit(NamedTuple):
    """There may be this many counters whose names begin with the prefix."""

    prefix: str
    most: int


LONGEST_INTERVAL: Final = 30 * DAY
MOST_THRESHOLDS: Final = 100
"""Numbers in one list."""
MOST_DAYS: Final = 36_600
_UNITS: Final = {"s": 1_000, "m": 60_000, "h": HOUR, "d": DAY, "y": 366 * DAY}
"""A year is 366 days, so that the same day of last year is still there."""
_LONG: Final = "hdy"
"""The units in which people say how long something is kept."""
_SPAN: Final = re.compile(r"([0-9]{1,9})([a-z])")
_DIGITS: Final = re.compile(r"[0-9]{1,18}")
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_HOST: Final = re.compile(r"[a-z0-9._-]+|[0-9a-f:]+")


def _each(read: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Reads a list with commas. `ValueError` names the item that is wrong."""
    return lambda text: tuple(read(word.strip()) for word in text.split(",")) if text else ()


def _is_quoted(text: str) -> bool:
    """Whether there are quotes around it, as some readers of environment files leave them there."""
    return len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"


def _flaw_of_prefix(prefix: str) -> str | None:
    """Also of a prefix that hardly any name begins with: the rule would seem to do nothing."""
    if prefix.endswith("*"):
        return "ends with '*': leave it out, as a prefix is the beginning of names"
    if prefix.endswith(" "):
        return "ends with a space: leave it out"
    if _is_quoted(prefix):
        return "has quotes around it: leave them out"
    return flaw_of_size(prefix, MAX_NAME_BYTES)


def _begins_with_rule(text: str, read: Callable[[str, str], object]) -> bool:
    """Whether the text, up to a comma or semicolon, is a rule."""
    for end in re.finditer("[,;]", text):
        prefix, equals, rest = text[: end.start()].rpartition("=")
        with suppress(ValueError):
            if equals and read(prefix, rest):
                return True
    return False


def of_prefixes(
    example: str, separator: str = ","
) -> Callable[[Callable[[str, str], Prefixed]], Callable[[str], tuple[Prefixed, ...]]]:
    """Reads rules such as `page:=10s,=1m`: a prefix, which may hold `=`, but no separator, and what is decorated reads.
    The empty prefix is for all names.
    """

    def decorate(read: Callable[[str, str], Prefixed]) -> Callable[[str], tuple[Prefixed, ...]]:
        def one(word: str, text: str) -> Prefixed:
            prefix, equals, rest = word.rpartition("=")
            try:
                if not equals:
                    raise ValueError(f"must be a prefix, '=' and a rule, as in {example}")
                if flaw := _flaw_of_prefix(prefix):
                    raise ValueError(f"has a prefix that {flaw}")
                if _begins_with_rule(prefix, read):
                    raise ValueError(f"has two rules: put {separator!r} between them")
                return read(prefix, rest)
            except ValueError as error:
                raise ValueError(str(error) if word == text else f"{word!r} {error}") from None

        def rules(text: str) -> tuple[Prefixed, ...]:
            found = tuple(one(word.strip(), text) for word in text.split(separator)) if text else ()
            if len({rule.prefix for rule in found}) < len(found):
                raise ValueError("a prefix appears twice")
            return found

        return rules

    return decorate


@_each
def networks(word: str) -> Network:
    try:
        return ip_network(word, strict=False)
    except ValueError:
        raise ValueError(f"{word!r} must be a network such as 10.0.0.0/8, or an address") from None


@_each
def origins(word: str) -> str:
    if flaw := flaw_of_origin(word):
        raise ValueError(f"{word!r} {flaw}")
    return word


@_each
def hosts(word: str) -> str:
    """A name or an address, in lower case, without a port."""
    name = word.lower().removeprefix("[").removesuffix("]")
    if not _HOST.fullmatch(name):
        raise ValueError(f"{word!r} must be the name or the address of a host, without a port")
    return name


@_each
def audiences(word: str) -> str:
    """A URL or another name, compared letter by letter with what a token says."""
    if not word or not word.isascii() or not word.isprintable() or " " in word or _is_quoted(word):
        raise ValueError(f"{word!r} must be an audience such as https://counts.example.com")
    return word


@_each
def prefixes(word: str) -> str:
    if not word:
        raise ValueError("a prefix must not be empty")
    if flaw := _flaw_of_prefix(word):
        raise ValueError(f"{word!r} {flaw}")
    return word


@of_prefixes("page:=1000")
def name_limits(prefix: str, rest: str) -> NameLimit:
    if not (_DIGITS.fullmatch(rest) and int(rest) <= LARGEST_LIMIT):
        raise ValueError(f"must say a whole number from 0 to {LARGEST_LIMIT}, as in page:=1000")
    return NameLimit(prefix, int(rest))


def tops(text: str) -> tuple[NameLimit, ...]:
    """How many of the largest counters may be asked for, such as `page:=1000`."""
    limits = name_limits(text)
    for limit in limits:
        if not 1 <= limit.most <= MOST_RANKED:
            raise ValueError(f"{limit.prefix}={limit.most}: the number must be from 1 to {MOST_RANKED}")
    return limits


@of_prefixes("page:=10s")
def feed_rules(prefix: str, rest: str) -> FeedRule:
    interval = _millis(rest, "smhd")
    if interval is None or interval > LONGEST_INTERVAL:
        raise ValueError("must say how often, from 0s to 30d, in s, m, h or d, as in page:=10s")
    return FeedRule(prefix, interval)


def _millis(text: str, units: str) -> Millis | None:
    """What a duration such as `90d` says; None if it is something else, or in another unit."""
    found = _SPAN.fullmatch(text)
    return Millis(int(found[1]) * _UNITS[found[2]]) if found and found[2] in units else None


@of_prefixes("page:=every 1000")
def threshold_rules(prefix: str, rest: str) -> ThresholdRule:
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


def duration_of(text: str) -> Millis:
    """Reads `90d`: a whole number of hours, days or years. Raises `ValueError` if it is something else."""
    if (found := _millis(text, _LONG)) is None:
        raise ValueError(f"{text!r} must be a number of hours, days or years, as in 12h, 90d or 2y")
    return found


def days_of(text: str) -> int:
    """Reads `400d` or `2y`: whole days. Raises `ValueError` if it is something else."""
    days, rest = divmod(_millis(text, _LONG) or 0, DAY)
    if rest or not 1 <= days <= MOST_DAYS:
        raise ValueError(f"must be whole days or years, as in 90d or 2y, and at most {MOST_DAYS}d")
    return days


@of_prefixes("page:=hour/90d,day/2y", ";")
def _window_rules(prefix: str, rest: str) -> Rule:
    periods = [_kept(one.strip()) for one in rest.split(",")]
    if len(dict(periods)) < len(periods):
        raise ValueError("names a period twice")
    return Rule(prefix, tuple(sorted(periods)))


def _kept(word: str) -> tuple[str, Millis]:
    by, _, retention = word.partition("/")
    if by not in LENGTHS:
        raise ValueError(f"{word!r} must be {' or '.join(LENGTHS)}, and how long to keep it, as in hour/90d")
    if (kept := _millis(retention, _LONG)) is None:
        raise ValueError(f"{word!r} must say how long to keep it, in h, d or y, as in {by}/90d")
    if not LENGTHS[by] <= kept <= MOST_DAYS * DAY:
        raise ValueError(f"{word!r} must be from one {by} to {MOST_DAYS}d")
    return by, kept


def rules_of(text: str) -> Rules:
    """Which counts by time are kept: `page:=hour/90d,day/2y;=day/1y`."""
    return tuple(sorted(_window_rules(text)))


@of_prefixes("page:=400d")
def _expire_rules(prefix: str, rest: str) -> ExpireRule:
    return ExpireRule(prefix, days_of(rest))


def expire_rules(text: str) -> tuple[ExpireRule, ...]:
    """Rules such as `page:=400d`. No prefix may begin with another one: the job of the shorter one would delete the
    counters of the longer one, too.
    """
    rules = _expire_rules(text)
    for one, other in permutations(rules, 2):
        if other.prefix.startswith(one.prefix):
            raise ValueError(f"{other.prefix!r} begins with {one.prefix!r}: a counter must have one rule")
    return rules


def flaw_of_origin(value: object) -> str | None:
    """Why this is no origin as browsers send it; None if it is one."""
    if type(value) is str and _ORIGIN.fullmatch(value):
        return None
    return "must be an origin such as https://www.example.com, in lower case and without a path"


# Makes the name of a counter from the name and the tags of a StatsD line. Pure.


_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_TAG: Final = "tag."
_ENDS_NAME: Final = ":"
_ENDS_TAG: Final = ",|"


def _ends(text: str, begin: int, without: str) -> Iterator[int]:
    """Where a part of the text can end that begins here, has none of these characters, and may be empty."""
    for end in range(begin, len(text)):
        yield end
        if text[end] in without:
            return
    yield max(begin, len(text))


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

    def may_begin_with(self, prefix: str) -> bool:
        """Whether a line can have a name that begins with the prefix. What comes at a place has no character that ends
        the name or the tag.
        """
        made = {0}  # how much of the prefix the parts of the template until here can make
        for text, tag in zip(self.texts, (*self.tags, ""), strict=True):
            made = {at + len(text) for at in made if prefix.startswith(text, at) or text.startswith(prefix[at:])}
            if tag != "":
                ends = _ENDS_NAME if tag is None else _ENDS_TAG
                made = {end for at in made for end in _ends(prefix, at, ends)}
            if any(at >= len(prefix) for at in made):
                return True
        return False


PLAIN: Final = NameTemplate(("", ""), (None,))


def template_text(text: str) -> str:
    """The text of a template, if it is a valid one."""
    name_template(text)
    return text


def name_template(text: str) -> NameTemplate:
    """Read a template such as {name}:{tag.host}."""
    if _is_quoted(text):
        raise ValueError("has quotes around it: leave them out")
    if "${" in text:
        raise ValueError("has a '$' before '{': leave it out")
    parts = _FIELD.split(text)
    texts, fields = parts[::2], parts[1::2]
    if not fields or "{" in "".join(texts) or "}" in "".join(texts):
        raise ValueError("must be a text with {name} or {tag.TAG} in it")
    for field in fields:
        if field != "name" and not (field.startswith(_TAG) and len(field) > len(_TAG)):
            raise ValueError(f"{{{field}}} is neither {{name}} nor {{tag.TAG}}")
    return NameTemplate(tuple(texts), tuple(None if one == "name" else one.removeprefix(_TAG) for one in fields))
