"""The pytest plugin: fixtures `kafka` (one broker) and `kafka_cluster` (three), each a fresh world for every test.

    @pytest.mark.ottla_settings({"auto.create.topics.enable": False})    settings of the brokers of a test, a class or a module
    ottla_settings = auto.create.topics.enable=false                     the same for all tests, in pytest's ini file

The brokers of a test session live in one thread of pytest's process; each process of pytest-xdist has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing import Kafka

SETTINGS = "ottla_settings"
CLUSTER_BROKERS = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare what pytest's ini file may say."""
    parser.addini(SETTINGS, "settings of the brokers of `kafka` and `kafka_cluster`, name=value", "linelist", [])


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers."""
    config.addinivalue_line("markers", f"{SETTINGS}(settings): settings of the test's brokers, by Kafka's names")


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A broker in this process, with nothing in it; see `ottla.testing.Kafka`."""
    yield from _world(request, 1)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A cluster of three brokers in this process, with nothing in it; see `ottla.testing.Kafka`."""
    yield from _world(request, CLUSTER_BROKERS)


def _world(request: pytest.FixtureRequest, brokers: int) -> Iterator[Kafka]:
    from ottla.testing import Kafka  # here, because most sessions of pytest use no broker

    with Kafka(brokers, _settings(request)) as kafka:
        yield kafka


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for line in request.config.getini(SETTINGS):
        name, found, value = line.partition("=")
        if not found:
            raise pytest.UsageError(f"{SETTINGS}: {line!r} is not name=value")
        settings[name.strip()] = value.strip()
    # The nearest mark comes first, and counts most.
    for mark in reversed(list(request.node.iter_markers(SETTINGS))):
        if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], Mapping):
            raise pytest.UsageError(
                f'@pytest.mark.{SETTINGS} takes one dictionary, such as {{"log.retention.ms": 1000}}'
            )
        settings |= mark.args[0]
    return settings
