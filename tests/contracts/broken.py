"""Adapters that are right but for one method. The tables of faults are made with these functions."""

import inspect
from collections.abc import Callable
from typing import Any

Fault = Callable[[type], type[Any]]
"""Makes a broken adapter of a right one."""


def calls(**methods: Callable[..., Any]) -> Fault:
    """Other methods. Each is called with the adapter, its right method, and all arguments."""

    def broken(base: type) -> type[Any]:
        adapter: type[Any] = type(base.__name__, (base,), {})
        for name, method in methods.items():
            setattr(adapter, name, _method(adapter, name, method))
        return adapter

    return broken


def _method(adapter: type, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def called(self: object, *args: object, **options: object) -> Any:
        right = getattr(super(adapter, self), name)
        given = inspect.signature(right).bind(*args, **options)
        given.apply_defaults()
        return method(self, right, *given.args, **given.kwargs)

    return called


def gives(method: str, change: Callable[..., Any]) -> Fault:
    """The method returns something else: `change` is called with the adapter, the right result, and all arguments."""

    async def changed(adapter: object, right: Callable[..., Any], *args: object, **options: object) -> Any:
        return change(adapter, await right(*args, **options), *args, **options)

    return calls(**{method: changed})


def leaves(method: str, state: str) -> Fault:
    """The method leaves a part of the state as it was."""

    async def left(adapter: object, right: Callable[..., Any], *args: object, **options: object) -> Any:
        was = getattr(adapter, state)
        result = await right(*args, **options)
        setattr(adapter, state, was)
        return result

    return calls(**{method: left})


def before(method: str, state: str, value: Callable[..., Any]) -> Fault:
    """A part of the state is changed before the method: `value` is called with the adapter and all arguments."""

    async def changed(adapter: object, right: Callable[..., Any], *args: object, **options: object) -> Any:
        setattr(adapter, state, value(adapter, *args, **options))
        return await right(*args, **options)

    return calls(**{method: changed})


def after(method: str, state: str, value: Callable[..., Any]) -> Fault:
    """A part of the state is changed after the method: `value` is called with the adapter and all arguments."""

    async def changed(adapter: object, right: Callable[..., Any], *args: object, **options: object) -> Any:
        result = await right(*args, **options)
        setattr(adapter, state, value(adapter, *args, **options))
        return result

    return calls(**{method: changed})


async def nothing(adapter: object, right: Callable[..., Any], *args: object, **options: object) -> None:
    """A method that does nothing."""
