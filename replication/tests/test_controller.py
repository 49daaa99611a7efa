import pytest

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Check, Create, Delete, SetData
from ottla.replication.cluster.state import BrokerRegistration, ClusterState, PartitionState, TopicState
from ottla.replication.cluster.znodes import LeaderAndIsr
from ottla.replication.control import topics as module
from ottla.replication.control.topics import Controller, NewTopic, TopicPlan
from ottla.wire.errors import ErrorCode, KafkaError

TOPIC_ID = bytes(range(16))


def controller_of(*brokers: int) -> Controller:
    cluster = ClusterState()
    for broker in brokers:
        cluster.put_broker(BrokerRegistration(broker, {}))
    made = Controller(cluster, partition_count=2, replication_factor=1)
    made.epoch, made.epoch_version = 4, 3
    return made


def created(controller: Controller, name: str, partitions: int = 1) -> TopicState:
    plan = controller.plan_creation(
        NewTopic(name=name, partition_count=partitions, replication_factor=1), name.encode()
    )
    controller.begin(plan)
    controller.finish(plan)
    return controller.cluster.topics[name]


def refusal(controller: Controller, topic: NewTopic) -> tuple[ErrorCode, str | None]:
    with pytest.raises(KafkaError) as failure:
        controller.check_name(topic.name)
        controller.plan_creation(topic, TOPIC_ID)
    return failure.value.code, failure.value.message


def test_a_plan_writes_the_nodes_that_kafka_writes() -> None:
    controller = controller_of(1)
    topic = NewTopic(name="t", partition_count=2, replication_factor=1, configs={"retention.ms": "5"})
    plan = controller.plan_creation(topic, TOPIC_ID)
    (operations,) = controller.writes(plan)
    state = b'{"controller_epoch":4,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    assert operations == [
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
    assert plan.after is not None
    assert plan.after.partitions == (PartitionState(1, 0, (1,), (1,)),) * 2


def test_counts_of_minus_one_are_the_brokers_defaults() -> None:
    plan = controller_of(1).plan_creation(NewTopic(name="t"), TOPIC_ID)
    assert plan.after is not None
    assert [partition.replicas for partition in plan.after.partitions] == [(1,), (1,)]


def test_assignments_replace_counts() -> None:
    controller = controller_of(1, 2, 3)
    topic = NewTopic(name="t", assignments=[(1, [3, 1]), (0, [1, 2])])
    plan = controller.plan_creation(topic, TOPIC_ID)
    assert plan.after is not None
    assert [(each.leader, each.replicas) for each in plan.after.partitions] == [(1, (1, 2)), (3, (3, 1))]


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (NewTopic(name="a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a b' contains one or more"),
        (NewTopic(name="__cluster_metadata"), ErrorCode.INVALID_REQUEST, "Creation of internal topic __cluster_meta"),
        (NewTopic(name="old.topic"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old.topic' already exists."),
        (
            NewTopic(name="old_topic"),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic 'old_topic' collides with existing topic: old.topic",
        ),
        (
            NewTopic(name="t", partition_count=0, replication_factor=0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic(name="t", partition_count=0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic(name="t", replication_factor=3),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            (
                "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
                "only 2 broker(s) are registered or some brokers have all their log directories cordoned."
            ),
        ),
        (
            NewTopic(name="t", assignments=[(0, [1])], replication_factor=1),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic(name="t", assignments=[(0, [1])], partition_count=1),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic(name="t", assignments=[(0, [1]), (0, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic(name="t", assignments=[(0, [1]), (2, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic(name="t", assignments=[(0, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic(name="t", assignments=[(0, [9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            NewTopic(name="t", assignments=[(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic(name="t", assignments=[(0, [1]), (1, [1, 2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            (
                "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
                "previous partitions, which have 1 replica(s)."
            ),
        ),
    ],
)
def test_impossible_topics_are_refused_in_kafkas_words(topic: NewTopic, code: ErrorCode, message: str) -> None:
    controller = controller_of(1, 2)
    created(controller, "old.topic")
    found, text = refusal(controller, topic)
    assert found is code
    assert text is not None
    assert text.startswith(message)


def test_a_request_for_too_many_partitions_is_refused_as_a_whole() -> None:
    controller = controller_of(1)
    controller.check_partition_total([NewTopic(name="a", partition_count=9_998), NewTopic(name="b")])
    with pytest.raises(KafkaError) as failure:
        controller.check_partition_total([NewTopic(name="a", partition_count=9_999), NewTopic(name="b")])
    assert failure.value.code is ErrorCode.POLICY_VIOLATION


def test_a_planned_name_collides_until_it_is_abandoned() -> None:
    controller = controller_of(1)
    plan = controller.plan_creation(NewTopic(name="a.b"), TOPIC_ID)
    controller.begin(plan)
    with pytest.raises(KafkaError, match="collides with existing topic: a.b"):
        controller.check_name("a_b")
    controller.abandon(plan)
    controller.check_name("a_b")
    assert not controller.cluster.topics


def test_a_deleted_name_collides_no_more() -> None:
    controller = controller_of(1)
    created(controller, "a.b")
    plan = controller.plan_deletion("a.b")
    controller.begin(plan)
    controller.finish(plan)
    controller.check_name("a_b")
    assert not controller.cluster.topics


def test_partitions_are_added_behind_those_there_are() -> None:
    controller = controller_of(1)
    topic = created(controller, "t", 2)
    plan = controller.plan_partitions(controller.cluster.topics["t"], 3)
    assert plan.first_new == 2
    assert plan.after is not None
    assert plan.after.topic_id == topic.topic_id
    (operations,) = controller.writes(plan)
    assert [operation.path for operation in operations] == [
        "/controller_epoch",
        "/brokers/topics/t/partitions/2",
        "/brokers/topics/t/partitions/2/state",
        "/brokers/topics/t",
    ]
    assert isinstance(operations[-1], SetData)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "message"),
    [
        ("x", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS, "The topic t currently has 2 partition(s); 1 would not be an inc"),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            "t",
            4,
            [[1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        ("t", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty rep"),
        ("t", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes broker 9, but"),
        ("t", 20_000, None, ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."),
    ],
)
def test_partitions_that_cannot_be_added(
    name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode, message: str | None
) -> None:
    controller = controller_of(1)
    created(controller, "t", 2)
    with pytest.raises(KafkaError) as failure:
        controller.plan_partitions(controller.cluster.topics.get(name), count, assignments)
    assert failure.value.code is code
    assert message is None or (failure.value.message or "").startswith(message)


def test_a_deletion_removes_children_first() -> None:
    controller = controller_of(1)
    created(controller, "t", 1)
    (operations,) = controller.writes(controller.plan_deletion("t"))
    assert operations == [
        Check("/controller_epoch", 3),
        Delete("/brokers/topics/t/partitions/0/state"),
        Delete("/brokers/topics/t/partitions/0"),
        Delete("/brokers/topics/t/partitions"),
        Delete("/brokers/topics/t"),
        Delete("/config/topics/t"),
    ]


def test_a_large_topic_is_written_in_several_multis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTITIONS_PER_MULTI", 2)
    controller = controller_of(1)
    plan = controller.plan_creation(NewTopic(name="t", partition_count=5), TOPIC_ID)
    multis = list(controller.writes(plan))
    assert [len(multi) for multi in multis] == [9, 5, 4]
    assert all(multi[0] == Check("/controller_epoch", 3) for multi in multis)
    assert Create("/admin/delete_topics/t") in multis[0]  # until it is whole
    assert multis[-1][-1] == Delete("/admin/delete_topics/t")
    controller.begin(plan)
    controller.finish(plan)
    deletion = list(controller.writes(controller.plan_deletion("t")))
    assert deletion[0][1:] == [Create("/admin/delete_topics/t")]
    assert deletion[-1][-1] == Delete("/admin/delete_topics/t")
    deleted = {operation.path for multi in deletion[1:] for operation in multi[1:]}
    assert deleted == {operation.path for multi in multis for operation in multi[1:]}


def test_an_extension_in_several_multis_happens_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTITIONS_PER_MULTI", 2)
    controller = controller_of(1)
    created(controller, "t", 1)
    plan = controller.plan_partitions(controller.cluster.topics["t"], 6)
    multis = list(controller.writes(plan))
    paths = [[operation.path for operation in multi] for multi in multis]
    assert [path for multi in paths for path in multi if path == "/brokers/topics/t"] == [paths[-1][-1]]
    rest = list(controller.extension_rest("t", [3, 4, 5]))
    assert [len(multi) for multi in rest] == [5, 3]
    assert rest[0][1] == Delete("/brokers/topics/t/partitions/3/state")


def test_taking_over_gives_every_partition_a_new_leader_epoch() -> None:
    controller = controller_of(1, 2)
    known = LeaderAndIsr(leader=3, leader_epoch=7, isr=[3, 2], controller_epoch=1)
    state = controller.elect([1, 2, 3], known, 5)
    assert state == PartitionState(leader=2, leader_epoch=8, replicas=(1, 2, 3), isr=(2,), partition_epoch=6)
    (operation,) = controller.state_operation("t", 0, state, exists=True)
    assert isinstance(operation, SetData)
    assert operation.version == 5
    assert znodes.decode_state(operation.data) == LeaderAndIsr(2, 8, [2], 4)


def test_a_partition_without_a_live_replica_in_sync_has_no_leader() -> None:
    known = LeaderAndIsr(leader=3, leader_epoch=7, isr=[3], controller_epoch=1)
    state = controller_of(1).elect([1, 3], known, 5)
    assert (state.leader, state.isr) == (-1, (3,))


def test_a_partition_whose_state_was_never_written_gets_its_first() -> None:
    controller = controller_of(1)
    state = controller.elect([1], None, 0)
    assert state == PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    assert [type(each) for each in controller.state_operation("t", 0, state, exists=False)] == [Create, Create]


def test_a_plan_knows_its_name() -> None:
    controller = controller_of(1)
    topic = created(controller, "t")
    assert TopicPlan(before=topic, after=None).name == "t"
    assert TopicPlan(before=None, after=topic).name == "t"
