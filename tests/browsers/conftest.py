"""A service for each test, and a page in each browser."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shared.config.windows import rules_of
from tests.browsers.chromium import Chromium
from tests.browsers.firefox import Firefox
from tests.browsers.process import Process
from tests.browsers.site import Site, site
from tests.browsers.tab import Tab
from tests.http.service import Service, running


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running(tmp_path, windows=rules_of("page:=hour/90d,day/1y")) as it:
        yield it


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
