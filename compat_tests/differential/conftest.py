"""Brokers to talk to, one for each set of settings that scenarios ask for."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka3, ApacheKafka4
from compat_tests.support.brokers import BrokerProcess, OttlaProcess

# One flag: ask Apache Kafka anew and keep what it says (`make golden`).
RECORDS = os.environ.get("OTTLA_RECORD_GOLDEN") == "1"
KINDS: dict[str, type[BrokerProcess]] = {"ottla": OttlaProcess, "kafka_4": ApacheKafka4, "kafka_3": ApacheKafka3}
AddressOf = Callable[[str, dict[str, str]], tuple[str, int]]


@pytest.fixture(scope="session")
def address_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AddressOf]:
    """The address of a broker of that kind with these settings, started when it is first asked for."""
    running: dict[tuple[str, tuple[tuple[str, str], ...]], BrokerProcess] = {}

    def address(kind: str, settings: dict[str, str]) -> tuple[str, int]:
        key = kind, tuple(sorted(settings.items()))
        if key not in running:
            directory: Path = tmp_path_factory.mktemp(kind)
            running[key] = KINDS[kind](directory, settings)
            # Clients come in where brokers would.
            running[key].protocol = settings.get("security.inter.broker.protocol", "PLAINTEXT")
            running[key].start()
        return running[key].host, running[key].port

    yield address
    for broker in running.values():
        broker.stop()
