"""kafka-go, sarama and Terraform's provider: clients/go_admin/main.go makes topics and deletes them by way of one address.

Tests of clusters and of workers do the same with each of their addresses.
"""

from pathlib import Path

import pytest
from compat_tests.support.brokers import OttlaProcess


@pytest.mark.parametrize("client", ["kafka-go", "sarama", "terraform"])
def test_topics_are_made_and_deleted(go_admin, bootstrap, client):
    [steps] = go_admin(client, bootstrap)
    assert {"create", "delete"} <= steps.keys() and set(steps.values()) == {"<nil>"}, steps


@pytest.mark.parametrize("is_enabled", [True, False])
def test_versions_that_kafka_4_has_dropped_are_served_with_the_setting_alone(
    go_admin, tmp_path: Path, is_enabled: bool
):
    """Send ListOffsets, CreateTopics and DeleteTopics in version 0. Without the setting the broker hangs up, as Kafka 4 does."""
    settings = {"older.api.versions.enable": "true"} if is_enabled else {}
    broker = OttlaProcess(tmp_path, settings)
    broker.start()
    try:
        [steps] = go_admin("older", broker.bootstrap)
    finally:
        broker.stop()
    if is_enabled:
        assert steps == {"create": "<nil>", "offsets": "<nil> [0]", "delete": "<nil>"}
    else:
        assert steps.keys() == {"create"} and "EOF" in steps["create"]
