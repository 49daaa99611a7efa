"""Requests are found by Kafka's names; a wrong name is told with the nearest right one."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla.server.testing.errors import LabError
from ottla.server.testing.wire_tap.tests.wire_talk import Listening, answer, fetch, fetched, produce, request
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.groups import DescribeGroupsRequest
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.schema import Message

HEARTBEAT = HeartbeatRequest(group_id="payments", generation_id=1, member_id="m-1")
OFFSETS = OffsetFetchRequest(
    groups=[
        OffsetFetchRequestGroup(
            group_id="g", topics=[OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 3])]
        )
    ]
)


@pytest.mark.parametrize(
    ("message", "version", "places", "groups"),
    [
        (produce(("orders", 0), ("orders", 2), ("audit", 1)), 9, [("orders", 0), ("orders", 2), ("audit", 1)], []),
        (fetch(("orders", 0)), 12, [("orders", 0)], []),
        (HEARTBEAT, 4, [], ["payments"]),
        (CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])]), 7, [("new", None)], []),
        (DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1), 3, [("a", None), ("b", None)], []),
        (ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[4])]), 2, [("t", 4)], []),
        (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)]), 4, [("t", None)], []),
        (DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)]), 4, [], []),
        (FindCoordinatorRequest(key_type=0, coordinator_keys=["g1", "g2"]), 4, [], ["g1", "g2"]),
        (FindCoordinatorRequest(key_type=0, key="g1"), 3, [], ["g1"]),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4, [], []),
        (DescribeGroupsRequest(groups=["g1"]), 5, [], ["g1"]),
        (OFFSETS, 9, [("orders", 0), ("orders", 3)], ["g"]),
    ],
)  # fmt: skip
def test_what_a_request_is_about(message: Message, version: int, places: list[Any], groups: list[str]) -> None:
    tap = Listening()
    tap.hear(request(message, version))
    (seen,) = tap.wire.requests()
    assert (list(seen.places), list(seen.groups)) == (places, groups)
    assert all(tap.wire.saw(topic=topic, partition=partition) for topic, partition in places)
    assert all(tap.wire.saw(group=group) for group in groups)
    assert not tap.wire.saw(topic="other") and not tap.wire.saw(group="other")


def test_conditions_have_to_hold_together() -> None:
    tap = Listening()
    tap.hear(request(produce(("orders", 0)), 9, 1, client_id="billing"))
    tap.hear(request(produce(("audit", 1), acks=1), 9, 2, client_id="audit"))
    tap.hear(request(HEARTBEAT, 4, 3, client_id=None))
    wire = tap.wire
    assert [each.correlation_id for each in wire.requests("Produce")] == [1, 2]
    assert [each.correlation_id for each in wire.requests(client_id="audit")] == [2]
    assert wire.saw("Produce", acks=-1, topic="orders") and not wire.saw("Produce", acks=1, topic="orders")
    assert wire.saw("Produce", index=1, version=9, node=0) and not wire.saw("Produce", version=8)
    assert not wire.saw(node=1) and wire.saw("Heartbeat", member_id="m-1")
    assert not wire.saw("Produce", partition=2) and wire.saw(partition=1)
    first = wire.requests()[0]
    assert [each.correlation_id for each in wire.requests(since=first)] == [2, 3]
    tap.clock.now_ms += 1000
    tap.hear(request(HEARTBEAT, 4, 4))
    assert [each.correlation_id for each in wire.requests(since=1000.5)] == [4]


def test_the_partitions_of_a_fetch_session_are_those_of_its_answers() -> None:
    tap = Listening()
    tap.hear(request(fetch(session_id=5, session_epoch=2), 12))
    assert not tap.wire.saw("Fetch", topic="orders")
    tap.say(answer(fetched(("orders", 1), session_id=5), 12))
    assert tap.wire.saw("Fetch", topic="orders", partition=1)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda wire: wire.saw("Prodcue"), "Kafka has no API named 'Prodcue'; did you mean 'Produce'?"),
        (lambda wire: wire.saw("produce"), "Kafka has no API named 'produce'; did you mean 'Produce'?"),
        (lambda wire: wire.saw("Zzz"), "Kafka has no API named 'Zzz'."),
        (lambda wire: wire.saw("Produce", ack=1), "Produce has no field 'ack'; did you mean 'acks'?"),
        (lambda wire: wire.saw(isolation=1), "No request has a field 'isolation'; did you mean 'isolation_level'?"),
        (lambda wire: wire.saw(error="NOT_LEADER"), "Kafka has no error named 'NOT_LEADER'; did you mean 'NOT_LEADER_OR_FOLLOWER'?"),
    ],
)  # fmt: skip
def test_wrong_names_get_the_nearest(call: Any, problem: str) -> None:
    with pytest.raises(LabError) as error:
        call(Listening().wire)
    assert str(error.value) == problem


def test_errors_are_a_condition() -> None:
    tap = Listening()
    tap.hear(request(HEARTBEAT, 4, 1) + request(HEARTBEAT, 4, 2))
    tap.say(answer(HeartbeatResponse(error_code=27), 4, 1) + answer(HeartbeatResponse(error_code=0), 4, 2))
    assert [each.correlation_id for each in tap.wire.requests(error="REBALANCE_IN_PROGRESS")] == [1]


def test_a_test_waits_for_a_request() -> None:
    tap = Listening()
    tap.hear(request(HEARTBEAT, 4, 1))
    assert tap.wire.wait_for("Heartbeat").correlation_id == 1
    with pytest.raises(LabError, match="No Produce, topic='orders' was seen within 0 s; the tap has seen 1 Heartbeat."):
        tap.wire.wait_for("Produce", topic="orders", timeout=0)
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(tap.wire.wait_for("Produce", topic="orders", timeout=60)))
    waiter.start()
    tap.hear(request(produce(("orders", 0)), 9, 5))
    waiter.join(60)
    assert found[0].correlation_id == 5


def test_many_tests_may_wait_while_requests_come() -> None:
    tap = Listening()
    found: list[int] = []
    waiters = [
        threading.Thread(
            target=lambda number=number: found.append(
                tap.wire.wait_for("Heartbeat", generation_id=number, timeout=60).number
            )  # type: ignore[misc]
        )
        for number in range(8)
    ]
    for each in waiters:
        each.start()
    for number in range(8):
        tap.hear(request(HeartbeatRequest(group_id="g", generation_id=number, member_id="m"), 4, number))
    for each in waiters:
        each.join(60)
    assert sorted(found) == [*range(1, 9)]
