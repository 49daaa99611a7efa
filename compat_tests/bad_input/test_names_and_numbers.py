"""Names that cannot be, and numbers beyond all sense."""

import pytest
from compat_tests.bad_input.bystander import (
    GOOD,
    INT32_MAX,
    INT64_MAX,
    INVALID_GROUP_ID,
    INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR,
    INVALID_SESSION_TIMEOUT,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    produced,
)
from compat_tests.support.raw import batch, fetch, message_class, produce, response

BAD_NAMES = ["", ".", "..", "a/b", "a b", "a\0b", "\u00e9", "x" * 250, "a,b", "\ud7ff"]


def test_topic_names_that_cannot_be_are_refused_and_never_made(peer):
    names = message_class("MetadataRequest").MetadataRequestTopic
    topics = [names(version=8, name=name) for name in BAD_NAMES]
    answer = peer.call("Metadata", 8, topics=topics, allow_auto_topic_creation=True)
    assert {topic.name: topic.error_code for topic in answer.topics} == dict.fromkeys(
        BAD_NAMES, INVALID_TOPIC_EXCEPTION
    )
    for name in BAD_NAMES:
        peer.send(produce(name, batch(GOOD)))
        assert produced(peer.receive())[1] == UNKNOWN_TOPIC_OR_PARTITION
    everything = peer.call("Metadata", 8, topics=None)
    assert not {topic.name for topic in everything.topics} & set(BAD_NAMES)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"offset": -5}, OFFSET_OUT_OF_RANGE),
        ({"offset": 3}, OFFSET_OUT_OF_RANGE),
        ({"offset": INT64_MAX}, OFFSET_OUT_OF_RANGE),
        ({"offset": 0, "partition_max_bytes": 0}, NONE),
        ({"offset": 0, "partition_max_bytes": -1}, UNKNOWN_SERVER_ERROR),
        ({"offset": 0, "max_bytes": INT32_MAX, "partition_max_bytes": INT32_MAX}, NONE),
        ({"offset": 0, "max_bytes": -1}, UNKNOWN_SERVER_ERROR),
        ({"offset": 0, "max_wait_ms": -1, "min_bytes": INT32_MAX}, NONE),
        ({"offset": 0, "min_bytes": -1, "max_wait_ms": INT32_MAX}, NONE),
        ({"offset": 0, "partition": -1}, UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": 0, "partition": INT32_MAX}, UNKNOWN_TOPIC_OR_PARTITION),
        ({"offset": 0, "isolation_level": 7}, UNKNOWN_SERVER_ERROR),
    ],
    ids=str,
)
def test_absurd_fetch_parameters(peer, topic, options, code):
    peer.send(produce(topic, batch(GOOD)))
    assert produced(peer.receive()) == (0, NONE)
    peer.send(fetch(topic, **options))
    payload = peer.receive()
    assert payload is not None
    [answer] = response("Fetch", 11, payload).responses[0].partitions
    assert answer.error_code == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"session_timeout_ms": 0}, INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": INT32_MAX}, INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, 23),
        ({"protocol_type": ""}, 23),
    ],
    ids=str,
)
def test_absurd_join_parameters(peer, unique, wait_until, fields, code):
    def coordinator_is_there():
        return peer.call("FindCoordinator", 1, key=unique("group"), key_type=0).error_code == NONE

    wait_until(coordinator_is_there, "the groups have a coordinator")
    protocol = message_class("JoinGroupRequest").JoinGroupRequestProtocol
    usual = {
        "group_id": unique("group"),
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 6000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [protocol(version=2, name="range", metadata=b"")],
    }
    assert peer.call("JoinGroup", 2, **(usual | fields)).error_code == code


@pytest.mark.parametrize(
    ("count", "replicas", "code"),
    [
        (10_001, 1, POLICY_VIOLATION),
        (INT32_MAX, 1, POLICY_VIOLATION),
        (0, 1, INVALID_PARTITIONS),
        (-2, 1, INVALID_PARTITIONS),
        (1, 0, INVALID_REPLICATION_FACTOR),
        (1, 32767, INVALID_REPLICATION_FACTOR),
    ],
)
def test_absurd_topics_are_not_created(peer, unique, count, replicas, code):
    new = {"num_partitions": count, "replication_factor": replicas, "assignments": [], "configs": []}
    topic = message_class("CreateTopicsRequest").CreatableTopic(version=5, name=unique("topic"), **new)
    answer = peer.call("CreateTopics", 5, topics=[topic], timeout_ms=10_000, validate_only=False)
    assert answer.topics[0].error_code == code
