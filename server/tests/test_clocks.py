"""Clocks of tests: a mock clock passes time for the whole test wherever a fixture asks for it (`conftest.py`)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock


@pytest.fixture
async def theatre(autojump_clock: MockClock) -> MockClock:
    return autojump_clock


@pytest.fixture
async def actor(theatre: MockClock) -> list[MockClock]:
    return [theatre]


async def test_the_clock_of_a_fixture_is_the_tests(actor: list[MockClock]) -> None:
    assert trio.lowlevel.current_clock() is actor[0]
    await trio.sleep(3600)  # more than a test may take


async def test_a_test_may_name_its_clock(mock_clock: MockClock) -> None:
    assert trio.lowlevel.current_clock() is mock_clock


async def test_without_a_clock_time_is_real() -> None:
    assert not isinstance(trio.lowlevel.current_clock(), MockClock)
