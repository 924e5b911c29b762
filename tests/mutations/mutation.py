"""What a mutation is, how it is applied to a running process, and what mutations are made of."""

import importlib
import sys
from collections.abc import Callable
from dis import get_instructions
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

PACKAGES: Final = ("shared", "ingest", "flusher", "countersink_server", "countersink")
LOOPS: Final = "--timeout=60"
"""For tests that go on for ever under a mutation, and take a second without it: that they hang is how they notice."""
Make = Callable[[Any], Any]
"""Takes what is there and returns what stands there instead."""
Mutant = Callable[..., Any]


class Mutation(NamedTuple):
    """The guarantee, broken in one place."""

    name: str
    places: tuple[str, ...]
    """Dotted paths of functions, methods, classes or constants."""
    make: Make
    caught_by: tuple[str, ...]
    """Arguments to pytest. One of the tests must fail."""


class UselessMutationError(Exception):
    """The mutation names something that does not exist, or would change nothing."""


MUTATIONS: Final[list[Mutation]] = []


def mutation(name: str, places: str | tuple[str, ...], *caught_by: str) -> Callable[[Make], Make]:
    """Enter a mutation in the table."""

    def enter(make: Make) -> Make:
        MUTATIONS.append(Mutation(name, (places,) if isinstance(places, str) else places, make, caught_by))
        return make

    return enter


def replaced(name: str, places: str | tuple[str, ...], *caught_by: str) -> Callable[[Mutant], Mutant]:
    """Enter a function that stands there instead."""

    def enter(mutant: Mutant) -> Mutant:
        mutation(name, places, *caught_by)(instead(mutant))
        return mutant

    return enter


def around(name: str, places: str | tuple[str, ...], *caught_by: str) -> Callable[[Mutant], Mutant]:
    """Enter a function that stands there instead, and gets what was there as its first argument."""

    def enter(mutant: Mutant) -> Mutant:
        def make(there: Any) -> Any:
            return lambda *arguments, **named: mutant(there, *arguments, **named)

        mutation(name, places, *caught_by)(make)
        return mutant

    return enter


def apply(one: Mutation) -> None:
    """Change this process. Modules that have imported a function by name see the new one, too."""
    for place, owner, name, before, after in changes(one):
        setattr(owner, name, after)
        if not isinstance(owner, ModuleType):
            continue
        for module in [*sys.modules.values()]:
            ours = getattr(module, "__name__", "").partition(".")[0] in PACKAGES
            if ours and vars(module).get(name) is before:
                setattr(module, name, after)
        if getattr(owner, name) is not after:
            raise UselessMutationError(f"{place} can't be replaced")


def changes(one: Mutation) -> list[tuple[str, Any, str, Any, Any]]:
    """Of each place: its path, the owner, the name there, what is there now, and what the mutation makes of it."""
    found = []
    for place in one.places:
        owner, name = _resolve(place)
        before = vars(owner)[name]
        after = one.make(before)
        if after is before or _same(before, after):
            raise UselessMutationError(f"{one.name}: {place} would stay as it is")
        found.append((place, owner, name, before, after))
    return found


def _resolve(place: str) -> tuple[Any, str]:
    """The module or class that has it, and its name there. An inherited attribute is not one of the class."""
    parts = place.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:-1]:
            owner = vars(owner).get(part)
        if owner is not None and parts[-1] in vars(owner):
            return owner, parts[-1]
    raise UselessMutationError(f"{place}: there is no such thing")


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, FunctionType) and isinstance(after, FunctionType):
        same_code = before.__code__ is after.__code__
        return same_code and before.__globals__ is after.__globals__ and before.__closure__ == after.__closure__
    return type(before) is type(after) and bool(before == after)


def instead(value: Any) -> Make:
    """That, whatever was there."""
    return lambda _: value


def returning(value: Any) -> Make:
    """A function that does nothing and returns that."""
    return lambda _: lambda *_, **__: value


def returning_later(value: Any = None) -> Make:
    """A coroutine function that does nothing and returns that."""

    async def mutant(*_: Any, **__: Any) -> Any:
        return value

    return lambda _: mutant


def calling(**names: Any) -> Make:
    """The same function, for which these global names mean something else. It must use all of them."""

    def make(function: Any) -> Any:
        if unused := names.keys() - _names_in(function.__code__):
            raise UselessMutationError(f"{function.__qualname__} does not use {', '.join(sorted(unused))}")
        scope = {**function.__globals__, **names}
        mutant = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
        mutant.__kwdefaults__ = function.__kwdefaults__
        return mutant

    return make


def _names_in(code: CodeType) -> set[str]:
    """The global names that it uses; `co_names` has those of attributes, too."""
    nested = [_names_in(one) for one in code.co_consts if isinstance(one, CodeType)]
    return {str(one.argval) for one in get_instructions(code) if one.opname == "LOAD_GLOBAL"}.union(*nested)


def text(old: str, new: str) -> Make:
    """Another text, of SQL or of a script of Redis. The old part must stand in it once."""

    def make(there: Any) -> Any:
        said = there if isinstance(there, str) else there.text
        if said.count(old) != 1:
            raise UselessMutationError(f"{old!r} stands {said.count(old)} times in the text")
        changed = said.replace(old, new)
        return changed if isinstance(there, str) else type(there)(changed)

    return make


class Instead:
    """An object like another one, except for some attributes."""

    def __init__(self, of: Any, **others: Any) -> None:
        self.__dict__.update(others)
        self.__dict__["_of"] = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


def altered(one: Any, **attributes: Any) -> Any:
    """A shallow copy with other attributes; what it changes in its containers, the original sees."""
    twin = object.__new__(type(one))
    twin.__dict__.update({**one.__dict__, **attributes})
    return twin
