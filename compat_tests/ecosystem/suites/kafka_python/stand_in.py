"""kafka-python's tests unpack Apache Kafka and start it, or use the broker that KAFKA_URI names."""

import os

import pytest

from ottla.testing import Kafka

pytest_plugins = ["compat_tests.support.asking_again"]

# Their conftest reads these two before pytest has been configured.
os.environ["KAFKA_VERSION"] = "4.4"
os.environ["KAFKA_ROOT"] = os.getcwd()  # only has to be a folder

SETTINGS = {
    "num.partitions": "4",
    "group.min.session.timeout.ms": "100",
}  # as in the files of settings that they start Kafka with


def pytest_configure(config: pytest.Config) -> None:
    kafka = Kafka(settings=SETTINGS)
    config.add_cleanup(kafka.close)
    os.environ["KAFKA_URI"] = f"kafka://{kafka.bootstrap}"
