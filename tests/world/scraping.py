"""Reads what /metrics shows, as Prometheus would."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]
RISE: Final = {"counter", "histogram"}


class Scrape:
    """What one answer showed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: dict[Series, float] = {}
        self.rising: set[Series] = set()
        """Those that may never fall."""
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                series = sample.name, frozenset(sample.labels.items())
                assert series not in self.values, series
                self.values[series] = sample.value
                if family.type in RISE:
                    self.rising.add(series)

    def all(self, name: str, **labels: str) -> Iterator[tuple[Mapping[str, str], float]]:
        """The series of this name that have at least these labels."""
        for (its, found), value in self.values.items():
            if its == name and found >= labels.items():
                yield dict(found), value

    def sum(self, name: str, **labels: str) -> float:
        return sum(value for _, value in self.all(name, **labels))

    def fell(self, before: "Scrape") -> list[tuple[Series, float, float]]:
        """Series that may only rise, and were higher before or are gone."""
        both = [(one, before.values[one], self.values.get(one, -1.0)) for one in before.rising]
        return [each for each in both if each[2] < each[1]]


async def scrape(url: str) -> Scrape:
    """Over a connection of its own, so that any worker answers."""
    while True:
        with contextlib.suppress(aiohttp.ClientConnectionError):  # the worker was killed meanwhile
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
                session.get(f"{url}/metrics") as response,
            ):
                assert response.status == 200
                return Scrape(await response.text())


async def metric(url: str, name: str, **labels: str) -> float:
    """The sum of the series of this name with at least these labels."""
    found = await scrape(url)
    assert name.removesuffix("_total") in found.text, "there is no such metric"
    return found.sum(name, **labels)


async def until(condition: Callable[[], Awaitable[bool] | bool]) -> None:
    """Poll. The limit only ends what hangs: a machine may pause for a minute."""
    async with asyncio.timeout(150):
        while True:
            found = condition()
            if await found if inspect.isawaitable(found) else found:
                return
            await asyncio.sleep(0.02)
