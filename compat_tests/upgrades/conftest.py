"""The release before this one, wherever git has it."""

import pytest
from compat_tests.conftest import CACHE
from compat_tests.upgrades.before import NotHere, Release, release_before


@pytest.fixture(scope="session")
def before() -> Release:
    """A test that asks for it is skipped where git does not have it, in CI as well (`may_be_skipped`)."""
    try:
        return release_before(CACHE)
    except NotHere as reason:
        pytest.skip(str(reason))
