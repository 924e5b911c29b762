"""What several tests of `deploy` use."""

from functools import partial
from pathlib import Path

import pytest

from tests.deploy.programs import npm_ci
from tests.emulators.pubsub_fixtures import empty_pubsub, pubsub_host
from tests.once import once

__all__ = ["empty_pubsub", "node_packages", "pubsub_host"]


@pytest.fixture(scope="session")
def node_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Node finds the packages that check our files."""
    return once(tmp_path_factory, "node", partial(npm_ci, Path(__file__).parent / "node"))
