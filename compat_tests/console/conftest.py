"""Fixtures for tests in Chromium. Screenshots go to the folder OTTLA_SCREENSHOTS, or to a temporary one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from compat_tests.support.brokers import OttlaProcess

if TYPE_CHECKING:
    from compat_tests.console.browser import Browser


@pytest.fixture(scope="module")
def opening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Future[Browser]]:
    """Open a browser in a thread, so that the broker can start meanwhile."""
    pictures = Path(os.environ.get("OTTLA_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    with ThreadPoolExecutor(1) as pool:
        from compat_tests.console.browser import Browser

        yield pool.submit(Browser, pictures)


@pytest.fixture(scope="module")
def chromium(opening: Future[Browser]) -> Iterator[Browser]:
    browser = opening.result()
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    chromium.look()
    chromium.complaints()
    yield chromium
    assert chromium.complaints() == []


@pytest.fixture(scope="module")
def console(broker: OttlaProcess) -> str:
    found = re.search(r"console +(http://\S+)", broker.log)
    assert found is not None
    return found[1]
