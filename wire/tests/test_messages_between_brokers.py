"""What brokers and controllers of Apache Kafka 3.9.2 said to each other in ZooKeeper mode, kept as they sent it.

golden_between_brokers.txt has one body a line, after its header: `Request LeaderAndIsr v7 <hex>`. It was taken down between three
brokers while topics were created, reassigned and deleted and brokers died, returned and shut down.
"""

from pathlib import Path
from typing import Any

import pytest

from ottla.wire.schema import Message
from ottla.wire.tests.message_values import messages

LINES = (Path(__file__).parent / "golden_between_brokers.txt").read_text().splitlines()
MESSAGES = {cls.__name__: cls for cls in messages()}


def read(line: str) -> tuple[Message, int, bytes]:
    kind, api, version, body = line.split()
    number, data = int(version.removeprefix("v")), bytes.fromhex(body)
    return MESSAGES[api + kind].decode(data, number), number, data


def said(cls: str) -> list[Any]:
    return [message for message, _, _ in map(read, LINES) if type(message).__name__ == cls]


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line.split()[:3]))
def test_what_kafka_said_is_read_and_written_back(line: str) -> None:
    message, version, body = read(line)
    assert message.encode(version) == body


def test_the_versions_are_those_of_the_inter_broker_protocol_3_9() -> None:
    versions = {tuple(line.split()[1:3]) for line in LINES}
    expected = {"LeaderAndIsr": 7, "UpdateMetadata": 8, "StopReplica": 4, "AlterPartition": 3, "Fetch": 17}
    expected |= {"AllocateProducerIds": 0, "ControlledShutdown": 3}
    assert versions == {(api, f"v{version}") for api, version in expected.items()}


def states(request: Any) -> list[Any]:
    return [state for topic in request.topic_states for state in topic.partition_states]


def test_a_controller_tells_of_new_reassigned_and_recovering_partitions() -> None:
    new, reassigned, recovering = said("LeaderAndIsrRequest")
    assert [state.leader for state in states(new)] == [live.broker_id for live in new.live_leaders][:1] + [2, 1]
    assert all(state.is_new and (state.leader_epoch, state.partition_epoch) == (0, 0) for state in states(new))
    [state] = states(reassigned)
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ([1, 3, 2], [1, 3], [2])
    assert [state.leader_recovery_state for state in states(recovering)] == [1]


def test_a_controller_tells_of_brokers_of_offline_replicas_and_of_deletions() -> None:
    brokers, offline, deletion = said("UpdateMetadataRequest")
    assert [broker.rack for broker in brokers.live_brokers] == ["r3", "r2", "r1"]
    assert [state.offline_replicas for state in states(offline)] == [[3]]
    assert {(state.leader, state.leader_epoch, state.zk_version) for state in states(deletion)} == {(-2, 0, 0)}
    stopped, deleted = said("StopReplicaRequest")
    assert {state.delete_partition for state in states(stopped)} == {False}
    assert {(state.leader_epoch, state.delete_partition) for state in states(deleted)} == {(-2, True)}


def test_a_replica_that_has_heard_it_all_refuses_by_partition() -> None:
    def codes(answer: Any) -> set[int]:
        return {error.error_code for topic in answer.topics for error in topic.partition_errors}

    assert [codes(answer) for answer in said("LeaderAndIsrResponse")] == [{0}, {0, 11}]


def test_leaders_propose_without_broker_epochs_and_are_sent_on_by_a_deposed_controller() -> None:
    [asked] = said("AlterPartitionRequest")
    proposed = [part for topic in asked.topics for part in topic.partitions]
    assert all(part.new_isr == [] and part.partition_epoch >= 0 for part in proposed)
    assert {member.broker_epoch for part in proposed for member in part.new_isr_with_epochs} == {-1}
    done, refused = said("AlterPartitionResponse")
    assert (done.error_code, refused.error_code, refused.topics) == (0, 41, [])


def test_followers_say_who_they_are_and_go_on_in_a_session() -> None:
    first, forgetting, going_on = said("FetchRequest")
    for request in (first, forgetting, going_on):
        assert request.replica_id == -1 and request.replica_state.replica_id in (1, 2, 3)
        assert request.replica_state.replica_epoch > 0 and request.rack_id == ""
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert forgetting.forgotten_topics_data and forgetting.topics == []
    [topic] = going_on.topics
    assert all(part.last_fetched_epoch == part.current_leader_epoch == 1 for part in topic.partitions)
