"""A service for each test, and a page in each browser."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from shared.config.lists import rules_of
from shared.runtime import metrics
from tests.browsers.chromium import Chromium
from tests.browsers.firefox import Firefox
from tests.browsers.process import Process
from tests.browsers.site import Site, site
from tests.browsers.tab import Tab
from tests.deploy.programs import npm_ci
from tests.http.service import Service, running
from tests.once import once

HERE: Final = Path(__file__).parent


@pytest.fixture
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    packages = once(tmp_path_factory, "axe", partial(npm_ci, HERE))
    return (packages / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, windows=rules_of("page:=hour/90d,day/1y")) as it:
        yield it


@pytest.fixture
def balanced(service: Service) -> Iterator[None]:
    """The service's metrics have what its file says, as those of a process do."""
    balance = service.parts.balance
    assert balance is not None
    metrics.DRIFT.set_function(lambda: balance().drift)
    metrics.PENDING.set_function(lambda: balance().pending)
    yield
    metrics.DRIFT.clear()
    metrics.PENDING.clear()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    process = Chromium(tmp_path_factory.mktemp("chromium"))
    yield process
    process.close()


@pytest.fixture(scope="session")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    process = Firefox(tmp_path_factory.mktemp("firefox"))
    yield process
    process.close()


@pytest.fixture(params=["chromium", "firefox"])
def browser(request: pytest.FixtureRequest) -> Process:
    found: Process = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def page(browser: Process) -> AsyncIterator[Tab]:
    """A page that may do something wrong."""
    async with browser.tab() as it:
        yield it


@pytest.fixture
async def tab(page: Tab) -> AsyncIterator[Tab]:
    """A page that must do nothing wrong."""
    yield page
    assert page.flaws == []


@pytest.fixture
async def home() -> AsyncIterator[Site]:
    async with site() as found:
        yield found
