"""Faust's tests of brokers read FAUST_TEST_BROKER; in their CI it is a service container of Apache Kafka."""

import os

import pytest

from ottla.testing import Kafka


def pytest_configure(config: pytest.Config) -> None:
    kafka = Kafka()
    config.add_cleanup(kafka.close)
    os.environ["FAUST_TEST_BROKER"] = f"kafka://{kafka.bootstrap}"
