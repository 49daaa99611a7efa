import pytest

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, NodeExists, NoNode
from ottla.replication.cluster.state import NO_LEADER, RECOVERING
from ottla.replication.cluster.znodes import TopicAssignment
from ottla.replication.control.control_batch import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from ottla.replication.control.decisions import Decision
from ottla.replication.control.partition_states import DELETIONS_PER_DECISION
from ottla.replication.control.reassignment import plan_reassignments
from ottla.replication.tests.controlled import FIRST, TOPIC, Controlled, registration
from ottla.wire.errors import ErrorCode, KafkaError


def led(cluster: Controlled, broker: int) -> dict[tuple[str, int], tuple[int, bool]]:
    """What the last batch tells a broker to lead or follow: the leader, and whether the replica is new."""
    told = cluster.last.leader_and_isr.get(broker, {})
    return {partition: (state.leader, is_new) for partition, (state, is_new) in told.items()}


# --- topics


def test_a_new_topic_is_led_by_the_first_live_replica() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2), (3, 2))
    assert cluster.leadership() == (1, 0, (1, 2), 0)
    assert cluster.leadership((TOPIC, 1)) == (2, 0, (2,), 0)
    assert led(cluster, 2) == {FIRST: (1, True), (TOPIC, 1): (2, True)}
    assert led(cluster, 3) == {}
    assert cluster.told[1].metadata.keys() == {FIRST, (TOPIC, 1)}
    assert cluster.last.update_metadata[1][TOPIC, 1][1] == (3,)


def test_a_topic_without_live_replicas_waits_for_one() -> None:
    cluster = Controlled(1)
    cluster.create((2, 3), (3, 2))
    assert cluster.tree.state(FIRST) is None
    cluster.up(3)
    assert cluster.leadership() == (3, 0, (3,), 0)
    assert led(cluster, 3)[FIRST] == (3, True)
    cluster.up(2)
    assert cluster.leadership() == (3, 0, (3,), 0)
    assert led(cluster, 2)[FIRST] == (3, False)


def test_more_partitions_are_led_like_the_first() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    more = TopicAssignment(TOPIC.encode().rjust(16), {0: [1, 2], 1: [2, 1]})
    cluster.tree.nodes[znodes.topic_path(TOPIC)] = (znodes.encode_topic(more), 1)
    cluster.do(cluster.states.topic_changed(TOPIC, more, 1))
    assert cluster.leadership((TOPIC, 1)) == (2, 0, (2, 1), 0)
    assert cluster.leadership() == (1, 0, (1, 2), 0)
    assert cluster.states.topics[TOPIC].version == 1


def test_nodes_that_another_controller_left_are_taken_as_they_are() -> None:
    cluster = Controlled(1)
    left = [znodes.partitions_path(TOPIC), znodes.partition_path(TOPIC, 0)]
    cluster.tree.nodes.update(dict.fromkeys(left, (b"", 0)))
    for path in left:
        with pytest.raises(NodeExists) as error:
            cluster.create((1,), (1,))
        assert error.value.path == path
        cluster.states.note_node(path, exists=True)
    cluster.create((1,), (1,))
    assert cluster.leadership() == (1, 0, (1,), 0)
    assert cluster.leadership((TOPIC, 1)) == (1, 0, (1,), 0)


def test_a_large_decision_is_written_in_parts() -> None:
    cluster = Controlled(1)
    cluster.create()
    more = TopicAssignment(TOPIC.encode().rjust(16), {index: [1] for index in range(5)})
    decision = cluster.states.topic_changed(TOPIC, more, 0)
    parts = list(decision.parts(4))
    assert [len(part.changes) for part in parts] == [2, 2, 1]
    cluster.do(decision, limit=4)
    assert [cluster.leadership((TOPIC, index))[0] for index in range(5)] == [1] * 5
    nothing = Decision()
    assert [part.batch for part in nothing.parts()] == [nothing.batch]
    assert nothing.operations(1) == []


def test_nothing_is_written_on_a_state_that_has_changed() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    path = znodes.state_path(*FIRST)
    cluster.tree.nodes[path] = (cluster.tree.nodes[path][0], 1)
    with pytest.raises(BadVersion):
        cluster.down(1)
    state = cluster.tree.state(FIRST)
    assert state is not None
    cluster.states.load_topic(TOPIC, *cluster.tree.topic(TOPIC), {0: state})
    cluster.down(1)
    assert cluster.leadership() == (2, 1, (2,), 2)


# --- brokers


def test_a_broker_dies_and_returns() -> None:
    cluster = Controlled(1, 2, 3)
    cluster.create((1, 2, 3), (2, 1, 3), (3, 2))
    cluster.down(1)
    assert cluster.leadership() == (2, 1, (2, 3), 1)
    assert cluster.leadership((TOPIC, 1)) == (2, 1, (2, 3), 1)
    assert cluster.leadership((TOPIC, 2)) == (3, 0, (3, 2), 0)
    assert led(cluster, 3) == {FIRST: (2, False), (TOPIC, 1): (2, False)}
    assert cluster.last.update_metadata[3][FIRST][1] == (1,)
    cluster.up(1)
    assert cluster.leadership() == (2, 1, (2, 3), 1)
    assert led(cluster, 1) == {FIRST: (2, False), (TOPIC, 1): (2, False)}
    assert cluster.told[1].metadata.keys() == {FIRST, (TOPIC, 1), (TOPIC, 2)}
    assert cluster.last.update_metadata[2].keys() == {FIRST, (TOPIC, 1)}
    assert cluster.last.update_metadata[2][FIRST][1] == ()  # broker 2 was told that replica 1 is offline


def test_a_broker_hears_of_new_ones_before_it_follows_them() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    cluster.down(2)
    cluster.down(1)
    cluster.up(2)
    cluster.up(1)
    assert cluster.last.introduced == {1, 2}
    assert led(cluster, 2) == {FIRST: (1, False)}
    cluster.do(cluster.fail_over())
    assert cluster.last.introduced == {1, 2}


def test_the_last_in_sync_replica_is_waited_for() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    cluster.down(2)
    cluster.down(1)
    assert cluster.leadership() == (NO_LEADER, 2, (1,), 2)
    cluster.up(2)
    assert cluster.leadership() == (NO_LEADER, 2, (1,), 2)
    assert led(cluster, 2) == {FIRST: (NO_LEADER, False)}
    cluster.up(1)
    assert cluster.leadership() == (1, 3, (1,), 3)
    assert led(cluster, 2) == {FIRST: (1, False)}


def test_all_die_at_once_and_any_may_lead_after_it() -> None:
    cluster = Controlled(1, 2, 3)
    cluster.create((1, 2))
    cluster.down(1, 2)
    assert cluster.leadership() == (NO_LEADER, 1, (1, 2), 1)
    cluster.up(2)
    assert cluster.leadership() == (2, 2, (2,), 2)


def test_an_unclean_leader_is_elected_where_that_is_allowed() -> None:
    cluster = Controlled(1, 2, unclean=True)
    cluster.create((1, 2))
    cluster.down(2)
    cluster.up(2)
    cluster.down(1)
    assert cluster.leadership() == (2, 2, (2,), 2)
    assert cluster.state().leader_recovery_state == RECOVERING


def test_unclean_elections_are_allowed_later() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    cluster.down(2)
    cluster.up(2)
    cluster.down(1)
    assert cluster.leadership()[0] == NO_LEADER
    cluster.unclean = True
    cluster.do(cluster.states.elect_offline(["other"]))
    assert cluster.leadership()[0] == NO_LEADER
    cluster.do(cluster.states.elect_offline())
    assert cluster.leadership()[0] == 2


def test_brokers_are_compared_by_their_epochs() -> None:
    cluster = Controlled(1, 2, 3)
    now = {1: registration(1), 3: registration(3, 200), 4: registration(4)}
    changes = cluster.states.compare(now)
    assert ([each.node_id for each in changes.up], changes.down) == ([4], [3, 2])
    assert [each.node_id for each in changes.bounced] == [3]


def test_new_endpoints_are_announced() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1,))
    cluster.do(cluster.states.broker_updated(registration(1, rack="a")))
    assert cluster.last.update_metadata == {1: {}, 2: {}}
    assert cluster.last.leader_and_isr == {}
    assert cluster.states.brokers[1].rack == "a"


# --- controlled shutdown


def test_a_broker_leaves_in_an_orderly_way() -> None:
    cluster = Controlled(1, 2, 3)
    cluster.create((1, 2), (2, 1), (1,), (2, 3))
    cluster.do(cluster.states.controlled_shutdown(1, 101))
    assert cluster.leadership() == (2, 1, (2,), 1)
    assert cluster.leadership((TOPIC, 1)) == (2, 1, (2,), 1)
    assert cluster.leadership((TOPIC, 2)) == (1, 0, (1,), 0)
    assert cluster.leadership((TOPIC, 3)) == (2, 0, (2, 3), 0)
    assert cluster.last.stop_replica == {1: {(TOPIC, 1): (1, False)}}
    assert led(cluster, 1) == {FIRST: (2, False)}
    assert cluster.states.led_by(1) == []
    cluster.down(1)
    assert cluster.leadership() == (2, 1, (2,), 1)
    assert cluster.leadership((TOPIC, 2)) == (NO_LEADER, 1, (1,), 1)


def test_what_cannot_be_moved_stays_until_somebody_is_in_sync() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    cluster.down(2)
    cluster.up(2)
    cluster.do(cluster.states.controlled_shutdown(1, -1))
    assert cluster.leadership() == (1, 1, (1,), 1)
    assert cluster.states.led_by(1) == [FIRST]
    cluster.down(2)
    assert cluster.leadership() == (1, 1, (1,), 1)


def test_a_shutdown_is_refused_to_a_broker_that_was() -> None:
    cluster = Controlled(1)
    with pytest.raises(KafkaError) as error:
        cluster.states.controlled_shutdown(1, 100)
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as error:
        cluster.states.controlled_shutdown(2, 100)
    assert error.value.code == ErrorCode.BROKER_NOT_AVAILABLE
    assert cluster.states.shutting_down == set()


# --- log directories


def test_replicas_on_a_failed_log_directory_are_lost() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2), (1, 2), (2, 1))
    cluster.do(cluster.states.log_dir_failed(1))
    assert led(cluster, 1) == {FIRST: (1, False), (TOPIC, 1): (1, False), (TOPIC, 2): (2, False)}
    answer = {
        FIRST: ErrorCode.KAFKA_STORAGE_ERROR,
        (TOPIC, 1): ErrorCode.NONE,
        (TOPIC, 2): ErrorCode.KAFKA_STORAGE_ERROR,
    }
    cluster.do(cluster.states.replicas_answered(1, answer))
    assert cluster.leadership() == (2, 1, (2,), 1)
    assert cluster.leadership((TOPIC, 1)) == (1, 0, (1, 2), 0)
    assert cluster.leadership((TOPIC, 2)) == (2, 1, (2,), 1)
    assert cluster.last.update_metadata[2][FIRST][1] == (1,)
    cluster.do(cluster.states.replicas_answered(1, answer))  # no news
    cluster.do(cluster.states.replicas_answered(9, answer))
    assert cluster.leadership() == (2, 1, (2,), 1)
    cluster.down(1)
    cluster.up(1)
    assert cluster.last.update_metadata[1][FIRST][1] == ()


# --- deletion


def test_a_topic_is_deleted_when_all_its_replicas_are() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2), (2,))
    cluster.create((1,), topic="other")
    before = set(cluster.tree.nodes)
    cluster.delete()
    assert before - set(cluster.tree.nodes) == {path for path in before if TOPIC in path.split("/")}
    assert znodes.deleted_topic_path(TOPIC) not in cluster.tree.nodes
    assert cluster.told[1].replicas.keys() == {("other", 0)} == cluster.told[1].metadata.keys()
    batch = next(batch for batch in cluster.batches if batch.stop_replica)
    assert batch.stop_replica[1] == {FIRST: (EPOCH_DURING_DELETE, True)}
    assert batch.update_metadata[2][FIRST][0].leader == LEADER_DURING_DELETE
    cluster.create((2,))
    assert cluster.leadership() == (2, 0, (2,), 0)


def test_a_dead_broker_holds_up_a_deletion() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    cluster.down(2)
    cluster.delete()
    assert znodes.deleted_topic_path(TOPIC) in cluster.tree.nodes
    cluster.down(1)
    assert cluster.state().leader == 1  # nothing is decided on it any more
    cluster.up(1)
    cluster.do(cluster.fail_over())
    assert TOPIC in cluster.tree.topic_names()
    cluster.up(2)
    assert cluster.tree.topic_names() == []
    assert cluster.states.topics == {} and FIRST not in cluster.told[2].replicas


def test_a_replica_that_could_not_be_deleted_is_tried_again_when_its_broker_returns() -> None:
    cluster = Controlled(1)
    cluster.create((1,))
    cluster.states.delete_topics([TOPIC, "unknown"])
    assert cluster.states.pending() is not None
    cluster.states.replicas_deleted(1, {FIRST: ErrorCode.KAFKA_STORAGE_ERROR})
    assert cluster.states.pending() is None
    cluster.down(1)
    decision = cluster.states.brokers_up([registration(1)])
    assert decision.batch.stop_replica == {1: {FIRST: (EPOCH_DURING_DELETE, True)}}


def test_a_node_that_is_missing_does_not_hold_up_a_deletion() -> None:
    cluster = Controlled(1)
    cluster.create((1,))
    del cluster.tree.nodes[znodes.topic_config_path(TOPIC)]
    with pytest.raises(NoNode) as error:
        cluster.delete()
    cluster.states.note_node(error.value.path, exists=False)
    following = cluster.states.pending()
    assert following is not None
    cluster.do(following)
    assert cluster.tree.topic_names() == []


def test_a_large_topic_is_removed_in_parts_with_its_own_node_last() -> None:
    cluster = Controlled(1)
    cluster.create(*[(1,)] * 600)
    cluster.delete()
    assert cluster.tree.topic_names() == [] and cluster.states.topics == {}
    assert set(cluster.tree.nodes) == {znodes.CONTROLLER_EPOCH}


# --- another controller


def test_a_new_controller_tells_everybody_everything() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2), (3,), (2, 1))
    cluster.batches.clear()
    decision = cluster.fail_over()
    assert decision.changes == ()
    cluster.do(decision)
    assert led(cluster, 1) == {FIRST: (1, False), (TOPIC, 2): (2, False)}
    assert cluster.last.update_metadata[1].keys() == {FIRST, (TOPIC, 2)}
    assert cluster.states.controller_epoch == 2
    assert cluster.leadership() == (1, 0, (1, 2), 0)


def test_a_new_controller_elects_what_the_old_one_did_not() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2), (2,))
    del cluster.states.brokers[1]
    cluster.do(cluster.fail_over())
    assert cluster.leadership() == (2, 1, (2,), 1)
    assert cluster.state().controller_epoch == 2


def test_the_fence_is_checked_by_every_write() -> None:
    cluster = Controlled(1)
    cluster.tree.nodes[znodes.CONTROLLER_EPOCH] = (b"2", 2)
    cluster.tree.nodes[znodes.topic_path(TOPIC)] = (b"", 0)
    cluster.states.load_topic(TOPIC, TopicAssignment(bytes(16), {0: [1]}), 0, {})
    decision = cluster.states.elect_offline([TOPIC])
    with pytest.raises(BadVersion):
        cluster.tree.multi(decision.operations(1))
    assert cluster.tree.state(FIRST) is None


def test_a_replica_that_is_there_after_all_leads_where_nobody_does() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1,), (1, 2))
    everywhere = (FIRST, (TOPIC, 1))
    cluster.do(cluster.states.replicas_answered(1, dict.fromkeys(everywhere, ErrorCode.KAFKA_STORAGE_ERROR)))
    assert (cluster.leadership()[0], cluster.leadership((TOPIC, 1))[0]) == (-1, 2)
    cluster.do(cluster.states.replicas_answered(1, dict.fromkeys(everywhere, ErrorCode.NONE)))
    assert cluster.leadership() == (1, 2, (1,), 2)
    assert cluster.leadership((TOPIC, 1)) == (2, 1, (2,), 1)


def test_what_a_broker_answered_is_decided_again_when_it_could_not_be_written() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    answer = {FIRST: ErrorCode.KAFKA_STORAGE_ERROR}
    first = cluster.states.replicas_answered(1, answer)
    assert cluster.states.replicas_answered(1, answer).changes == first.changes != ()
    cluster.do(cluster.states.replicas_answered(1, answer))
    assert cluster.leadership() == (2, 1, (2,), 1)
    assert not cluster.states.replicas_answered(1, answer).batch  # no news


def test_nothing_is_left_of_a_topic_whose_nodes_are_gone() -> None:
    cluster = Controlled(1, 2, 3)
    cluster.create((1, 2))
    cluster.do(plan_reassignments(cluster.states, {FIRST: [3, 2]}))
    cluster.states.forget_topic(TOPIC)
    assert cluster.states.reassigned == set()
    assert (cluster.states.topics, cluster.states.topic_names) == ({}, {})
    assert cluster.states.pending() is None


def test_very_many_deletions_begin_a_part_at_a_time() -> None:
    cluster = Controlled(1)
    names = [f"topic-{number}" for number in range(2 * DELETIONS_PER_DECISION + 1)]
    for name in names:
        cluster.create((1,), topic=name)
    cluster.states.delete_topics(names)
    begun = []
    while (decision := cluster.states.pending()) is not None:
        begun.append([name for name, _ in decision.batch.stop_replica[1]])
    assert [len(part) for part in begun] == [DELETIONS_PER_DECISION, DELETIONS_PER_DECISION, 1]
    assert [name for part in begun for name in part] == names
