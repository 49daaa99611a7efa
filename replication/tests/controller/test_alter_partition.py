import pytest

from ottla.replication.cluster import znodes
from ottla.replication.cluster.metadata_cache import RECOVERED, RECOVERING
from ottla.replication.controller.alter_partition import judge, respond
from ottla.replication.tests.controlled import FIRST, TOPIC, Controlled
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.controller_requests import AlterPartitionRequest, BrokerState

TopicData = AlterPartitionRequest.TopicData
PartitionData = TopicData.PartitionData
Told = tuple[int, int, int, list[int], int]

TOPIC_ID = TOPIC.encode().rjust(16)


def cluster() -> Controlled:
    """Broker 1 leads, 2 and 3 follow, 3 is not in sync: leader epoch 1, partition epoch 1."""
    made = Controlled(1, 2, 3)
    made.create((1, 2, 3))
    made.down(3)
    made.up(3)
    assert made.leadership() == (1, 1, (1, 2), 1)
    return made


def asked(
    isr: tuple[int, ...],
    *,
    broker: int = 1,
    broker_epoch: int | None = None,
    leader_epoch: int = 1,
    partition_epoch: int = 1,
    recovery: int = RECOVERED,
    topic_id: bytes = TOPIC_ID,
    index: int = 0,
    epochs: dict[int, int] | None = None,
) -> AlterPartitionRequest:
    members = [BrokerState(broker_id=each, broker_epoch=(epochs or {}).get(each, -1)) for each in isr]
    partition = PartitionData(
        partition_index=index,
        leader_epoch=leader_epoch,
        new_isr=list(isr),
        new_isr_with_epochs=members,
        leader_recovery_state=recovery,
        partition_epoch=partition_epoch,
    )
    return AlterPartitionRequest(
        broker_id=broker,
        broker_epoch=100 + broker if broker_epoch is None else broker_epoch,
        topics=[TopicData(topic_id=topic_id, partitions=[partition])],
    )


def answer(made: Controlled, request: AlterPartitionRequest, version: int = 3) -> Told | int:
    """Carry a request out: the error code, or the state of the answer."""
    decision = made.do(judge(made.states, request, version))
    response = respond(made.states, request, decision)
    assert (response.error_code, response.throttle_time_ms) == (0, 0)
    [topic] = response.topics
    [partition] = topic.partitions
    assert topic.topic_id == request.topics[0].topic_id
    assert partition.partition_index == request.topics[0].partitions[0].partition_index
    if partition.error_code:
        assert decision.changes == ()
        return partition.error_code
    return (
        partition.leader_id,
        partition.leader_epoch,
        partition.partition_epoch,
        partition.isr,
        partition.leader_recovery_state,
    )


@pytest.mark.parametrize("version", [2, 3])
def test_a_follower_joins_and_another_leaves(version: int) -> None:
    made = cluster()
    assert answer(made, asked((1, 2, 3)), version) == (1, 1, 2, [1, 2, 3], RECOVERED)
    assert made.leadership() == (1, 1, (1, 2, 3), 2)
    assert made.last.leader_and_isr == {}
    assert made.last.update_metadata.keys() == {1, 2, 3}
    assert answer(made, asked((1, 3), partition_epoch=2), version) == (1, 1, 3, [1, 3], RECOVERED)


def test_what_is_so_already_is_told_again_even_to_who_is_behind() -> None:
    made = cluster()
    assert answer(made, asked((1, 2))) == (1, 1, 1, [1, 2], RECOVERED)
    assert answer(made, asked((1, 2), partition_epoch=0)) == (1, 1, 1, [1, 2], RECOVERED)
    assert made.leadership() == (1, 1, (1, 2), 1)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (asked((1, 2, 3), leader_epoch=2), ErrorCode.NOT_CONTROLLER),
        (asked((1, 2, 3), partition_epoch=2), ErrorCode.NOT_CONTROLLER),
        (asked((1, 2, 3), leader_epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (asked((1, 2, 3), leader_epoch=0, partition_epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
        (asked((1, 2, 3), partition_epoch=0), ErrorCode.INVALID_UPDATE_VERSION),
        (asked((1, 2, 3), recovery=RECOVERING), ErrorCode.INVALID_REQUEST),
        (asked((1,), recovery=RECOVERING), ErrorCode.INVALID_REQUEST),
        (asked((1, 2), broker=2), ErrorCode.INVALID_REQUEST),
        (asked((2, 3)), ErrorCode.INVALID_REQUEST),
        (asked((1, 2, 4)), ErrorCode.INVALID_REQUEST),
        (asked((1, 2, 2)), ErrorCode.INVALID_REQUEST),
        (asked(()), ErrorCode.INVALID_REQUEST),
        (asked((1, 2, 3), epochs={3: 99}), ErrorCode.INELIGIBLE_REPLICA),
        (asked((1, 2, 3), index=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asked((1, 2, 3), topic_id=bytes(15) + b"x"), ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_what_is_refused(request_: AlterPartitionRequest, code: ErrorCode) -> None:
    made = cluster()
    assert answer(made, request_) == code
    assert made.leadership() == (1, 1, (1, 2), 1)


def test_who_is_shutting_down_or_dead_is_not_eligible() -> None:
    made = cluster()
    made.do(made.states.controlled_shutdown(3, 103))
    assert answer(made, asked((1, 2, 3))) == ErrorCode.INELIGIBLE_REPLICA
    made.down(3)
    assert answer(made, asked((1, 2, 3))) == ErrorCode.INELIGIBLE_REPLICA
    made.up(3, epoch=200)
    assert answer(made, asked((1, 2, 3), epochs={3: 103})) == ErrorCode.INELIGIBLE_REPLICA
    assert answer(made, asked((1, 2, 3), epochs={3: 203, 1: 101})) == (1, 1, 2, [1, 2, 3], RECOVERED)


@pytest.mark.parametrize(("broker", "epoch"), [(1, 100), (1, 102), (4, 104), (1, -1)])
def test_who_was_another_broker_is_refused_as_a_whole(broker: int, epoch: int) -> None:
    made = cluster()
    with pytest.raises(KafkaError) as error:
        judge(made.states, asked((1, 2, 3), broker=broker, broker_epoch=epoch), 3)
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_that_has_recovered_says_so() -> None:
    made = cluster()
    made.down(2)
    made.up(2)
    made.unclean = True
    made.down(1)
    assert made.leadership() == (2, 3, (2,), 3)
    assert made.state().leader_recovery_state == RECOVERING
    seen = {"broker": 2, "leader_epoch": 3, "partition_epoch": 3}
    assert answer(made, asked((2, 3), recovery=RECOVERING, **seen)) == ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
    assert answer(made, asked((2,), **seen)) == (2, 3, 4, [2], RECOVERED)  # type: ignore[arg-type]
    assert made.leadership() == (2, 3, (2,), 4)


def test_a_topic_that_is_being_deleted_is_unknown() -> None:
    made = cluster()
    made.states.delete_topics([TOPIC])
    assert judge(made.states, asked((1, 2, 3)), 3).changes == ()
    [failure] = judge(made.states, asked((1, 2, 3)), 3).answers.values()
    assert isinstance(failure, KafkaError) and failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_change_that_cannot_be_written_is_answered_as_one_for_another_version() -> None:
    made = cluster()
    request = asked((1, 2, 3))
    decision = judge(made.states, request, 3)
    response = respond(made.states, request, decision, failed={FIRST})
    assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION


def test_the_last_word_on_a_partition_counts() -> None:
    made = cluster()
    request = asked((1, 2, 3))
    request.topics[0].partitions.append(asked((1, 2, 4)).topics[0].partitions[0])
    decision = made.do(judge(made.states, request, 3))
    assert decision.changes == ()
    codes = [each.error_code for each in respond(made.states, request, decision).topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_the_epoch_of_the_controller_that_wrote_is_in_the_state() -> None:
    made = cluster()
    made.do(made.fail_over())
    assert made.state().controller_epoch == 1
    answer(made, asked((1, 2, 3)))
    assert made.state().controller_epoch == 2
    node = made.tree.nodes[znodes.state_path(*FIRST)]
    assert znodes.decode_state(node[0]).controller_epoch == 2


def test_topics_without_partitions_are_not_answered() -> None:
    made = cluster()
    request = asked((1, 2))
    request.topics.append(TopicData(topic_id=b"unknown".ljust(16), partitions=[]))
    response = respond(made.states, request, judge(made.states, request, 3))
    assert [topic.topic_id for topic in response.topics] == [TOPIC_ID]
