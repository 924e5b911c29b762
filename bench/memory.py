"""Rows of memory: flat under a sustained load, bounded while nothing is applied."""

import threading
import time

from bench import load, machine, servers
from bench.figures import Figure, Plan, Row
from bench.shapes import BATCH, COUNTER, Shape, counter_path

MOST_GROWTH = 1.2
WARM_UP = 0.2
"""Share of the run before the first sample."""
MAX_PENDING_BYTES = 8_388_608


def flat(plan: Plan) -> Row:
    what = f"memory after {plan.sustained:g} s of POSTs and GETs, against its first third"
    row = Row("memory-flat", what, "MiB", target=MOST_GROWTH)
    shape = Shape(counter_path(f"{COUNTER}:"), mode="mixed")
    samples: list[float] = []
    with servers.up(plan.folder / row.name) as server:
        ended = threading.Event()

        def sample() -> None:
            ended.wait(plan.sustained * WARM_UP)
            while not ended.wait(0.25):
                samples.append(machine.resident(server.pid))

        sampler = threading.Thread(target=sample)
        sampler.start()
        try:
            seen = load.run(server, shape, plan.sustained)
        finally:
            ended.set()
            sampler.join()
        counted = server.settled()
        if counted != server.accepted():
            raise RuntimeError(f"{server.accepted()} were accepted, {counted} were counted")
    third = max(1, len(samples) // 3)
    row.reference, row.ours = Figure.of(samples[:third]), Figure.of(samples[-third:])
    growth = row.ours.median / row.reference.median
    row.ratio = Figure(growth, growth, growth)
    row.met = growth <= MOST_GROWTH and not seen.refused
    row.more |= {"rate": seen.rate, "counted": counted, "samples": len(samples), "seconds": plan.sustained}
    row.notes.append(
        f"every other request a GET, 1,000 counters, {seen.rate:,.0f} requests/s; {counted:,} counted ="
        " accepted; the target is a most"
    )
    return row


def bounded(plan: Plan) -> Row:
    """Ingest alone takes what its bound allows, then says so: with 429 if only this client must wait, and 503 if all of
    them must. A flusher started later counts all of it.
    """
    row = Row("memory-bounded", "memory while nothing is applied, at the bound", "MiB")
    data = plan.folder / row.name
    settings = {
        "COUNTERSINK_BROKER": f"sqlite:///{data / 'countersink.db'}",
        "COUNTERSINK_MAX_PENDING_BYTES": str(MAX_PENDING_BYTES),
    }
    shape = Shape("/v1/increments", body=plan.bodies["array1000"])
    ingest = (*servers.COUNTERSINK, "ingest", "--port", "0")
    with servers.running(ingest, **settings) as server:
        start = machine.resident(server.pid)
        accepted = refused = 0
        samples = []
        until = time.monotonic() + 60
        while refused < 100 and time.monotonic() < until:
            seen = load.run_plain(server, shape, 1.0)
            accepted, refused = accepted + seen.good, refused + seen.refused
            samples.append(machine.resident(server.pid))
        status, retry_after = 202, None
        while status == 202:  # one alone may still fit where many together did not
            status, headers, _ = server.ask(shape.path, "POST", plan.bodies["array1000"].read_bytes())
            retry_after = headers.get("Retry-After")
            accepted += status == 202
        with servers.process((*servers.COUNTERSINK, "flusher"), settings):
            counted = server.settled()
        after = machine.resident(server.pid)
    row.ours = Figure.of(samples)
    row.met = refused > 0 and status in {429, 503} and retry_after is not None and counted == accepted * BATCH
    row.more |= {
        "start_mib": start, "after_mib": after, "accepted": accepted * BATCH, "counted": counted,
        "refused_requests": refused, "status": status, "retry_after": retry_after,
        "max_pending_bytes": MAX_PENDING_BYTES,
    }  # fmt: skip
    row.notes.append(
        f"ingest alone, COUNTERSINK_MAX_PENDING_BYTES={MAX_PENDING_BYTES}: {start:.0f} MiB at start, then"
        f" {status} with Retry-After {retry_after}, {after:.0f} MiB after the flusher"
    )
    row.notes.append(f"{accepted * BATCH:,} accepted, {counted:,} counted once a flusher ran; {refused:,} refused")
    return row
