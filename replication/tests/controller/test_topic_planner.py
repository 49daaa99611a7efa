import pytest

from ottla.replication.cluster.metadata_cache import BrokerRegistration, MetadataCache, PartitionState, TopicState
from ottla.replication.controller import topic_planner
from ottla.replication.controller.topic_planner import NewTopic, TopicPlanner, place_replicas
from ottla.wire.errors import ErrorCode, KafkaError

TOPIC_ID = bytes(range(16))


def planner_of(*brokers: int) -> TopicPlanner:
    cluster = MetadataCache()
    for broker in brokers:
        cluster.put_broker(BrokerRegistration(broker, {}))
    return TopicPlanner(cluster, partition_count=2, replication_factor=1)


def created(planner: TopicPlanner, name: str, partitions: int = 1) -> TopicState:
    """A topic that was planned and is shown by the cluster."""
    plan = planner.plan_creation(NewTopic(name=name, partition_count=partitions, replication_factor=1), name.encode())
    planner.begin(plan)
    planner.cluster.put_topic(plan.after)
    planner.abandon(plan)
    return planner.cluster.topics[name]


def refusal(planner: TopicPlanner, topic: NewTopic) -> tuple[ErrorCode, str | None]:
    with pytest.raises(KafkaError) as failure:
        planner.check_name(topic.name)
        planner.plan_creation(topic, TOPIC_ID)
    return failure.value.code, failure.value.message


def test_a_plan_is_the_topic_as_it_will_be() -> None:
    planner = planner_of(1)
    topic = NewTopic(name="t", partition_count=2, replication_factor=1, configs={"retention.ms": "5"})
    plan = planner.plan_creation(topic, TOPIC_ID)
    assert (plan.name, plan.before, plan.first_new, plan.configs) == ("t", None, 0, {"retention.ms": "5"})
    assert (plan.after.topic_id, plan.after.is_internal) == (TOPIC_ID, False)
    assert plan.after.partitions == (PartitionState(1, 0, (1,), (1,)),) * 2
    assert not planner.cluster.topics


def test_a_plan_for_a_topic_of_the_broker_itself_says_that_it_is_internal() -> None:
    planner = planner_of(1)
    assert planner.plan_creation(NewTopic(name="__consumer_offsets"), TOPIC_ID).after.is_internal


def test_counts_of_minus_one_are_the_brokers_defaults() -> None:
    plan = planner_of(1).plan_creation(NewTopic(name="t"), TOPIC_ID)
    assert [partition.replicas for partition in plan.after.partitions] == [(1,), (1,)]


def test_assignments_replace_counts() -> None:
    planner = planner_of(1, 2, 3)
    topic = NewTopic(name="t", assignments=[(1, [3, 1]), (0, [1, 2])])
    plan = planner.plan_creation(topic, TOPIC_ID)
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
    planner = planner_of(1, 2)
    created(planner, "old.topic")
    found, text = refusal(planner, topic)
    assert found is code
    assert text is not None
    assert text.startswith(message)


def test_a_request_for_too_many_partitions_is_refused_as_a_whole() -> None:
    planner = planner_of(1)
    planner.check_partition_total([NewTopic(name="a", partition_count=9_998), NewTopic(name="b")])
    with pytest.raises(KafkaError) as failure:
        planner.check_partition_total([NewTopic(name="a", partition_count=9_999), NewTopic(name="b")])
    assert failure.value.code is ErrorCode.POLICY_VIOLATION


def test_a_planned_name_collides_until_it_is_abandoned() -> None:
    planner = planner_of(1)
    plan = planner.plan_creation(NewTopic(name="a.b"), TOPIC_ID)
    planner.begin(plan)
    with pytest.raises(KafkaError, match="collides with existing topic: a.b"):
        planner.check_name("a_b")
    planner.abandon(plan)
    planner.check_name("a_b")
    assert not planner.cluster.topics


def test_a_planned_name_collides_on_when_the_cluster_shows_its_topic() -> None:
    planner = planner_of(1)
    created(planner, "a.b")
    with pytest.raises(KafkaError, match="collides with existing topic: a.b"):
        planner.check_name("a_b")


def test_a_plan_that_is_abandoned_twice_does_not_give_up_a_later_one() -> None:
    planner = planner_of(1)
    first, second = (planner.plan_creation(NewTopic(name="a.b"), topic_id) for topic_id in (TOPIC_ID, bytes(15) + b"2"))
    planner.begin(first)
    planner.abandon(first)
    planner.begin(second)
    planner.abandon(first)
    assert planner.is_planned("a.b")
    with pytest.raises(KafkaError, match="collides with existing topic: a.b"):
        planner.check_name("a_b")


def test_a_deleted_name_collides_no_more() -> None:
    planner = planner_of(1)
    created(planner, "a.b")
    planner.cluster.remove_topic("a.b")
    planner.check_name("a_b")


def test_partitions_are_added_behind_those_there_are() -> None:
    planner = planner_of(1)
    topic = created(planner, "t", 2)
    plan = planner.plan_partitions(planner.cluster.topics["t"], 3)
    assert plan.first_new == 2
    assert plan.before is topic
    assert plan.after.topic_id == topic.topic_id
    assert plan.after.partitions == (*topic.partitions, PartitionState(1, 0, (1,), (1,)))
    assert len(planner.cluster.topics["t"].partitions) == 2


def test_more_partitions_have_as_many_replicas_as_the_first() -> None:
    planner = planner_of(1, 2, 3)
    plan = planner.plan_creation(NewTopic(name="t", partition_count=1, replication_factor=2), TOPIC_ID)
    planner.cluster.put_topic(plan.after)
    assert [len(each.replicas) for each in planner.plan_partitions(plan.after, 4).after.partitions] == [2] * 4
    assigned = planner.plan_partitions(plan.after, 2, [[3, 1]])
    assert assigned.after.partitions[1] == PartitionState(3, 0, (3, 1), (3, 1))


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
    ],
)
def test_partitions_that_cannot_be_added(
    name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode, message: str | None
) -> None:
    planner = planner_of(1)
    created(planner, "t", 2)
    with pytest.raises(KafkaError) as failure:
        planner.plan_partitions(planner.cluster.topics.get(name), count, assignments)
    assert failure.value.code is code
    assert message is None or (failure.value.message or "").startswith(message)


def test_a_request_to_add_too_many_partitions_is_refused_as_a_whole() -> None:
    planner = planner_of(1)
    created(planner, "t", 2)
    created(planner, "u", 1)
    planner.check_extension_total([("t", 5_002), ("u", 5_001), ("unknown", 20_000), ("t", 1), ("u", -20_000)])
    with pytest.raises(KafkaError) as failure:
        planner.check_extension_total([("t", 5_002), ("u", 5_002)])
    assert failure.value.code is ErrorCode.POLICY_VIOLATION


def test_leaders_and_followers_are_spread_evenly() -> None:
    placed = place_replicas(dict.fromkeys((1, 2, 3, 4)), partition_count=24, replication_factor=3)
    assert all(len(set(replicas)) == 3 for replicas in placed)
    for position in range(3):
        held = [replicas[position] for replicas in placed]
        assert {held.count(broker) for broker in (1, 2, 3, 4)} == {6}
    followers_of_1 = {replicas[1:] for replicas in placed if replicas[0] == 1}
    assert len(followers_of_1) > 1


def test_neighbours_come_from_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place_replicas(racks, partition_count=6, replication_factor=3)
    assert all(len({racks[broker] for broker in replicas}) == 3 for replicas in placed)


def test_a_single_broker_takes_everything() -> None:
    assert place_replicas({7: None}, partition_count=3, replication_factor=1, start=5) == [(7,)] * 3


@pytest.mark.parametrize(
    ("brokers", "factor", "message"),
    [
        ((1,), 0, "Invalid replication factor 0: the replication factor must be positive."),
        ((), 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (
            (1,),
            3,
            (
                "The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some "
                "brokers have all their log directories cordoned."
            ),
        ),
    ],
)
def test_impossible_factors_are_refused(brokers: tuple[int, ...], factor: int, message: str) -> None:
    with pytest.raises(KafkaError) as failure:
        place_replicas(dict.fromkeys(brokers), partition_count=1, replication_factor=factor)
    assert failure.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert failure.value.message == message


def test_a_broker_that_is_down_gets_replicas_that_no_live_one_can_have() -> None:
    planner = planner_of(1, 2, 3)
    planner.cluster.put_brokers([BrokerRegistration(1, {}), BrokerRegistration(3, {})], controller_id=1)
    plan = planner.plan_creation(NewTopic(name="t", partition_count=2, replication_factor=3), TOPIC_ID)
    assert plan.after.partitions == (PartitionState(1, 0, (1, 3, 2), (1, 3)), PartitionState(3, 0, (3, 1, 2), (3, 1)))
    two = planner.plan_creation(NewTopic(name="u", partition_count=1, replication_factor=2), TOPIC_ID)
    assert set(two.after.partitions[0].replicas) == {1, 3}
    code, message = refusal(planner, NewTopic(name="v", replication_factor=4))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR and "because only 3 broker(s) are registered" in str(message)
    planner.cluster.put_brokers([], controller_id=1)
    assert "All brokers are currently fenced" in str(refusal(planner, NewTopic(name="v", replication_factor=1))[1])


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_ten_thousand_partitions_take_no_more_thought_than_one_round(
    monkeypatch: pytest.MonkeyPatch, factor: int
) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: None}
    one_by_one = [
        place_replicas(racks, partition_count=1, replication_factor=factor, start=start)[0] for start in range(5, 105)
    ]
    choose, chosen = topic_planner._replicas, []
    monkeypatch.setattr(topic_planner, "_replicas", lambda *given: chosen.append(given) or choose(*given))
    assert place_replicas(racks, partition_count=100, replication_factor=factor, start=5) == one_by_one
    place_replicas(racks, partition_count=10_000, replication_factor=factor)
    assert len(chosen) == 24
