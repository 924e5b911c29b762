"""The command plan: calculates what your traffic needs and costs on Google Cloud, and what other ways cost."""

import argparse
import contextlib
import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from countersink_server.cli.arguments import Commands, command, seconds, whole
from countersink_server.cli.output import json_of, tell
from countersink_server.cli.target import add_neither
from countersink_server.cli.traffic_plan import (
    MOST_PROCESSES,
    ORIGINAL_SHARD_WRITES,
    Operations,
    Prices,
    Traffic,
    TrafficPlan,
    of_original,
    planned,
)
from ingest.accept.drafts import STRETCH
from shared.config.settings import Settings

LEAST_RATE: Final = 0.001
MOST_RATE: Final = 10_000_000
LONGEST_INTERVAL: Final = 60
"""Seconds, as for the setting."""
DIGITS: Final = 100
"""Smaller numbers are shown with three digits."""
MOST_PRICE: Final = 1_000
_DASH: Final = re.compile("(?<![eE])-")
"""The dash between two prices, and not the sign of an exponent."""
_PRICES: Final = {"write": "0.06-0.18", "read": "0.03-0.06", "delete": "0.01-0.02"}
"""Dollars for 100,000 operations: the lowest and the highest, since regions differ."""
READ: Final = "while_read"
UNREAD: Final = "while_unread"
_WAYS: Final = {
    READ: "while read",
    UNREAD: "while unread",
    "original": "Google's example",
    "bigtable": "Bigtable",
    "redis": "Redis alone",
}
_NODE_WRITES: Final = 14_000
"""Rows that a node of Bigtable writes in a second, as Google says."""
_NODE_HOUR: Final = "0.65"
"""Dollars, in 2019: Google's page of prices can't be read by programs."""
_HOURS: Final = 30 * 24
_ROWS: Final = {
    "writes_per_second": "writes per second",
    "reads_per_second": "reads per second",
    "deletes_per_second": "deletes per second",
    "operations_per_million": "operations per million increments",
}
_TIMES: Final = {
    "interval": "flushed every",
    "applied_within_seconds": "applied within",
    "others_see_within_seconds": "seen by other processes within",
}


def add_commands(commands: Commands) -> None:
    parser = command(
        commands,
        "plan",
        _plan,
        more="It only calculates, and connects to nothing. It also says the cost of Google's example of a sharded"
        " counter, which writes each increment in a transaction, of Bigtable, and of Redis alone.",
        json="print a JSON object",
    )
    parser.add_argument("--rate", type=_rate, required=True, metavar="R", help="increments per second, in all")
    parser.add_argument(
        "--counters", type=whole(1, 10**9), default=1, metavar="C", help="counters that are counted, equally often [1]"
    )
    parser.add_argument(
        "--ids",
        choices=("none", "batch", "each"),
        default="none",
        help="whether clients send ids: batch is an Idempotency-Key for each batch, each is an id for each increment"
        " [none]",
    )
    parser.add_argument(
        "--batch", type=whole(1, 1_000), metavar="N", help="with --ids batch: increments in a batch [1000]"
    )
    parser.add_argument(
        "--ingests", type=whole(1, MOST_PROCESSES), metavar="N", help="how many ingests [as many as needed, at least 2]"
    )
    parser.add_argument(
        "--flushers",
        type=whole(1, MOST_PROCESSES),
        metavar="N",
        help="how many flushers [as many as needed, at least 2]",
    )
    parser.add_argument(
        "--interval",
        type=_interval,
        metavar="S",
        help="seconds between two flushes, read or not [COUNTERSINK_FLUSH_INTERVAL while counters are read,"
        " COUNTERSINK_MAX_FLUSH_INTERVAL while they are not]",
    )
    parser.add_argument(
        "--overlay", choices=("memory", "redis"), help="where reads find what is not applied [COUNTERSINK_OVERLAY]"
    )
    parser.add_argument(
        "--top",
        type=whole(1, 1_000),
        metavar="N",
        help="also say what the N largest of these counters cost (COUNTERSINK_TOP)",
    )
    parser.add_argument(
        "--top-every", type=_between, default=5.0, metavar="S", help="seconds between two requests for these [5]"
    )
    for kind, default in _PRICES.items():
        parser.add_argument(
            f"--price-{kind}",
            type=_price,
            default=_price(default),
            metavar="LOW-HIGH",
            help=f"dollars for 100,000 {kind}s: lowest and highest, or one number [{default}]",
        )
    parser.add_argument(
        "--price-node",
        type=_price,
        default=_price(_NODE_HOUR),
        metavar="LOW-HIGH",
        help=f"dollars an hour for a node of Bigtable [{_NODE_HOUR}, of 2019]",
    )
    add_neither(parser, "this command only calculates: it needs no service and no data")


def _plan(options: argparse.Namespace) -> None:
    if options.batch is not None and options.ids != "batch":
        options.refuse("argument --batch: only with --ids batch, where each batch has an id")
    settings = Settings.read(os.environ)
    redis = settings.overlay != "memory://" if options.overlay is None else options.overlay == "redis"
    short = settings.flush_interval if options.interval is None else options.interval
    grows = options.interval is None and short > 0
    long = max(short, settings.max_flush_interval) if grows else short
    plan = planned(
        Traffic(options.rate, options.counters, options.ids, options.batch or 1_000),
        ingests=options.ingests,
        flushers=options.flushers,
        interval=short,
        linger=settings.linger_ms / 1_000,
        in_redis=redis,
        told=min((rule.interval / 1_000 for rule in settings.feed), default=None),
        judged=bool(settings.thresholds),
    )
    prices = Prices(*(getattr(options, f"price_{kind}") for kind in _PRICES))
    found = document(plan, replace(plan, interval=long), settings, prices) | {
        "bigtable": _bigtable(options.rate, options.price_node)
    }
    if options.top is not None:
        reads = plan.reads_of_largest(options.top)
        dollars = [round(number, 2) for number in Operations(0, reads / options.top_every, 0).a_month(prices)]
        found["top"] = {"every": options.top_every, "reads": round(reads), "dollars_a_month": dollars}
    if options.json:
        tell(json_of(found))
    else:
        for line in lines(found):
            tell(line)


def document(read: TrafficPlan, unread: TrafficPlan, settings: Settings, prices: Prices) -> dict[str, Any]:
    """What --json prints. `read`: while somebody reads the counters; `unread`: while nobody does."""
    traffic = read.traffic
    return {
        "rate": traffic.rate,
        "counters": traffic.counters,
        "ids": traffic.ids,
        "ingests": read.ingests,
        "flushers": read.flushers,
        "overlay": "redis" if read.in_redis else "memory",
        "feed": {"told_every": read.told, "thresholds": read.judged},
        "envelopes_per_second": round(read.envelopes, 3),
        "too_few": read.too_few() + read.too_few_shards(settings.max_shards, settings.shard_writes),
        READ: _ours(read, settings, prices),
        UNREAD: _ours(unread, settings, prices),
        "original": _way(of_original(traffic.rate), traffic.rate, prices)
        | {"shards": math.ceil(traffic.rate / traffic.counters / ORIGINAL_SHARD_WRITES)},
        "redis": _way(Operations(0, 0, 0), traffic.rate, prices),
    }


def _ours(plan: TrafficPlan, settings: Settings, prices: Prices) -> dict[str, Any]:
    applied = plan.interval + STRETCH * plan.linger
    return _way(plan.operations, plan.traffic.rate, prices) | {
        "shards": plan.shards(settings.shards, settings.max_shards, settings.shard_writes),
        "interval": plan.interval,
        "commits_per_second": round(plan.commits, 3),
        "applied_within_seconds": round(applied, 3),
        "others_see_within_seconds": 0 if plan.in_redis else round(applied + settings.cache_ttl, 3),
    }


def _way(operations: Operations, rate: float, prices: Prices) -> dict[str, Any]:
    each = {f"{name}_per_second": round(number, 3) for name, number in operations._asdict().items()}
    dollars = [round(number, 2) for number in operations.a_month(prices)]
    each |= {"operations_per_million": round(operations.all / rate * 1_000_000), "dollars_a_month": dollars}
    return each | {"shards": None}


def _bigtable(rate: float, price: tuple[float, float]) -> dict[str, Any]:
    """Each increment is a write of its own. A node is paid by the hour, used or not."""
    nodes = math.ceil(rate / _NODE_WRITES)
    return {
        "writes_per_second": rate,
        "reads_per_second": 0,
        "deletes_per_second": 0,
        "operations_per_million": 1_000_000,
        "dollars_a_month": [round(nodes * one * _HOURS, 2) for one in price],
        "shards": None,
        "nodes": nodes,
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    ids = {"none": "no ids", "batch": "an id for each batch", "each": "an id for each increment"}[found["ids"]]
    yield f"traffic: {_said(found['rate'])} increments/s, counters: {found['counters']:,}, {ids}"
    envelopes = _said(found["envelopes_per_second"])
    yield f"ingests: {found['ingests']}, flushers: {found['flushers']}, envelopes/s: {envelopes}"
    yield ""
    yield from _table(found)
    yield ""
    if "top" in found:
        top = found["top"]
        yield f"The largest counters, each {top['every']:g} s while read: {top['reads']:,} reads a request, and"
        yield f"{_dollars(*top['dollars_a_month'])} dollars a month besides."
        yield ""
    yield "Countersink flushes less often while nobody reads the counters through all ingests, or waits. The process"
    yield "that accepted an increment shows it at once. A publish and a commit add to these times."
    yield f"Redis alone: when it dies, the last second may be lost, {_said(found['rate'])} increments, even with"
    yield "appendfsync everysec. An increment that is sent again may count twice, there and in Google's example."
    nodes = found["bigtable"]["nodes"]
    yield f"Bigtable: nodes cost by the hour, used or not, here {nodes:,}. A retry counts once within 15 minutes."
    yield ""
    yield from found["too_few"]
    yield "Measured: what an ingest takes, and the operations of Google's example. Assumed: a publish takes 15 ms,"
    yield "and a flusher writes 5,000 entities a second. The rest is arithmetic. Not in it: Pub/Sub, machines, Redis,"
    yield "network, storage, reads by clients, the first minutes of new counters, and transactions that are repeated."
    told = found["feed"]
    if told["told_every"] is None and not told["thresholds"]:
        yield "Not in it: the feed. Set COUNTERSINK_FEED and COUNTERSINK_THRESHOLDS to include what it costs."
    else:
        yield "The feed is in it, as if the shortest interval and the thresholds held for all counters."


def _table(found: dict[str, Any]) -> Iterator[str]:
    same = found[READ] == found[UNREAD]
    titles = {way: "Countersink" if same and way == READ else _WAYS[way] for way in _WAYS if not same or way != UNREAD}
    ways = [found[way] for way in titles]
    rows = [["", *titles.values()]]
    rows += [[title, *(_said(way[name]) for way in ways)] for name, title in _ROWS.items()]
    rows.append(["dollars a month", *(_dollars(*way["dollars_a_month"]) for way in ways)])
    rows.append(["shards of a counter", *("-" if way["shards"] is None else f"{way['shards']:,}" for way in ways)])
    for name, title in _TIMES.items():
        rows.append([title, *("-" if name not in way else f"{way[name]:g} s" for way in ways)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells])


def _said(number: float) -> str:
    return f"{number:,.0f}" if number >= DIGITS or number == int(number) else f"{number:.3g}"


def _dollars(low: float, high: float) -> str:
    return "0" if not high else _said(low) if low == high else f"{_said(low)} - {_said(high)}"


def _rate(text: str) -> float:
    with contextlib.suppress(ValueError):
        if LEAST_RATE <= (number := float(text)) <= MOST_RATE:
            return number
    raise argparse.ArgumentTypeError(
        f"must be a number of increments per second from {LEAST_RATE:g} to {MOST_RATE:,}, is {text!r}"
    )


def _interval(text: str) -> float:
    number = seconds(text)
    if number > LONGEST_INTERVAL:
        raise argparse.ArgumentTypeError(f"must be at most {LONGEST_INTERVAL} seconds, is {text!r}")
    return number


def _between(text: str) -> float:
    number = seconds(text)
    if not number:
        raise argparse.ArgumentTypeError("must be more than 0 seconds")
    return number


def _price(text: str) -> tuple[float, float]:
    with contextlib.suppress(ValueError):
        low, *others = [float(part) for part in _DASH.split(text, maxsplit=1)]
        high = others[0] if others else low
        if 0 <= low <= high <= MOST_PRICE:
            return low, high
    raise argparse.ArgumentTypeError(
        f"must be dollars up to {MOST_PRICE}, such as 0.06 or, lowest first, 0.06-0.18, is {text!r}"
    )
