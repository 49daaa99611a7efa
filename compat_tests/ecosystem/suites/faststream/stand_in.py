"""FastStream's connected tests have localhost:9092 written into them and into the examples of its documentation."""

import pytest

from ottla.testing import Kafka


def pytest_configure(config: pytest.Config) -> None:
    kafka = Kafka(settings={"listeners": "PLAINTEXT://127.0.0.1:9092"})
    config.add_cleanup(kafka.close)
