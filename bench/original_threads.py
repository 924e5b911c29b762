"""The original algorithm by the hand-written client, google-cloud-datastore, with threads."""

import os
import random
import time
from collections.abc import Callable
from typing import Any

from google.api_core import exceptions
from google.cloud import datastore

from bench.original import CONFIG, SHARD, Tally, counters, shard_name, together


def runner(host: str, project: str) -> Callable[..., Tally]:
    os.environ["DATASTORE_EMULATOR_HOST"] = host

    def run(namespace: str, number: int, concurrency: int, seconds: float) -> Tally:
        client = datastore.Client(project, namespace=namespace)
        return _all(client, number, concurrency, seconds)

    return run


def _all(client: Any, number: int, concurrency: int, seconds: float) -> Tally:
    names = counters(number)
    until = time.perf_counter() + seconds

    def one(tally: Tally) -> None:
        while (begun := time.perf_counter()) < until:
            _increment(client, random.choice(names), tally, until)
            tally.latencies.append(time.perf_counter() - begun)

    return together(one, concurrency)


def _increment(client: Any, counter: str, tally: Tally, until: float) -> None:
    key = client.key(SHARD, shard_name(counter, random.randrange(_number(client, counter, tally))))
    while True:
        try:
            with client.transaction():
                shard = client.get(key)
                tally.reads += 1
                if shard is None:
                    shard = datastore.Entity(key)
                    shard["count"] = 0
                shard["count"] += 1
                client.put(shard)
        except (exceptions.Aborted, exceptions.ServiceUnavailable):
            tally.aborted += 1
            if time.perf_counter() > until:
                return
        else:
            tally.writes += 1
            tally.committed += 1
            return


def _number(client: Any, counter: str, tally: Tally) -> int:
    tally.reads += 1
    return int(client.get(client.key(CONFIG, counter))["num_shards"])
