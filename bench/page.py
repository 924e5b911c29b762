"""The tables and plots of docs/benchmarks.md, made of results.json: `python -m bench.page` writes them.

The page has them between `<!-- figures: NAME -->` and `<!-- end of figures -->`; its text is written by people.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from bench.peers.rows import WHAT
from bench.plot import Bars, draw_bars

DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = DOCS / "benchmarks.md"
RESULTS: Final = Path(__file__).with_name("results.json")
_LONG: Final = re.compile(r"`| that moves .*")
"""What a plot leaves out of a name."""
_BLOCK: Final = re.compile(r"(?<=<!-- figures: )(\w+)( -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)

Kept = Mapping[str, Mapping[str, Any]]
"""Rows by name."""

BUSY: Final = 0.5
"""A load average above which a run is not one of an idle machine."""
EMPTY: Final = "empty aiohttp handler"
BARE: Final = "parsing and adding alone"
AGAINST: Final[dict[str, Mapping[str, tuple[str, str, str]]]] = {
    "singles": {
        "post": ("`POST` of one increment", EMPTY, "{:,.0f}/s"),
        "post-names": ("`POST` of one increment, 1,000 counters in turn", EMPTY, "{:,.0f}/s"),
        "post-ids": ("`POST` of one increment with an `id`", EMPTY, "{:,.0f}/s"),
        "get": ("cached `GET`", EMPTY, "{:,.0f}/s"),
    },
    "batches": {
        "array100-apart": ("an array of 1,000 increments, 100 names", BARE, "{:,.2f} million/s"),
        "array1000-apart": ("an array of 1,000 increments, all names different", BARE, "{:,.2f} million/s"),
        "map1000-apart": ('`{"counters": {…}}`, 1,000 names', BARE, "{:,.2f} million/s"),
        "array100-up": ("an array of 1,000 increments, 100 names, all on one core", BARE, "{:,.2f} million/s"),
    },
    "memory": {
        "memory-flat": ("memory in the last third of the load", "memory in its first third", "{:,.1f} MiB"),
    },
    "client": {"client-incr": ("calls of `incr()`", "updates of a dict", "{:,.0f}/s")},
    "cloud": {
        "cloud-firestore-post": ("one hot counter, single `POST`s", "the sharded counter", "{:,.0f}/s"),
        "cloud-operations": (
            "Datastore operations per million increments, at 5,000/s",
            "the sharded counter",
            "{:,.0f}",
        ),
    },
}
APART: Final[dict[str, Mapping[str, tuple[str, str, str]]]] = {
    "file": {
        "backlog-same": ("applied, of 1,000 counters", "a bare loop", "{:,.0f}/s"),
        "backlog-names": ("applied, each of a new counter", "a bare loop", "{:,.0f}/s"),
        "backlog-ids": ("applied, each with an id", "a bare loop", "{:,.0f}/s"),
        "list": ("counters listed, in pages of 1,000", "a bare loop", "{:,.0f}/s"),
    },
}
"""The same of rows that only run if they are named."""
PEERS: Final = (
    *("redis-always", "postgres", "granian", "uvicorn"),
    *("redis-everysec", "write-behind", "redis-none"),
)
"""Those first that promise as much about a failure of power."""
AS_SAFE: Final = 4
CONNECTIONS: Final = (64, 256)


def _run(document: Mapping[str, Any]) -> str:
    where, commit = document["machine"], document["commit"]
    said = (
        f"The run began on {_day(document['date'])}, at commit `{commit}`. The machine: {where['processors']} cores"
        f" ({where['processor']}), {where['system']}, Python {where['python']}, SQLite {where['sqlite']}, data on"
        f" {where['file_system']}, where a sync takes {where['sync_ms']:.1f} ms. Load: `{document['generator']}`.\n"
    )
    if where["load"] > BUSY:
        said += (
            f"**Other programs were at work on the machine** (load average {where['load']:.1f} before the run), so"
            " rates are lower and times longer than it can do.\n"
        )
    apart = [
        f"`{row['name']}` on {_day(row['date'])} at `{row['commit']}`"
        for row in document["rows"]
        if row["commit"] != commit
    ]
    return said + (f"Measured apart: {', '.join(apart)}.\n" if apart else "")


def _against(rows: Kept, name: str) -> str:
    lines = ["| | Countersink | p50, p99 | reference | | ratio |", "|---|---|---|---|---|---|"]
    for key, (what, reference, shape) in (AGAINST | APART)[name].items():
        row = rows.get(key)
        if row is None or row["ours"] is None:
            lines.append(f"| {what} | {_why_not(row)} | | {reference} | | |")
            continue
        theirs = shape.format(row["reference"]["median"])
        ours = shape.format(row["ours"]["median"])
        lines.append(
            f"| {what} | {ours} | {_times(row['more'])} | {reference} | {theirs} | {_figure(row['ratio']['median'])} |"
        )
    return "\n".join(lines) + "\n"


def _peers(rows: Kept) -> str:
    """Countersink's own line first, then the others', for each number of connections."""
    lines = [
        "| | connections | way to count | increments/s | p50, p99 | Countersink counts | what it keeps |",
        "|---|---|---|---|---|---|---|",
    ]
    for what, connections, found in _groups(rows):
        ours = next((row for row in found if row["ours"]), None)
        if ours is not None:
            figures = f"{ours['ours']['median']:,.0f} | {_times(ours['more'])}"
            lines.append(f"| {what} | {connections} | **Countersink** | {figures} | | all, if the power fails |")
        for row in found:
            if row["ours"] is None:
                lines.append(f"| | | {row['what'].partition(': ')[2]} | {_why_not(row)} | | | |")
                continue
            more = row["more"]
            lines.append(
                f"| | | {more['peer_is']} | {row['reference']['median']:,.0f} | {_times(more, 'reference_')} |"
                f" {_figure(row['ratio']['median'])} times as many | {more['safe']} |"
            )
    return "\n".join(lines) + "\n"


def _groups(rows: Kept) -> Iterator[tuple[str, int, list[Mapping[str, Any]]]]:
    for group, what in WHAT.items():
        for connections in CONNECTIONS:
            names = [f"{group}-{connections}-{peer}" for peer in PEERS]
            found = [rows[name] for name in names if name in rows]
            if found:
                yield what, connections, found


def _statsd(rows: Kept) -> str:
    row = rows.get("peers-statsd")
    if row is None or row["ours"] is None:
        return f"{_why_not(row)}\n"
    lost, other = row["more"]["lost"]["median"], row["more"]["reference_lost"]["median"]
    return (
        "| | lines counted | lines lost |\n|---|---|---|\n"
        f"| **Countersink**, `--statsd` | {row['ours']['median']:,.0f}/s | {lost:.0%} |\n"
        f"| StatsD on Node | {row['reference']['median']:,.0f}/s | {other:.0%} |\n"
    )


def _watch(rows: Kept) -> str:
    row = rows.get("watch")
    if row is None or row["ours"] is None:
        return f"{_why_not(row)}\n"
    more = row["more"]
    return (
        "| | 2,000 streams | no stream |\n|---|---|---|\n"
        f"| time until an event, median and p99 | {more['p50']:.2f} s, {row['ours']['median']:.2f} s | |\n"
        f"| memory of the server | {more['memory_mib']:.0f} MiB | {more['memory_mib_without']:.0f} MiB |\n"
        f"| CPU time of the server | {row['ratio']['median']:.2f} times as much | 1 |\n"
    )


def _ids(rows: Kept) -> str:
    row = rows.get("ids-in-a-file")
    if row is None or row["ours"] is None:
        return f"{_why_not(row)}\n"
    more = row["more"]
    return (
        f"| | {more['ids']:,} ids |\n|---|---|\n"
        f"| room | {row['ours']['median']:.1f} bytes each |\n"
        f"| written | {more['rate']:,.0f}/s |\n"
        f"| deleted | in {more['sweep_seconds']:.1f} s, in steps of at most {more['longest_step_ms']:.1f} ms |\n"
    )


BLOCKS: Final[Mapping[str, Callable[[Kept], str]]] = {
    "peers": _peers,
    "statsd": _statsd,
    "watch": _watch,
    "ids": _ids,
    **{name: lambda rows, name=name: _against(rows, name) for name in (*AGAINST, *APART)},  # type: ignore[misc]
}


def plot(document: Mapping[str, Any]) -> str:
    """Increments per second at either number of connections, and the p99 at the larger one."""
    bars: list[Bars] = []
    found = {(what, connections): group for what, connections, group in _groups(_rows(document))}
    for what in WHAT.values():
        few, many = (
            {row["more"]["peer"]: row for row in found.get((what, connections), ()) if row["ours"]}
            for connections in CONNECTIONS
        )
        peers = [peer for peer in PEERS if peer in few or peer in many]
        if not peers:
            continue
        bars.append(Bars(what, "", ()))
        bars.append(Bars("Countersink", "ours", _bar(few.get(peers[0]), many.get(peers[0]), "ours", "p99_ms")))
        for peer in peers:
            values = _bar(few.get(peer), many.get(peer), "reference", "reference_p99_ms")
            name = str((few.get(peer) or many[peer])["more"]["peer_is"])
            bars.append(Bars(_LONG.sub("", name), "same" if peer in PEERS[:AS_SAFE] else "less", values))
    first, last = CONNECTIONS
    return draw_bars(
        "Increments per second and p99 of each way to count",
        (f"increments/s, {first} connections", f"increments/s, {last} connections", f"p99 in ms, {last} connections"),
        bars,
        ("Countersink: a failure of power loses nothing", "others of which that is true", "others of which it is not"),
    )


def _bar(
    few: Mapping[str, Any] | None, many: Mapping[str, Any] | None, whose: str, time: str
) -> tuple[float | None, float | None, float | None]:
    return (
        few[whose]["median"] if few else None,
        many[whose]["median"] if many else None,
        many["more"][time] if many else None,
    )


PLOTS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {"benchmarks.svg": plot}


def filled(page: str, document: Mapping[str, Any]) -> str:
    """The page with the figures of these results."""
    rows = _rows(document)

    def block(found: re.Match[str]) -> str:
        figures = _run(document) if found[1] == "run" else BLOCKS[found[1]](rows)
        return f"{found[1]}{found[2]}\n{figures}\n"

    return _BLOCK.sub(block, page)


def write(results: Path = RESULTS, page: Path = PAGE) -> None:
    document = orjson.loads(results.read_bytes())
    page.write_text(filled(page.read_text(), document))
    for name, drawn in PLOTS.items():
        page.with_name(name).write_text(drawn(document))


def _rows(document: Mapping[str, Any]) -> Kept:
    return {row["name"]: row for row in document["rows"]}


def _day(date: str) -> str:
    return date[:10]


def _why_not(row: Mapping[str, Any] | None) -> str:
    notes: Sequence[str] = row["notes"] if row else ()
    return f"not measured: {notes[0].removeprefix('skipped: ')}" if notes else "not measured"


def _times(more: Mapping[str, Any], whose: str = "") -> str:
    """Of either kind of row: one has the figures of all rounds, the other their median."""
    found = [more[name] for name in (f"{whose}p50_ms", f"{whose}p99_ms") if name in more]
    return ", ".join(f"{_figure(one['median'] if isinstance(one, dict) else one)} ms" for one in found)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


if __name__ == "__main__":
    write()
