"""One cluster of both makes for all tests of a module that look at how they live together."""

from collections.abc import Iterator

import pytest
from compat_tests.cluster.mixed import ALL, KAFKA, Mixed


@pytest.fixture(scope="module")
def mixed_cluster(tmp_path_factory: pytest.TempPathFactory, java_tools) -> Iterator[Mixed]:
    """Use `mixed`: use topics and groups of your own, and leave all brokers running."""
    with Mixed(tmp_path_factory.mktemp("mixed"), java_tools("kafka_3")).running() as mixed:
        yield mixed


@pytest.fixture
def mixed(mixed_cluster: Mixed) -> Mixed:
    """With all brokers at work, and under a controller of Apache Kafka, whatever the test before has left."""
    for number in ALL:
        if mixed_cluster.broker(number).died():
            mixed_cluster.restart(number)
    mixed_cluster.cluster.wait_until_whole()
    mixed_cluster.make_controller(KAFKA)
    return mixed_cluster
