"""taskiq-aio-kafka's tests name a broker in an environment variable; a container in docker-compose.yml is what they expect there."""

import os

import pytest

from ottla.testing import Kafka


def pytest_configure(config: pytest.Config) -> None:
    kafka = Kafka()
    config.add_cleanup(kafka.close)
    os.environ["TEST_KAFKA_URL"] = kafka.bootstrap
