"""Stores with one mistake each about marks."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shared.model.buckets import Instant
from shared.model.errors import ChangedError
from shared.model.words import Commit
from tests.world.memory.store import MemoryStore


class ChecksNoMark(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        marks = [mark._replace(seen=self._marks.get(mark[:2], 0)) for mark in commit.marks]
        return await super().apply(replace(commit, marks=tuple(marks)))


class ChecksWhetherThereIsOne(MemoryStore):
    """As an insert would."""

    async def apply(self, commit: Commit) -> Instant:
        marks = [
            mark._replace(seen=self._marks.get(mark[:2], 0)) if bool(mark.seen) == (mark[:2] in self._marks) else mark
            for mark in commit.marks
        ]
        return await super().apply(replace(commit, marks=tuple(marks)))


class ChecksTheFirstMark(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        first, rest = commit.marks[:1], commit.marks[1:]
        rest = tuple(mark._replace(seen=self._marks.get(mark[:2], 0)) for mark in rest)
        return await super().apply(replace(commit, marks=(*first, *rest)))


class ChecksBeforeItWaits(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        if any(self._marks.get(mark[:2], 0) != mark.seen for mark in commit.marks):
            raise ChangedError("as seen before")
        await asyncio.sleep(0)
        marks = [mark._replace(seen=self._marks.get(mark[:2], 0)) for mark in commit.marks]
        return await super().apply(replace(commit, marks=tuple(marks)))


class LeavesMarks(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(replace(commit, marks=()))


class MovesMarksFirst(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        self._marks = self._marks | {mark[:2]: mark.total for mark in commit.marks}
        marks = [mark._replace(seen=mark.total) for mark in commit.marks]
        return await super().apply(replace(commit, marks=tuple(marks)))


class AddsToMarks(MemoryStore):
    """As if the number were a difference."""

    async def apply(self, commit: Commit) -> Instant:
        marks = [mark._replace(total=mark.total + self._marks.get(mark[:2], 0)) for mark in commit.marks]
        return await super().apply(replace(commit, marks=tuple(marks)))


class KeepsTheGreatestMark(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        marks = [mark._replace(total=max(mark.total, self._marks.get(mark[:2], 0))) for mark in commit.marks]
        return await super().apply(replace(commit, marks=tuple(marks)))


class AddsThoughItChanged(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        try:
            return await super().apply(commit)
        except ChangedError:
            await super().apply(replace(commit, receipts=(), marks=(), guard=None))
            raise


class OneMarkForAllSources(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        return await super().apply(replace(commit, marks=tuple(mark._replace(source="") for mark in commit.marks)))

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        return await super().marks("", counters)


class JoinsSourceAndCounter(MemoryStore):
    """So that ('a', 'bc') and ('ab', 'c') are one."""

    async def apply(self, commit: Commit) -> Instant:
        marks = [mark._replace(source="", counter=mark.source + mark.counter) for mark in commit.marks]
        return await super().apply(replace(commit, marks=tuple(marks)))

    async def marks(self, source: str, counters: Sequence[str]) -> Mapping[str, int]:
        found = await super().marks("", [source + counter for counter in counters])
        return {name.removeprefix(source): total for name, total in found.items()}


class RemovesTheMark(MemoryStore):
    async def remove(self, counter: str) -> bool:
        removed = await super().remove(counter)
        self._marks = {mark: total for mark, total in self._marks.items() if mark[1] != counter or not removed}
        return removed


class ForgetsMarksWhenItIsSet(MemoryStore):
    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        if commit.guard is not None:
            self._marks = {mark: total for mark, total in self._marks.items() if mark[1] != commit.guard[0]}
        return time


class MarksDisturbSets(MemoryStore):
    """As a mark would that were a part of the guard."""

    async def apply(self, commit: Commit) -> Instant:
        time = await super().apply(commit)
        for mark in commit.marks:
            if mark.counter in self._guards:
                guard = self._guards[mark.counter]._replace(version=time)
                self._guards = self._guards | {mark.counter: guard}
        return time
