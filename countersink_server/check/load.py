"""Clients that count on a service and read from it, each in a thread of its own.

They send single increments with and without ids, and batches under keys. What may be sent again safely is sent again
until the answer is clear; now and then it is sent once more after that, or its answer is not waited for. Whoever kills
the service meanwhile, or the network, makes this a harder test, and no less fair a one.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final
from urllib.parse import quote

from countersink.answers import RequestError, UnavailableError
from countersink.calls import path_of_counter
from countersink.transport import Answer, Request, Transport
from countersink_server.check.ledger import Ledger

COUNTERS: Final = 8
LARGEST: Final = 5
"""The largest delta."""
IN_BATCH: Final = 3
"""Counters in a batch."""
TRY: Final = 5.0
"""Seconds of an attempt."""
HASTY: Final = 0.002
"""Seconds of an attempt whose answer nobody waits for."""
PATIENCE: Final = 60.0
"""Seconds, after the load has ended, until the answer to what is sent again must be clear."""
LONGEST_PAUSE: Final = 1.0
READERS: Final = 4
"""One client of this many reads, and one of fewer."""


class Load:
    def __init__(self, transport: Callable[[], Transport], ledger: Ledger, prefix: str) -> None:
        """Each client has a transport of its own."""
        self._transport = transport
        self._ledger = ledger
        self.names = [f"{prefix}{number}" for number in range(COUNTERS)]
        self._prefix = prefix
        self._ends = threading.Event()
        self._errors: list[Exception] = []
        self.attempts = 0
        self.failures = 0
        self.abandoned = 0
        """Attempts whose answers the load did not wait for, on purpose. They are no failures."""

    def run(self, seconds: float, clients: int, tell: Callable[[], None]) -> None:
        """`tell` is called each second."""
        readers = max(clients // READERS, 1)
        threads = [
            threading.Thread(target=self._client, args=(number < readers,), daemon=True) for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while not self._errors and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 1.0))
            tell()
        self._ends.set()
        for thread in threads:
            thread.join(PATIENCE + 2 * TRY)
        if self._errors:
            raise self._errors[0]

    def _client(self, reads: bool) -> None:
        chance = random.Random()  # noqa: S311 (no secret; ids and keys of one check must not come again in another)
        with closing(self._transport()) as transport:
            try:
                while not self._ends.is_set():
                    (self._read if reads else self._write)(transport, chance)
            except Exception as error:  # the service refuses, or a bug: the check ends, and says so
                self._errors.append(error)

    def _write(self, transport: Transport, chance: random.Random) -> None:
        name, delta = chance.choice(self.names), chance.randint(1, LARGEST)
        kind = chance.random()
        if kind < 0.2:  # noqa: PLR2004 (of all)
            self._add_once(name, delta)
        elif kind < 0.6:  # noqa: PLR2004
            body = json.dumps({"delta": delta, "id": f"{chance.getrandbits(128):032x}"}).encode()
            others = chance.sample(self.names, 2) if chance.random() < 0.1 else [name]  # noqa: PLR2004
            for one in others:  # an id counts once in each counter
                self._add(transport, chance, {one: delta}, Request("POST", path_of_counter(one), body))
        else:
            deltas = {name: chance.randint(1, LARGEST) for name in chance.sample(self.names, IN_BATCH)}
            key = {"Idempotency-Key": f"{chance.getrandbits(128):032x}"}
            body = json.dumps({"counters": deltas}).encode()
            self._add(transport, chance, deltas, Request("POST", "/v1/increments", body, key))

    def _add_once(self, name: str, delta: int) -> None:
        """Without an id it must arrive at most once, so it gets a connection of its own: a kept one may try twice."""
        add = self._ledger.sends({name: delta})
        with closing(self._transport()) as transport:
            try:
                self._attempt(transport, Request("POST", f"{path_of_counter(name)}?by={delta}"), TRY)
            except RequestError as error:
                (self._ledger.unclear if error.maybe_accepted else self._ledger.refused)(add)
                self._check(error)
            else:
                self._ledger.accepted(add)

    def _add(self, transport: Transport, chance: random.Random, deltas: Mapping[str, int], request: Request) -> None:
        add = self._ledger.sends(deltas)
        unclear, pause, give_up = False, 0.05, 0.0
        while True:
            try:
                self._attempt(transport, request, HASTY if chance.random() < 0.1 else TRY)  # noqa: PLR2004
                break
            except RequestError as error:
                unclear |= error.maybe_accepted
                if not isinstance(error, UnavailableError):
                    (self._ledger.unclear if unclear else self._ledger.refused)(add)
                    self._check(error)
                    return
            if self._ends.is_set():
                give_up = give_up or time.monotonic() + PATIENCE
                if time.monotonic() > give_up:
                    (self._ledger.unclear if unclear else self._ledger.refused)(add)
                    return
            time.sleep(pause * chance.random())
            pause = min(2 * pause, LONGEST_PAUSE)
        self._ledger.accepted(add)
        if chance.random() < 0.1:  # noqa: PLR2004 (a second use, which must not count)
            try:
                self._attempt(transport, request, TRY)
            except RequestError as error:
                self._check(error)

    def _read(self, transport: Transport, chance: random.Random) -> None:
        kind = chance.random()
        names = [chance.choice(self.names)] if kind < 0.6 else self.names  # noqa: PLR2004
        path = (
            path_of_counter(names[0])
            if len(names) == 1
            else f"/v1/counters?prefix={quote(self._prefix)}&limit=1000"
            if kind < 0.8  # noqa: PLR2004
            else "/v1/counters?" + "&".join(f"name={quote(name)}" for name in names)
        )
        look = self._ledger.looks(names)
        try:
            answer = self._attempt(transport, Request("GET", path), TRY).object
        except RequestError as error:
            for name in names:
                self._ledger.saw_nothing(look, name)
            self._check(error)
            time.sleep(0.05)
            return
        found = {one["name"]: one for one in answer.get("counters", [answer])}
        whole = answer.get("exact", True)
        for name in names:  # a list leaves out counters that do not exist: they are 0
            one = found.get(name, {"value": 0, "exact": whole})
            self._ledger.saw(look, name, one["value"], exact=one["exact"])

    def _attempt(self, transport: Transport, request: Request, seconds: float) -> Answer:
        self.attempts += 1
        try:
            return transport.attempt(request, seconds)
        except RequestError as error:
            if seconds == HASTY and isinstance(error.__cause__, TimeoutError):
                self.abandoned += 1
            else:
                self.failures += 1
            raise

    def _check(self, error: RequestError) -> None:
        """Raise an error that ends the check: the service refuses a good request, because of a key or a limit."""
        if not isinstance(error, UnavailableError):
            raise error
