"""Rows of the Python client: what a call of `incr` costs, and how long the longest takes while the service is away."""

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import orjson

from bench import servers
from bench.figures import Figure, Plan, Row

MOST_RATIO: Final = 5.0
LEAST_RATE: Final = 1_000_000
CALLS: Final = 1_000_000
NAMES: Final = 100

PROGRAM: Final = f"""
import json, sys
from time import perf_counter
from countersink import Client

url, calls = sys.argv[1], {CALLS}
names = [f"name:{{number}}" for number in range({NAMES})]
counters = Client(url)
incr = counters.incr

def bare():
    sums = {{}}
    began = perf_counter()
    for _ in range(calls // {NAMES}):
        for name in names:
            sums[name] = sums.get(name, 0) + 1
    return perf_counter() - began

def ours():
    began = perf_counter()
    for _ in range(calls // {NAMES}):
        for name in names:
            incr(name)
    return perf_counter() - began

def slow():
    found = []
    for _ in range(calls // {NAMES}):
        for name in names:
            began = perf_counter()
            incr(name)
            took = perf_counter() - began
            if took > 0.001:
                found.append(took)
    return found

def nothing():
    found = []
    for _ in range(calls // {NAMES}):
        for name in names:
            began = perf_counter()
            took = perf_counter() - began
            if took > 0.001:
                found.append(took)
    return found

if sys.argv[2] == "speed":
    ours()
    print(json.dumps([[bare(), ours()] for _ in range(int(sys.argv[3]))]))
    assert counters.flush(60) and not counters.dropped
else:
    print(json.dumps([[slow(), nothing()] for _ in range(int(sys.argv[3]))]))
    counters.close(0)
"""


def incr(plan: Plan) -> Row:
    """The events reach the service meanwhile."""
    row = Row("client-incr", "incr() of the Python client, against an update of a dict", "calls/s", target=MOST_RATIO)
    with servers.up(plan.folder / row.name) as server:
        rounds = _run(server.url, "speed", plan.rounds)
        counted = server.settled()
    row.ours = Figure.of([CALLS / ours for _, ours in rounds])
    row.reference = Figure.of([CALLS / bare for bare, _ in rounds])
    row.ratio = Figure.of([ours / bare for bare, ours in rounds])
    calls = CALLS * (len(rounds) + 1)
    row.met = row.ratio.median <= MOST_RATIO and row.ours.median >= LEAST_RATE and counted == calls
    row.more |= {"calls": calls, "counted": counted}
    row.notes.append(
        f"one thread, {NAMES} names; the ratio is of times, its target a most; {counted:,} of {calls:,} counted"
    )
    return row


def away(plan: Plan) -> Row:
    """While nobody answers, none of a million calls takes long. The machine itself is measured, too."""
    row = Row("client-away", "calls of incr() of more than 1 ms, of 1,000,000, with the service away")
    rounds = _run("http://127.0.0.1:9", "away", plan.rounds)
    row.ours = Figure.of([len(slow) for slow, _ in rounds])
    row.reference = Figure.of([len(nothing) for _, nothing in rounds])
    longest = max([0.0, *(took for slow, _ in rounds for took in slow)])
    row.more |= {"longest_ms": 1_000 * longest}
    row.notes.append(f"the longest call took {1_000 * longest:.1f} ms; the reference does nothing")
    return row


def _run(url: str, what: str, rounds: int) -> Any:
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", PROGRAM, url, what, str(rounds)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return orjson.loads(done.stdout)
