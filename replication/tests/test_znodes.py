import pytest

from ottla.replication import znodes
from ottla.replication.znodes import LeaderAndIsr, MalformedNode, TopicAssignment


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


def test_uuids_are_22_characters() -> None:
    assert znodes.encode_uuid(b"\xff" * 16) == "_____________________w"
    assert znodes.decode_uuid("_____________________w") == b"\xff" * 16
    for text in ("", "AAAA", "*" * 22):
        with pytest.raises(MalformedNode):
            znodes.decode_uuid(text)
