from dataclasses import replace

from ottla.replication.cluster.metadata_cache import NO_LEADER
from ottla.replication.controller.decisions import Decision
from ottla.replication.controller.elect_leaders import ElectionType, balance_leaders, elect_leaders
from ottla.replication.controller.leader_election import succeed
from ottla.replication.tests.controlled import FIRST, TOPIC, Controlled
from ottla.wire.errors import ErrorCode, KafkaError

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def elect(cluster: Controlled, election_type: ElectionType, partition: tuple[str, int] = FIRST) -> int:
    """The error code; 0 if there was an election."""
    decision = cluster.do(elect_leaders(cluster.states, [partition], election_type))
    answer = decision.answers[partition]
    if isinstance(answer, KafkaError):
        assert decision.changes == ()
        return answer.code
    assert (answer.leader, answer.leader_epoch) == cluster.leadership(partition)[:2]
    return 0


def test_the_first_replica_leads_again() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    assert elect(cluster, PREFERRED) == ErrorCode.ELECTION_NOT_NEEDED
    cluster.do(cluster.states.controlled_shutdown(1, 101))
    assert elect(cluster, PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.down(1)
    assert elect(cluster, PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.up(1)
    assert elect(cluster, PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE  # not in sync yet
    state = cluster.state()
    cluster.states.topics[TOPIC].partitions[0] = replace(state, isr=(2, 1))
    assert elect(cluster, PREFERRED) == 0
    assert cluster.leadership() == (1, 2, (2, 1), 2)
    assert cluster.last.leader_and_isr.keys() == {1, 2}


def test_somebody_leads_at_the_price_of_records() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    assert elect(cluster, UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED
    cluster.down(2)
    cluster.down(1)
    assert elect(cluster, UNCLEAN) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.up(2)
    assert cluster.leadership()[0] == NO_LEADER
    assert elect(cluster, UNCLEAN) == 0
    assert cluster.leadership() == (2, 3, (2,), 3)
    assert cluster.state().leader_recovery_state == 1


def test_partitions_that_cannot_have_an_election() -> None:
    cluster = Controlled(1)
    cluster.create((1,), (2,))
    for election_type in ElectionType:
        assert elect(cluster, election_type, (TOPIC, 9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect(cluster, PREFERRED, (TOPIC, 1)) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(cluster, UNCLEAN, (TOPIC, 1)) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    cluster.states.delete_topics([TOPIC])
    assert elect(cluster, PREFERRED) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_leaders_are_balanced_beyond_a_percentage() -> None:
    cluster = Controlled(1, 2)
    cluster.create(*[(1, 2)] * 10, (2, 1))
    for index in (0, 1):
        state = cluster.state((TOPIC, index))
        moved = succeed(state, 2, state.isr)
        cluster.do(Decision(changes=(cluster.states.change((TOPIC, index), moved, (1, 2)),)))
    assert balance_leaders(cluster.states, 20).changes == ()
    cluster.do(balance_leaders(cluster.states, 19))
    assert [cluster.leadership((TOPIC, index))[0] for index in range(11)] == [1] * 10 + [2]


def test_leaders_are_not_balanced_onto_brokers_that_are_away() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    cluster.down(1)
    assert balance_leaders(cluster.states, 0).changes == ()
