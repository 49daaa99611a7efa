"""The cluster that tests start works with Apache Kafka's brokers, before Ottla is blamed for anything."""

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from confluent_kafka.admin import AdminClient, NewTopic


@pytest.mark.long  # tests of mixed clusters in compat_tests/cluster start, kill and restart brokers of Apache Kafka as well
def test_three_brokers_form_a_cluster_and_go_on_without_the_controller(start_cluster):
    cluster = start_cluster(kinds=[ApacheKafka3] * 3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("spread", 1, 3)])["spread"].result(60)
    cluster.leader("spread")
    assert sorted(cluster.partitions("spread")[0].replica_nodes) == [0, 1, 2]
    controller = cluster.controller()
    controller.kill()
    cluster.wait_until_whole()
    assert cluster.controller() is not controller
    assert cluster.leader("spread") in cluster.running
    controller.restart()
    cluster.wait_until_whole()
    assert len(cluster.running) == 3
