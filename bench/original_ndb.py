"""The original algorithm by the library it was published for, google-cloud-ndb, with threads.

There is no memcache: what ndb caches in a context is for one increment, as it was for one request.
"""

import os
import random
import time
from collections.abc import Callable

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import ndb
from google.cloud.ndb.exceptions import Error as NdbError

from bench.original import NUM_SHARDS, Tally, in_threads, shard_name


class GeneralCounterShardConfig(ndb.Model):  # type: ignore[misc] # not typed
    num_shards = ndb.IntegerProperty(default=NUM_SHARDS)


class GeneralCounterShard(ndb.Model):  # type: ignore[misc] # not typed
    count = ndb.IntegerProperty(default=0)


def runner(host: str, project: str) -> Callable[..., Tally]:
    os.environ["DATASTORE_EMULATOR_HOST"] = host

    def run(namespace: str, number: int, concurrency: int, seconds: float) -> Tally:
        client = ndb.Client(project, namespace=namespace, credentials=AnonymousCredentials())

        def increment(counter: str, tally: Tally, until: float) -> None:
            with client.context():
                _increment(counter, tally, until)

        try:
            return in_threads(number, concurrency, seconds, increment)
        finally:
            client.stub.close()

    return run


def _increment(counter: str, tally: Tally, until: float) -> None:
    config = GeneralCounterShardConfig.get_or_insert(counter)
    tally.reads += 1
    name = shard_name(counter, random.randrange(config.num_shards))

    def add() -> None:
        shard = GeneralCounterShard.get_by_id(name) or GeneralCounterShard(id=name)
        tally.reads += 1
        shard.count += 1
        shard.put()

    while True:
        try:
            ndb.transaction(add, retries=0)
        except (exceptions.Aborted, exceptions.ServiceUnavailable, NdbError):
            tally.aborted += 1
            if time.perf_counter() > until:
                return
        else:
            tally.writes += 1
            tally.committed += 1
            return
