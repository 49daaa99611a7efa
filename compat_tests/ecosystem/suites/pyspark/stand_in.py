"""PySpark's test of Kafka starts a container with testcontainers, and finds the connector in a build of Spark."""

from pathlib import Path
from typing import Any, Self

import pyspark.sql
import pytest
import testcontainers.kafka
from pyspark.testing import sqlutils

from ottla.testing import Kafka

JARS = sorted((Path(__file__).parents[4] / ".cache/jars/compat_tests/ecosystem/suites/pyspark").glob("*.jar"))


class KafkaContainer:
    """Stand-in for the class of that name, as far as the test uses it."""

    def __init__(self, image: str) -> None:
        self._kafka: Kafka | None = None

    def start(self) -> Self:
        self._kafka = Kafka()
        return self

    def get_bootstrap_server(self) -> str:
        assert self._kafka is not None
        return self._kafka.bootstrap

    def stop(self) -> None:
        if self._kafka is not None:
            self._kafka.close()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        item.module._is_docker_available = lambda: True


testcontainers.kafka.KafkaContainer = KafkaContainer  # type: ignore[misc,assignment]
pyspark.sql.__path__.append("python/pyspark/sql")  # the installed package has no tests
sqlutils.search_jar = lambda *_, **__: str(JARS[0]) if JARS else None
sqlutils.read_classpath = lambda *_: ",".join(map(str, JARS[1:]))
