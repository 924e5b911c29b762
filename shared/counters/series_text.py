"""How a series is written as JSON: in an answer, and as a line of an export."""

import orjson

from shared.counters.series import Series
from shared.model.instants import written_at, written_second


def written(series: Series, *, total: bool = False) -> bytes:
    """`total`: also the counter's total, as `value`. By hand: counts may be larger than the integers of orjson."""
    counter, by, begin, end, _ = series.range
    points = [b'{"from":"%b","count":%d}' % (written_second(when), count) for when, count in series.points.items()]
    return b'{"name":%b,%b"by":"%b","from":"%b","to":"%b","points":[%b],"total":%d,"exact":%b,"as_of":"%b"}' % (
        orjson.dumps(counter),
        b'"value":%d,' % series.value if total else b"",
        by.encode(),
        written_second(begin),
        written_second(end),
        b",".join(points),
        sum(series.points.values()),
        b"true" if series.exact else b"false",
        written_at(series.as_of).encode(),
    )
