"""A signal handler interrupts `incr` or `flush` between any two bytecodes: it raises, or it counts and flushes."""

import contextlib
import gc
import itertools
import json
import logging
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from types import FrameType
from typing import Any, Final

import pytest

from countersink import Client
from countersink.transport import Answer, Request, Transport

LONG: Final = 20.0
CROWDED: Final = 100


class Handled(BaseException):
    """What the handler raises. A program may also raise a subclass of Exception."""


class HandledError(RuntimeError):
    """Such as TimeoutError, or SoftTimeLimitExceeded of Celery."""


class Service(Transport):
    """Accepts everything, each key and each id once."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", {}, None)
        self.requests: dict[str, Any] = {}
        self.open = True

    def attempt(self, request: Request, seconds: float) -> Answer:
        end = time.monotonic() + seconds
        while not self.open and time.monotonic() < end:
            time.sleep(0.001)
        body = json.loads(request.body or b"")
        if key := request.headers.get("Idempotency-Key"):
            self.requests[key] = body["counters"]
        else:
            self.requests[body["id"]] = {request.path: body["delta"]}
        return Answer(b'{"accepted": 1, "receipt": "r"}', {})

    def opened(self) -> None:
        self.open = True

    @property
    def counted(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for counters in list(self.requests.values()):
            found.update(counters)
        return found


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    """Libraries of the tests watch the collector, and what is raised in their watchers goes nowhere."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[Client, Service]]:
    """Makes a client and the service that it counts on. A hundred events are a crowd."""
    for module in ("sender", "tally"):
        monkeypatch.setattr(f"countersink.{module}.CROWDED", CROWDED)

    def make(interval: float = 0.0, most: int = 100) -> tuple[Client, Service]:
        it = Service()
        monkeypatch.setattr("countersink.client._transport", lambda *_: it)
        return Client("http://127.0.0.1:1", interval=interval, most=most), it

    return make


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@contextlib.contextmanager
def interrupted(step: int, handler: Callable[[], None]) -> Iterator[None]:
    """Calls the handler before the bytecode of this number, in this thread."""
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == step:
                handler()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextlib.contextmanager
def alarms(handle: Callable[..., None]) -> Iterator[None]:
    """Each SIGALRM calls this. None comes any more at the end."""
    before = signal.signal(signal.SIGALRM, handle)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fresh(client: Client, service: Service) -> int:
    """Nothing was counted yet: no thread has started."""
    del client, service
    return 0


def asleep(client: Client, service: Service) -> int:
    client.incr("a")
    assert client.flush(LONG)
    until(lambda: client._sender.mark == 0)
    return 1


def at_work(client: Client, service: Service) -> int:
    """The sender waits for an answer."""
    service.open = False
    client.incr("a")
    until(lambda: client._sender.mark > 0)
    threading.Timer(0.002, service.opened).start()
    return 1


def crowded(client: Client, service: Service) -> int:
    """The sender waits for an answer, and there is more than it will have time for."""
    service.open = False
    client.incr("a")
    until(lambda: client._sender.mark > 0 and not client._tally.events)
    with client._tally._folding:
        for _ in range(CROWDED):
            client.incr("a")
    threading.Timer(0.002, service.opened).start()
    return 1 + CROWDED


STATES: Final = [fresh, asleep, at_work, crowded]


@pytest.mark.parametrize("error", [Handled, HandledError])
@pytest.mark.parametrize(
    ("what", "state"), [*product(("incr", "flush"), STATES), ("incr with a delta", fresh)]
)  # the delta is looked at before the state is
def test_an_exception_at_any_step_loses_nothing(
    service: Any, what: str, state: Callable[[Client, Service], int], error: type[BaseException]
) -> None:
    """The increment counts once or not at all, and so do all others; what the handler raises comes through."""

    def raise_it() -> None:
        raise error

    for step in itertools.count(1):
        client, there = service()
        before = state(client, there)
        try:
            with interrupted(step, raise_it):
                if what == "flush":
                    client.flush(LONG)
                else:
                    client.incr("a", **({"by": 2} if "delta" in what else {}))
        except error:
            through = True
        else:
            through = False
        finally:
            there.opened()
        if what != "flush":  # it is sent though nobody counts any more
            until(lambda: client._tally.held() == len(client._tally.events) == 0)  # noqa: B023 (called at once)
        client.incr("b")
        until(lambda: there.counted["b"] == 1)  # noqa: B023 (called at once)
        assert client.flush(LONG)
        for _ in range(CROWDED + 10 if state is crowded else 0):
            client.incr("c")
        assert client.close(LONG)
        more = there.counted["a"] - before
        assert client.dropped == 0
        assert there.counted["c"] in {0, CROWDED + 10}
        assert more in {0, 2 if "delta" in what else 1}, step
        if not through:
            assert more or what == "flush"
            if step == 1:
                continue  # Python 3.12 traces the bytecodes of a function only from its second call on
            assert step > 5
            break


def test_an_exception_while_a_closed_client_refuses_leaves_it_in_order(service: Any) -> None:
    def raise_it() -> None:
        raise Handled

    for step in itertools.count(1):
        client, there = service()
        assert client.close(LONG)
        through = True
        with contextlib.suppress(Handled), interrupted(step, raise_it):
            client.incr("a")
            through = False
        assert client.dropped in {0, 1} if through else client.dropped == 1
        before = client.dropped
        client.incr("b")
        assert client.dropped == before + 1
        assert not client._tally.events
        assert not there.counted
        if not through:
            break


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("what", ["incr", "incr, and the handler only counts", "flush", "close"])
def test_a_handler_may_count_and_flush_at_any_step(
    service: Any, what: str, state: Callable[[Client, Service], int]
) -> None:
    for step in itertools.count(1):
        client, there = service()
        before = state(client, there)
        told: list[bool] = []

        def handle() -> None:
            client.incr("handled")  # noqa: B023 (called at once)
            told.append("only counts" in what or client.flush(LONG))  # noqa: B023 (called at once)

        with interrupted(step, handle):
            if what.startswith("incr"):
                client.incr("a")
            elif what == "flush":
                client.flush(LONG)
            else:
                client.close(LONG)
        assert client.flush(LONG)
        assert client.close(LONG)
        if not told:
            assert step > 5
            break
        assert told == [True]
        assert there.counted["a"] == before + what.startswith("incr")
        assert there.counted["handled"] + client.dropped == 1
        assert not client.dropped or what == "close"


def test_alarms_that_raise_while_the_program_counts_lose_nothing(service: Any) -> None:
    """As time-outs by SIGALRM do: at any moment, again and again."""
    client, there = service(0.001)
    begun = ended = raised = 0

    def handle(*_: object) -> None:
        raise HandledError

    until_then = time.monotonic() + LONG
    with alarms(handle):
        while raised < 300:
            assert time.monotonic() < until_then
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                while True:
                    begun += 1
                    client.incr("a")
                    ended += 1
                    if ended % 50 == 0:
                        client.flush(LONG)
            except HandledError:
                raised += 1
    assert client.flush(LONG)
    assert client.dropped == 0
    assert ended <= there.counted["a"] <= begun
    assert client.close(LONG)


@pytest.mark.parametrize("other", [False, True])
def test_a_signal_handler_that_flushes_sends_everything(service: Any, other: bool) -> None:
    """While its thread counts as fast as it can; and, perhaps, the service keeps the sender waiting."""
    client, there = service(0.001)
    counted = 0
    told: list[tuple[int, bool, int]] = []

    def handle(*_: object) -> None:
        now = counted
        told.append((now, client.flush(LONG), there.counted["a"]))

    with alarms(handle):
        for _ in range(24):
            if other:
                there.open = False
                threading.Timer(0.005, there.opened).start()
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            number = len(told)
            while len(told) == number:
                client.incr("a")
                counted += 1
    assert client.flush(LONG)
    assert there.counted["a"] == counted
    assert client.dropped == 0
    for now, settled, sent in told:
        assert settled
        assert sent >= now
    assert client.close(LONG)


def test_a_flush_in_a_handler_does_not_wait_for_a_log_that_its_thread_is_writing(
    service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The signal comes while the main thread holds the lock of a log's handler, and the sender has something to say."""
    client, there = service()
    with caplog.handler.lock:  # type: ignore[union-attr] # there is one
        client.incr("")
        client.incr("a")
        assert client.flush(LONG)
    assert there.counted == {"a": 1}
    until(lambda: "dropped 1" in caplog.text)
    assert client.close(LONG)


def test_a_log_whose_handler_raises_stops_nothing(service: Any) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise HandledError(record.getMessage())

    handler = Raising()
    logging.getLogger("countersink").addHandler(handler)
    try:
        client, there = service()
        for _ in range(2):
            client.incr("")
            client.incr("a")
            assert client.flush(LONG)
        assert client.close(LONG)
    finally:
        logging.getLogger("countersink").removeHandler(handler)
    assert there.counted == {"a": 2}
    assert client.dropped == 2
