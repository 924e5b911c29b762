"""The figures of a plan that were measured, and those that are assumed. The others are constants of the code."""

from typing import Final

SINGLES: Final = 20_000
"""Increments per second of one ingest, each in a request of its own. Measured: `post-ids`, the slower of `post` and
`post-ids` in bench/results.json, on one core.
"""
BATCHED: Final = 1_000_000
"""Increments per second of one ingest, in batches of 1,000. Measured: less than `array1000-apart`, without keys."""
COMMITTED: Final = 5_000
"""Entities per second that one flusher writes. Assumed: one full commit a second. Nobody has measured it on Google
Cloud; on the emulators, the row `cloud-operations-ids` wrote a fifth of it.
"""
PUBLISH: Final = 0.015
"""Seconds of one publish. Assumed: Pub/Sub in the same region. On its emulator it takes about 4 ms, and an ingest that
gets 100 increments per second then sends more envelopes.
"""
ORIGINAL_READS: Final = 2
ORIGINAL_WRITES: Final = 1
"""Of one transaction of Google's example: its config, its shard, and the shard again. Measured: the reference of
`cloud-operations`, 3,000,000 operations per million increments, without transactions that collided.
"""
ORIGINAL_SHARD_WRITES: Final = 1.0
"""Writes per second that one shard takes, as Google's documentation says."""
