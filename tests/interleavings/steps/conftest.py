"""Worlds: at the end of a test everything in them arrives and is applied, and what they hold is judged."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interleavings.steps.world import World


@pytest.fixture
def new_world() -> Iterator[Callable[..., World]]:
    """Makes one."""
    worlds: list[World] = []

    def make(**how: Any) -> World:
        worlds.append(World(**how))
        return worlds[-1]

    yield make
    for world in worlds:
        world.finish()


@pytest.fixture(params=[False, True], ids=["kept", "written"])
def world(request: pytest.FixtureRequest, new_world: Callable[..., World]) -> World:
    return new_world(written=request.param)


@pytest.fixture
def kept(new_world: Callable[..., World]) -> World:
    """The broker's messages are the overlay."""
    return new_world()


@pytest.fixture
def written(new_world: Callable[..., World]) -> World:
    """Ingests write the overlay."""
    return new_world(written=True)
