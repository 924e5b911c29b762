"""Sources in memory."""

from collections.abc import AsyncGenerator, Mapping

from shared.model.moving import Foreign


class FakeSource:
    """As the published code would answer; `counts` may change at any time."""

    name = "there"

    def __init__(self, counts: Mapping[str, int | Foreign | str] | None = None) -> None:
        self.counts: dict[str, int | Foreign | str] = dict(counts or {})

    async def counters(self, prefix: str) -> AsyncGenerator[Foreign | str, None]:
        for name in sorted(self.counts):
            if name.startswith(prefix):
                one = self.counts[name]
                yield Foreign(name, one) if isinstance(one, int) else one

    async def counter(self, name: str) -> Foreign | None:
        one = self.counts.get(name)
        return Foreign(name, one) if isinstance(one, int) else None
