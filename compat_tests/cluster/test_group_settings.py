"""Settings of groups and levels of features where a broker of Apache Kafka 3.9 is in the cluster, which knows neither."""

from collections.abc import Iterator
from typing import Any

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.wire_client import WireClient

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.describe_configs import ListConfigResourcesRequest
from ottla.wire.schema import Message

GROUP, SET, DELETE = 32, 0, 1
KAFKA, FIRST, SECOND = range(3)
SESSION = "consumer.session.timeout.ms"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), (ApacheKafka3, OttlaProcess, OttlaProcess)) as cluster:
        yield cluster


def ask(broker: BrokerProcess, request: Message, version: int) -> Any:
    client = WireClient((broker.host, broker.port), client_id="settings", timeout_s=30)
    try:
        client.send(request, version)
        return client.receive()
    finally:
        client.close()


def alter(broker: BrokerProcess, group_id: str, operation: int, value: str | None) -> None:
    change = IncrementalConfig(name=SESSION, config_operation=operation, value=value)
    resource = IncrementalConfigsResource(resource_type=GROUP, resource_name=group_id, configs=[change])
    answer = ask(broker, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert [each.error_code for each in answer.responses] == [0], answer


def groups(broker: BrokerProcess) -> list[str]:
    """The groups that this broker knows to have settings. It looks them up nowhere."""
    answer = ask(broker, ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    return [each.resource_name for each in answer.config_resources]


def test_brokers_hear_of_settings_of_groups_and_kafka_is_left_in_peace(cluster: Cluster) -> None:
    alter(cluster.brokers[FIRST], "a/b", SET, "50000")
    wait_until(lambda: groups(cluster.brokers[SECOND]) == ["a/b"], "the other broker has heard of it")
    alter(cluster.brokers[SECOND], "a/b", DELETE, None)
    wait_until(lambda: groups(cluster.brokers[FIRST]) == [], "the first broker has heard of it")
    assert "notification" not in cluster.brokers[KAFKA].log
    alter(cluster.brokers[FIRST], "c", SET, "51000")
    cluster.brokers[KAFKA].stop()
    cluster.brokers[KAFKA].start()
    cluster.wait_until_whole()
    cluster.brokers[SECOND].stop()
    cluster.brokers[SECOND].start()
    cluster.wait_until_whole()
    assert groups(cluster.brokers[SECOND]) == ["c"]


def test_all_tell_the_same_of_features(cluster: Cluster) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    for version in (3, 4):
        told = [ask(broker, request, version) for broker in cluster.brokers]
        assert [(each.supported_features, each.finalized_features) for each in told] == [([], [])] * 3
        # A controller of Apache Kafka makes the node of levels without any. Brokers that started before tell of none.
        assert {each.finalized_features_epoch for each in told} <= {-1, 0}


def test_all_refuse_to_change_features_in_the_same_words(cluster: Cluster) -> None:
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in (("", 1, 1), ("a", 1, 9), ("b", 0, 2), ("c", 0, 1), ("transaction.version", 1, 1))
    ]
    told = []
    for first in (KAFKA, FIRST):
        # The first to come controls the cluster.
        for broker in cluster.brokers:
            broker.stop()
        for broker in (
            cluster.brokers[first],
            *(each for each in cluster.brokers if each is not cluster.brokers[first]),
        ):
            broker.start()
        cluster.wait_until_whole()
        answers = [ask(broker, UpdateFeaturesRequest(feature_updates=updates), 1) for broker in cluster.brokers]
        codes = [each.error_code for each in answers]
        # Brokers of Ottla hand it on to a controller of Ottla; nobody hands anything on to Kafka 3.9, or from there.
        taking = {KAFKA} if first == KAFKA else {FIRST, SECOND}
        assert codes == [0 if each in taking else ErrorCode.NOT_CONTROLLER for each in range(3)]
        results = answers[first].results
        told.append(sorted((each.feature, each.error_code, each.error_message) for each in results))
    assert told[0] == told[1]
