"""A row of overlay entries that grows without being copied: a counter may have many, and be read often. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from shared.model.words import Entry


class EntryLog(Sequence["Entry"]):
    """Entries that never change. Logs that grew out of each other share a list, and each uses a part of it."""

    __slots__ = ("number", "shared", "unconfirmed")

    def __init__(self, confirmed: "Iterable[Entry]" = (), unconfirmed: "Iterable[Entry]" = ()) -> None:
        self.shared = [*confirmed]
        self.number = len(self.shared)
        self.unconfirmed = tuple(unconfirmed)

    def grown(self, confirmed: "Iterable[Entry]", unconfirmed: "Iterable[Entry]") -> "EntryLog":
        """A log with these confirmed entries behind its own, and these unconfirmed ones in place of its own.

        Each that is confirmed must have a key that no other has, and no ids; and it must not be late.
        """
        new = EntryLog.__new__(EntryLog)
        new.shared = self.shared if len(self.shared) == self.number else self.shared[: self.number]
        new.shared.extend(confirmed)
        new.number = len(new.shared)
        new.unconfirmed = tuple(unconfirmed)
        return new

    def since(self, earlier: "Sequence[Entry]") -> "Sequence[Entry] | None":
        """The confirmed entries that came behind those of `earlier`. None if it did not grow out of that."""
        if not isinstance(earlier, EntryLog) or earlier.shared is not self.shared or earlier.number > self.number:
            return None
        return self.shared[earlier.number : self.number]

    def __len__(self) -> int:
        return self.number + len(self.unconfirmed)

    def __iter__(self) -> "Iterator[Entry]":
        return chain(islice(self.shared, self.number), self.unconfirmed)

    @overload
    def __getitem__(self, index: int) -> "Entry": ...
    @overload
    def __getitem__(self, index: slice) -> "Sequence[Entry]": ...
    def __getitem__(self, index: int | slice) -> "Entry | Sequence[Entry]":
        return (*self,)[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and (*self,) == (*other,)

    __hash__ = None  # type: ignore[assignment] # no log is a key
