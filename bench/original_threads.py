"""The original algorithm by the hand-written client, google-cloud-datastore, with threads."""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from google.api_core import exceptions
from google.cloud import datastore

from bench.original import CONFIG, SHARD, Tally, in_threads, shard_name


def runner(host: str, project: str) -> Callable[..., Tally]:
    os.environ["DATASTORE_EMULATOR_HOST"] = host

    def run(namespace: str, number: int, concurrency: int, seconds: float) -> Tally:
        client = datastore.Client(project, namespace=namespace)
        return in_threads(number, concurrency, seconds, partial(_increment, client))

    return run


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
