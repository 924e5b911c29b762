"""What several tests of `deploy` use."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.programs import run
from tests.emulators.pubsub_fixtures import empty_pubsub, pubsub_host
from tests.needs import program

__all__ = ["empty_pubsub", "node_packages", "pubsub_host"]

_NODE: Final = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def node_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Node finds the packages that check our files."""
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_NODE / name, folder)
    run(program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
    return folder
