"""A broker of each make, side by side."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka4
from compat_tests.support.brokers import BrokerProcess, OttlaProcess


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    """Ottla, then Apache Kafka."""
    running: list[BrokerProcess] = []
    for kind in (OttlaProcess, ApacheKafka4):
        directory: Path = tmp_path_factory.mktemp(kind.__name__)
        running.append(kind(directory, {}).start())
    yield running
    for broker in running:
        broker.stop()


@pytest.fixture(scope="session")
def bootstrap(brokers: list[BrokerProcess]) -> str:
    """Of Ottla."""
    return brokers[0].bootstrap
