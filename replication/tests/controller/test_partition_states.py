import pytest

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import BadVersion, Check, Create, NodeExists, NoNode
from ottla.replication.cluster.metadata_cache import NO_LEADER, RECOVERING
from ottla.replication.cluster.znodes import TopicAssignment
from ottla.replication.controller.decisions import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    Decision,
    TopicCreation,
    TopicExtension,
)
from ottla.replication.controller.partition_states import DELETIONS_PER_DECISION, FIRST_STATES_PER_WRITE
from ottla.replication.controller.reassignment import plan_reassignments
from ottla.replication.tests.controlled import FIRST, TOPIC, Controlled, at_once, registration
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
    decision = at_once(cluster.states.topic_changed(TOPIC, more, 0))
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


# --- topics that are created and extended by request

TOPIC_ID = bytes(range(16))


def create_topic(cluster: Controlled, *replicas: tuple[int, ...], **configs: str) -> TopicCreation:
    """A creation that is carried out."""
    creation = cluster.states.create_topic(TOPIC, TOPIC_ID, replicas, configs)
    cluster.do(cluster.states.decision([creation]))
    return creation


def add_partitions(cluster: Controlled, *replicas: tuple[int, ...]) -> TopicExtension:
    """An extension that is carried out."""
    extension = cluster.states.add_partitions(TOPIC, replicas)
    cluster.do(cluster.states.decision([extension]))
    return extension


def test_a_creation_writes_the_nodes_that_kafka_writes() -> None:
    cluster = Controlled(1)
    creation = cluster.states.create_topic(TOPIC, TOPIC_ID, [(1,), (1,)], {"retention.ms": "5"})
    decision = cluster.states.decision([creation])
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    assert decision.operations(3) == [
        Check("/controller_epoch", 3),
        Create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}'),
        Create(
            "/brokers/topics/t",
            b'{"version":3,"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":[1],"1":[1]},'
            b'"adding_replicas":{},"removing_replicas":{}}',
        ),
        Create("/brokers/topics/t/partitions"),
        Create("/brokers/topics/t/partitions/0"),
        Create("/brokers/topics/t/partitions/0/state", state),
        Create("/brokers/topics/t/partitions/1"),
        Create("/brokers/topics/t/partitions/1/state", state),
    ]
    assert decision.is_refusable
    assert cluster.states.topics == {}  # not before it is written


def test_a_created_topic_is_led_and_told_of() -> None:
    cluster = Controlled(1, 2)
    create_topic(cluster, (1, 2), (3, 2))
    assert cluster.leadership() == (1, 0, (1, 2), 0)
    assert cluster.leadership((TOPIC, 1)) == (2, 0, (2,), 0)
    assert led(cluster, 2) == {FIRST: (1, True), (TOPIC, 1): (2, True)}
    assert cluster.told[1].metadata.keys() == {FIRST, (TOPIC, 1)}
    assert cluster.last.update_metadata[1][TOPIC, 1][1] == (3,)
    assert cluster.states.topic_names == {TOPIC_ID: TOPIC}
    assert cluster.states.topics[TOPIC].version == 0


def test_created_partitions_without_a_live_replica_wait_for_one() -> None:
    cluster = Controlled(1)
    create_topic(cluster, (2, 3), (1,))
    assert cluster.tree.state(FIRST) is None
    assert cluster.leadership((TOPIC, 1)) == (1, 0, (1,), 0)
    cluster.up(3)
    assert cluster.leadership() == (3, 0, (3,), 0)
    assert led(cluster, 3) == {FIRST: (3, True)}


def test_a_topic_that_exists_is_not_created_again() -> None:
    cluster = Controlled(1)
    create_topic(cluster, (1,))
    with pytest.raises(KafkaError) as refusal:
        create_topic(cluster, (1,))
    assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert refusal.value.message == "Topic 't' already exists."


def test_a_topic_whose_node_is_there_is_not_created_and_may_be_tried_again() -> None:
    cluster = Controlled(1)
    cluster.tree.nodes[znodes.topic_path(TOPIC)] = (b"", 0)
    with pytest.raises(NodeExists) as error:
        create_topic(cluster, (1,))
    assert error.value.path == znodes.topic_path(TOPIC)
    cluster.states.note_node(error.value.path, exists=True)
    with pytest.raises(KafkaError) as refusal:
        create_topic(cluster, (1,))
    assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    del cluster.tree.nodes[znodes.topic_path(TOPIC)]
    create_topic(cluster, (1,))
    assert cluster.leadership() == (1, 0, (1,), 0)


def test_settings_that_an_earlier_topic_has_left_give_way() -> None:
    cluster = Controlled(1)
    path = znodes.topic_config_path(TOPIC)
    cluster.tree.nodes[path] = (znodes.encode_config({"retention.ms": "9"}), 4)
    with pytest.raises(NodeExists):
        create_topic(cluster, (1,), segment_ms="8")
    cluster.states.note_node(path, exists=True)
    assert create_topic(cluster, (1,), segment_ms="8").has_settings
    assert znodes.decode_config(cluster.tree.nodes[path][0]) == {"segment_ms": "8"}
    assert cluster.states.nodes == {}  # what is known of nodes is of no use any more


def test_a_topic_that_could_not_be_written_is_not_known() -> None:
    cluster = Controlled(1)
    cluster.tree.nodes[znodes.CONTROLLER_EPOCH] = (b"2", 2)
    decision = cluster.states.decision([cluster.states.create_topic(TOPIC, TOPIC_ID, [(1,)], {})])
    with pytest.raises(BadVersion):
        cluster.tree.multi(decision.operations(1))
    assert cluster.states.topics == {}
    assert cluster.states.topic(TOPIC) is None


def test_partitions_are_added_behind_those_there_are() -> None:
    cluster = Controlled(1, 2)
    create_topic(cluster, (1, 2))
    extension = cluster.states.add_partitions(TOPIC, [(2, 1), (1,)])
    assert [operation.path for operation in extension.operations] == [
        "/brokers/topics/t",
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/1/state",
        "/brokers/topics/t/partitions/2",
        "/brokers/topics/t/partitions/2/state",
    ]
    decision = cluster.states.decision([extension])
    assert decision.is_refusable
    assert len(cluster.states.topics[TOPIC].partitions) == 1  # not before it is written
    cluster.do(decision)
    assert cluster.leadership() == (1, 0, (1, 2), 0)
    assert cluster.leadership((TOPIC, 1)) == (2, 0, (2, 1), 0)
    assert cluster.leadership((TOPIC, 2)) == (1, 0, (1,), 0)
    assert led(cluster, 1) == {(TOPIC, 1): (2, True), (TOPIC, 2): (1, True)}
    assert cluster.states.topics[TOPIC].version == 1
    assert cluster.tree.topic(TOPIC)[0].partitions == {0: [1, 2], 1: [2, 1], 2: [1]}


def test_partitions_of_a_topic_that_never_had_a_leader_are_added_with_the_node_above_them() -> None:
    cluster = Controlled(1)
    create_topic(cluster, (2,))
    assert znodes.partitions_path(TOPIC) not in cluster.tree.nodes
    add_partitions(cluster, (2,), (1,))
    assert cluster.leadership((TOPIC, 2)) == (1, 0, (1,), 0)
    cluster.up(2)
    assert [cluster.leadership((TOPIC, index))[0] for index in range(3)] == [2, 2, 1]


def test_nodes_that_were_left_do_not_hold_up_an_extension() -> None:
    cluster = Controlled(1)
    create_topic(cluster, (1,))
    path = znodes.partition_path(TOPIC, 1)
    cluster.tree.nodes[path] = (b"", 0)
    with pytest.raises(NodeExists) as error:
        add_partitions(cluster, (1,))
    assert error.value.path == path
    cluster.states.note_node(path, exists=True)
    add_partitions(cluster, (1,))
    assert cluster.leadership((TOPIC, 1)) == (1, 0, (1,), 0)


def test_an_extension_on_a_topic_that_a_tool_has_written_is_not_done() -> None:
    cluster = Controlled(1)
    create_topic(cluster, (1,))
    data, version = cluster.tree.nodes[znodes.topic_path(TOPIC)]
    cluster.tree.nodes[znodes.topic_path(TOPIC)] = (data, version + 1)
    with pytest.raises(BadVersion):
        add_partitions(cluster, (1,))
    assert cluster.tree.state((TOPIC, 1)) is None
    assert cluster.states.partition((TOPIC, 1)) is None


def test_of_very_many_new_partitions_the_first_get_their_states_at_once_and_the_others_later() -> None:
    cluster = Controlled(1)
    count = FIRST_STATES_PER_WRITE + 3
    assert len(create_topic(cluster, *[(1,)] * count).states) == FIRST_STATES_PER_WRITE
    assert len(cluster.states.topics[TOPIC].partitions) == count
    without = [index for index in range(count) if cluster.tree.state((TOPIC, index)) is None]
    assert without == list(range(FIRST_STATES_PER_WRITE, count))
    cluster.do(cluster.states.elect_new(TOPIC, without))
    assert [cluster.leadership((TOPIC, index)) for index in without] == [(1, 0, (1,), 0)] * 3
    assert cluster.last.update_metadata[1].keys() == {(TOPIC, index) for index in without}
    assert len(add_partitions(cluster, *[(1,)] * count).states) == FIRST_STATES_PER_WRITE
    cluster.do(cluster.states.elect_new(TOPIC, range(count, 2 * count)))
    assert all(cluster.tree.state((TOPIC, index)) for index in range(2 * count))


def test_only_partitions_without_a_state_get_a_first_one() -> None:
    cluster = Controlled(1, 2)
    create_topic(cluster, (1, 2), (3,))
    cluster.down(2)
    cluster.down(1)
    cluster.up(2)
    assert cluster.leadership()[0] == NO_LEADER  # 1 has to return
    assert cluster.states.elect_new(TOPIC, range(2)).changes == ()
    assert cluster.states.elect_new("unknown", range(2)).changes == ()
    cluster.states.delete_topics([TOPIC])
    cluster.states.load_broker(registration(3))
    assert cluster.states.elect_new(TOPIC, range(2)).changes == ()


def test_a_topic_is_shown_as_it_was_decided_last() -> None:
    cluster = Controlled(1, 2)
    assert cluster.states.topic(TOPIC) is None
    create_topic(cluster, (1, 2), (2,))
    topic = cluster.states.topic(TOPIC)
    assert topic is not None
    assert (topic.name, topic.topic_id, topic.is_internal) == (TOPIC, TOPIC_ID, False)
    assert [each.replicas for each in topic.partitions] == [(1, 2), (2,)]
    cluster.down(1)
    topic = cluster.states.topic(TOPIC)
    assert topic is not None
    assert topic.partitions[0].leader == 2


def test_a_topic_that_is_being_reassigned_or_deleted_is_not_shown_to_be_extended() -> None:
    cluster = Controlled(1, 2, 3)
    create_topic(cluster, (1, 2))
    cluster.do(plan_reassignments(cluster.states, {FIRST: [3, 2]}))
    with pytest.raises(KafkaError) as refusal:
        cluster.states.topic(TOPIC)
    assert refusal.value.code is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert refusal.value.message == "A partition reassignment is in progress for the topic 't'."
    cluster.states.delete_topics([TOPIC])
    with pytest.raises(KafkaError) as refusal:
        cluster.states.topic(TOPIC)
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_only_creations_and_extensions_can_be_refused() -> None:
    cluster = Controlled(1)
    assert not Decision().is_refusable
    create_topic(cluster, (1,), (2,))
    extension = cluster.states.add_partitions(TOPIC, [(1,)])
    state = cluster.states.change((TOPIC, 1), cluster.state((TOPIC, 1)))
    assert not cluster.states.decision([extension, state]).is_refusable


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
    decision = at_once(cluster.states.brokers_up([registration(1)]))
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


def test_a_controller_that_is_the_only_broker_gives_what_it_leads_a_new_epoch() -> None:
    cluster = Controlled(1)
    cluster.create((1,), (2, 1), (2,))
    cluster.batches.clear()
    cluster.do(cluster.fail_over())
    assert cluster.leadership() == (1, 1, (1,), 1)
    assert cluster.leadership((TOPIC, 1)) == (1, 1, (1,), 1)
    assert cluster.tree.state((TOPIC, 2)) is None
    assert cluster.state().controller_epoch == 2
    assert led(cluster, 1) == {FIRST: (1, False), (TOPIC, 1): (1, False)}
    assert cluster.told[1].metadata[FIRST].leader_epoch == 1
    cluster.do(cluster.fail_over())
    assert cluster.leadership() == (1, 2, (1,), 2)


def test_the_last_broker_keeps_the_epochs_of_what_it_has_led_all_the_time() -> None:
    """With a new epoch consumers could not see the end of the log until enough replicas are in sync."""
    cluster = Controlled(1, 2)
    cluster.create((1, 2), (1,))
    cluster.down(2)
    assert cluster.leadership() == (1, 1, (1,), 1)
    known = {FIRST: 1}
    cluster.do(cluster.fail_over(lambda partition, leader_epoch: known.get(partition) == leader_epoch))
    assert cluster.leadership() == (1, 1, (1,), 1)
    assert cluster.leadership((TOPIC, 1)) == (1, 1, (1,), 1)


def test_the_only_broker_gives_no_epoch_to_what_others_led() -> None:
    cluster = Controlled(1, 2)
    cluster.create((2, 1), (2,))
    cluster.down(1)
    cluster.up(1)  # it is not in sync
    del cluster.states.brokers[2]
    cluster.do(cluster.fail_over())
    assert cluster.leadership() == (NO_LEADER, 2, (2,), 2)
    assert cluster.leadership((TOPIC, 1)) == (NO_LEADER, 1, (2,), 1)


def test_the_only_broker_hears_who_lives_and_what_it_leads_in_one_batch() -> None:
    cluster = Controlled(1)
    cluster.create((1,))
    decision = cluster.fail_over()
    assert decision.batch.update_metadata == {1: {}}
    assert decision.batch.introduced == set()  # there is nobody to follow


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
    decision = at_once(cluster.states.elect_offline([TOPIC]))
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


def test_one_answer_may_tell_of_a_replica_that_is_lost_and_of_one_that_is_there_after_all() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1,), (1, 2))
    cluster.do(cluster.states.replicas_answered(1, {FIRST: ErrorCode.KAFKA_STORAGE_ERROR}))
    assert (cluster.leadership()[0], cluster.leadership((TOPIC, 1))[0]) == (-1, 1)
    answer = {FIRST: ErrorCode.NONE, (TOPIC, 1): ErrorCode.KAFKA_STORAGE_ERROR}
    cluster.do(cluster.states.replicas_answered(1, answer))
    assert (cluster.leadership()[0], cluster.leadership((TOPIC, 1))[0]) == (1, 2)
    assert cluster.states.offline[1] == {(TOPIC, 1)}


def test_an_answer_about_many_replicas_is_looked_at_in_steps() -> None:
    cluster = Controlled(1, 2)
    cluster.create(*[(1, 2)] * 20)
    answer = {(TOPIC, index): ErrorCode.KAFKA_STORAGE_ERROR for index in range(20)}
    # One to look at each, one to decide; also when it comes once more because its decision could not be written.
    for _ in range(2):
        assert sum(1 for _ in cluster.states.replicas_answered(1, answer)) >= 40
    cluster.do(cluster.states.replicas_answered(1, answer))
    assert {cluster.leadership((TOPIC, index))[0] for index in range(20)} == {2}


def test_what_a_broker_answered_is_decided_again_when_it_could_not_be_written() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1, 2))
    answer = {FIRST: ErrorCode.KAFKA_STORAGE_ERROR}
    first = at_once(cluster.states.replicas_answered(1, answer))
    assert at_once(cluster.states.replicas_answered(1, answer)).changes == first.changes != ()
    cluster.do(cluster.states.replicas_answered(1, answer))
    assert cluster.leadership() == (2, 1, (2,), 1)
    assert not at_once(cluster.states.replicas_answered(1, answer)).batch  # no news


def test_a_replica_that_is_there_after_all_is_elected_again_when_that_could_not_be_written() -> None:
    cluster = Controlled(1, 2)
    cluster.create((1,), (2,))
    cluster.do(cluster.states.replicas_answered(1, {FIRST: ErrorCode.KAFKA_STORAGE_ERROR}))
    answer = {FIRST: ErrorCode.NONE}
    first = at_once(cluster.states.replicas_answered(1, answer))
    assert at_once(cluster.states.replicas_answered(1, answer)).changes == first.changes != ()
    cluster.do(cluster.states.replicas_answered(1, answer))
    assert cluster.leadership()[0] == 1
    assert not at_once(cluster.states.replicas_answered(1, answer)).changes  # it leads


def test_nothing_is_left_of_a_topic_whose_nodes_are_gone() -> None:
    cluster = Controlled(1, 2, 3)
    cluster.create((1, 2))
    cluster.do(plan_reassignments(cluster.states, {FIRST: [3, 2]}))
    cluster.states.forget_topic(TOPIC)
    assert cluster.states.reassigned == set()
    assert (cluster.states.topics, cluster.states.topic_names) == ({}, {})
    assert cluster.states.pending() is None


@pytest.mark.thorough
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
