"""OpenTelemetry's functional tests read KAFKA_HOST and KAFKA_PORT; their docker-compose.yml starts Apache Kafka."""

import os

import pytest

from ottla.testing import Kafka


def pytest_configure(config: pytest.Config) -> None:
    kafka = Kafka()
    config.add_cleanup(kafka.close)
    os.environ["KAFKA_HOST"], _, os.environ["KAFKA_PORT"] = kafka.bootstrap.rpartition(":")
