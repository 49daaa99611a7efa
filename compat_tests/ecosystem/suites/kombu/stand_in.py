"""Kombu's integration tests have localhost:9092 written into them; tox starts a container there."""

import pytest

from ottla.testing import Kafka


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "env(name): the service that a test needs")
    kafka = Kafka(settings={"listeners": "PLAINTEXT://127.0.0.1:9092"})
    config.add_cleanup(kafka.close)
