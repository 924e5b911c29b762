"""The reference of batches: parse the body and sum it per counter, for some seconds. Prints events/s, and the same by
its processor time alone.
"""

import sys
import time
from pathlib import Path

import orjson


def array(body: bytes) -> int:
    sums: dict[str, int] = {}
    items = orjson.loads(body)
    for item in items:
        name = item["counter"]
        sums[name] = sums.get(name, 0) + item["delta"]
    return len(items)


def mapping(body: bytes) -> int:
    sums: dict[str, int] = {}
    counters = orjson.loads(body)["counters"]
    for name, delta in counters.items():
        sums[name] = sums.get(name, 0) + delta
    return len(counters)


def main(path: str, seconds: str) -> None:
    body = Path(path).read_bytes()
    work = array if body.startswith(b"[") else mapping
    events = 0
    begun, used = time.perf_counter(), time.process_time()
    until = begun + float(seconds)
    while time.perf_counter() < until:
        for _ in range(20):
            events += work(body)
    print(events / (time.perf_counter() - begun), events / (time.process_time() - used))


if __name__ == "__main__":
    main(*sys.argv[1:])
