"""Does with the Python client what a scenario says. README.md has the steps."""

import json
import os
import signal
import sys
from itertools import takewhile
from typing import Any

from countersink import Client, RequestError

options = json.loads(sys.argv[1])
if isinstance(keys := options.get("key"), list):

    def renewed() -> str:
        if (key := keys.pop(0) if len(keys) > 1 else keys[0]) is None:
            raise RuntimeError("no key")
        return key

    options["key"] = renewed
counters = Client(options.pop("url"), **options)


def incr(name: str, each: int = 0, times: int = 1, **more: Any) -> dict[str, Any]:
    for _ in range(times):
        for one in [f"{name}-{number}" for number in range(each)] or [name]:
            counters.incr(one, **more)
    return {}


def get(name: str) -> dict[str, Any]:
    found = counters.get(name, max_age=0)
    return {"value": found.value, "exact": found.exact, "exists": found.exists}


def watch(until: int, names: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    values = (counter.value for counter in counters.watch(*names, **more))
    return {"values": [*takewhile(lambda value: value != until, values), until]}


def children(number: int, name: str, times: int) -> dict[str, Any]:
    pids = []
    for _ in range(number):
        if not (pid := os.fork()):
            incr(name, times=times)
            os._exit(0 if counters.flush() else 1)
        pids.append(pid)
    return {} if all(os.waitpid(pid, 0)[1] == 0 for pid in pids) else {"error": "a child failed"}


STEPS = {
    "incr": incr,
    "flush": lambda seconds: {"done": counters.flush(seconds)},
    "close": lambda seconds: {"done": counters.close(seconds)},
    "dropped": lambda: {"dropped": counters.dropped},
    "get": get,
    "get_many": lambda names: {"values": [counter.value for counter in counters.get_many(names)]},
    "list": lambda **asked: {"names": [counter.name for counter in counters.list(**asked, page=2)]},
    "top": lambda prefix, n: {"names": [counter.name for counter in counters.top(prefix, n)]},
    "watch": watch,
    "series": lambda name, period: {"total": counters.series(name, period).total},
    "children": children,
}


def terminated(*_: object) -> None:
    counters.flush()
    os._exit(0)


signal.signal(signal.SIGTERM, terminated)
for line in sys.stdin:
    step, arguments = json.loads(line)
    try:
        answer = STEPS[step](**arguments)
    except RequestError as error:
        answer = {"error": str(error), "status": error.status}
    print(json.dumps(answer), flush=True)
