import json
from functools import partial

import pytest

from ottla.replication.cluster import znodes
from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration
from ottla.replication.cluster.znodes import LeaderAndIsr, MalformedNode, TopicAssignment
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.text import uuid_text


def test_nodes_have_kafkas_text() -> None:
    topic = TopicAssignment(bytes(range(16)), {0: [1, 2], 1: [2, 1]})
    assert znodes.encode_topic(topic) == (
        b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":[1,2],"1":[2,1]},'
        b'"adding_replicas":{},"removing_replicas":{}}'
    )
    assert znodes.decode_topic(znodes.encode_topic(topic)) == topic
    state = LeaderAndIsr(1, 5, [1, 3], 2)
    assert znodes.encode_state(state) == b'{"controller_epoch":2,"leader":1,"version":1,"leader_epoch":5,"isr":[1,3]}'
    assert znodes.decode_state(znodes.encode_state(state)) == state
    recovering = LeaderAndIsr(1, 5, [1], 2, leader_recovery_state=1)
    assert b'"isr":[1],"leader_recovery_state":1}' in znodes.encode_state(recovering)
    assert znodes.decode_state(znodes.encode_state(recovering)) == recovering
    assert znodes.encode_config({"retention.ms": "1"}) == b'{"version":1,"config":{"retention.ms":"1"}}'
    assert znodes.encode_cluster_id("x") == b'{"version":"1","id":"x"}'
    block = znodes.encode_producer_id_block(1, 0, 999)
    assert block == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    assert znodes.decode_producer_id_block(block) == (0, 999)


def test_a_topic_node_names_the_replicas_that_come_and_go() -> None:
    topic = TopicAssignment(bytes(16), {0: [3, 1, 2], 1: [1, 2]}, {0: [3]}, {0: [1]})
    data = znodes.encode_topic(topic)
    assert data.endswith(
        b'"partitions":{"0":[3,1,2],"1":[1,2]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}'
    )
    assert znodes.decode_topic(data) == topic


def test_a_topic_node_of_an_older_kafka_has_no_id() -> None:
    assert znodes.decode_topic(b'{"version":1,"partitions":{"0":[1]}}') == TopicAssignment(None, {0: [1]})


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"{}", b'{"partitions":[]}', b'{"partitions":{"a":[1]}}', b"\xff"])
def test_foreign_data_is_malformed(data: bytes) -> None:
    for decode in (znodes.decode_topic, znodes.decode_state, znodes.decode_cluster_id, znodes.decode_producer_id_block):
        with pytest.raises(MalformedNode):
            decode(data)


def test_entity_names_are_escaped_in_paths() -> None:
    assert znodes.topic_config_path("a/b c") == "/config/topics/a%2Fb%20c"
    assert znodes.entity_name("a%2Fb%20c") == "a/b c"
    assert znodes.broker_config_path(None) == "/config/brokers/<default>"
    assert znodes.entity_name("<default>") == "<default>"


@pytest.mark.parametrize("name", ["", ".", "..", "../ids/1", "a/partitions/0/state", "/a"])
def test_no_path_leads_elsewhere(name: str) -> None:
    paths = [znodes.topic_path, znodes.partitions_path, znodes.deleted_topic_path]
    paths += [partial(each, partition=0) for each in (znodes.partition_path, znodes.state_path)]
    for path in paths:
        with pytest.raises(KafkaError) as refused:
            path(name)
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_uuids_are_22_characters() -> None:
    assert uuid_text(b"\xff" * 16) == "_____________________w"
    assert znodes.decode_uuid("_____________________w") == b"\xff" * 16
    for text in ("", "AAAA", "*" * 22):
        with pytest.raises(MalformedNode):
            znodes.decode_uuid(text)


def test_a_brokers_registration_is_kafkas() -> None:
    data = (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","INTERNAL":"SASL_SSL"},'
        b'"endpoints":["PLAINTEXT://host1:9092","INTERNAL://[::1]:9093"],"jmx_port":-1,"port":9092,"host":"host1",'
        b'"version":5,"timestamp":"1700000000000","rack":"a"}'
    )
    broker = znodes.decode_broker(1, data, 77)
    assert broker.epoch == 77
    assert broker.rack == "a"
    assert broker.endpoints["INTERNAL"] == BrokerEndpoint(1, "::1", 9093, "a")
    assert broker.security_protocols == {"PLAINTEXT": 0, "INTERNAL": 3}
    assert json.loads(znodes.encode_broker(broker, 1700000000000)) == json.loads(data)


def test_a_broker_registers_the_levels_that_it_supports_as_kafka_does() -> None:
    endpoint = BrokerEndpoint(1, "h", 9092)
    broker = BrokerRegistration(1, {"PLAINTEXT": endpoint}, None, 5, {"PLAINTEXT": 0}, {"x": 2})
    data = znodes.encode_broker(broker, 0)
    assert json.loads(data)["features"] == {"x": {"min_version": 1, "max_version": 2}}
    read = znodes.decode_broker(1, data, 5)
    assert (read, read.features) == (broker, broker.features)


def test_a_broker_without_a_plaintext_listener_has_no_host_for_old_clients() -> None:
    broker = BrokerRegistration(1, {"TLS": BrokerEndpoint(1, "h", 1)}, None, 5, {"TLS": 1})
    node = json.loads(znodes.encode_broker(broker, 0))
    assert (node["host"], node["port"], "rack" in node) == (None, -1, False)
    assert znodes.decode_broker(1, znodes.encode_broker(broker, 0), 5) == broker


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2"}',
        b'{"version":2,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2","endpoints":["PLAINTEXT://h:9092"]}',
        (
            b'{"version":4,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2","endpoints":["PLAINTEXT://h:9092"],'
            b'"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"rack":null}'
        ),
    ],
)
def test_what_older_brokers_registered_is_understood(data: bytes) -> None:
    broker = znodes.decode_broker(3, data, 9)
    assert broker == BrokerRegistration(3, {"PLAINTEXT": BrokerEndpoint(3, "h", 9092)}, None, 9, {"PLAINTEXT": 0})


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b'{"version":2,"endpoints":["h:1"]}', b'{"version":2,"endpoints":["X://h:1"]}', b'{"version":2}'],
)
def test_other_registrations_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedNode):
        znodes.decode_broker(1, data, 1)


def test_the_controllers_nodes_are_kafkas() -> None:
    data = znodes.encode_controller(3, 17)
    kafkas = {"version": 2, "brokerid": 3, "timestamp": "17", "kraftControllerEpoch": -1}
    assert json.loads(data) == kafkas | {"takesEnvelopes": True}
    assert znodes.decode_controller(data) == 3 and znodes.takes_envelopes(data)
    for others in (json.dumps(kafkas).encode(), b'{"version":1,"brokerid":4,"timestamp":"1"}', b'{"takesEnvelopes":1}'):
        assert not znodes.takes_envelopes(others)
    assert znodes.decode_controller(b'{"version":1,"brokerid":4,"timestamp":"1"}') == 4
    assert znodes.encode_controller_epoch(12) == b"12"
    assert znodes.decode_controller_epoch(b"12") == 12
    for decode in (znodes.decode_controller, znodes.decode_controller_epoch):
        with pytest.raises(MalformedNode):
            decode(b"{}")


def test_orders_to_the_controller_are_kafkas() -> None:
    partitions = [("t", 0), ("u", 3)]
    data = znodes.encode_partitions(partitions)
    assert json.loads(data) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 3}],
    }
    assert znodes.decode_partitions(data) == partitions
    targets = {("t", 0): [1, 2]}
    data = znodes.encode_reassignments(targets)
    assert json.loads(data) == {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}
    assert znodes.decode_reassignments(data) == targets
    data = znodes.encode_log_dir_failure(3)
    assert json.loads(data) == {"version": 1, "broker": 3, "event": 1}
    assert znodes.decode_log_dir_failure(data) == 3
    for decode in (znodes.decode_partitions, znodes.decode_reassignments, znodes.decode_log_dir_failure):
        with pytest.raises(MalformedNode):
            decode(b'{"partitions":[1],"event":2,"broker":1}')
