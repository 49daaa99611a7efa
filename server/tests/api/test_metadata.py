from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration, PartitionState, TopicState
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.api.handlers import metadata as module
from ottla.server.network.large_requests import ANSWERS_MAX, LongAnswers
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.wire.answers import EncodedAnswer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
)
from ottla.wire.tests.turns import counted_turns


async def asked(
    broker: AdministeredBroker, names: list[str] | None, *, version: int = 12, **options: Any
) -> MetadataResponse:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return await ask(broker, MetadataRequest(topics=topics, **options), version)


async def ask(broker: AdministeredBroker, request: MetadataRequest, version: int = 12) -> MetadataResponse:
    response = module.metadata(request, broker.context(version))
    if not isinstance(response, MetadataResponse | EncodedAnswer):
        response = await response
    return MetadataResponse.decode(response.body, version) if isinstance(response, EncodedAnswer) else response


def told(response: MetadataResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


async def test_a_topic_is_told_with_its_leaders(tmp_path: Path) -> None:
    broker = await opened(tmp_path, rack="r")
    await broker.administration.create_topics([NewTopic(name="t", partition_count=2)])
    response = await asked(broker, ["t"])
    assert response.brokers == [MetadataResponseBroker(node_id=1, host="host-1", port=9092, rack="r")]
    assert (response.cluster_id, response.controller_id) == (broker.cluster.cluster_id, 1)
    (topic,) = response.topics
    assert (topic.name, topic.topic_id, topic.is_internal) == ("t", broker.cluster.topics["t"].topic_id, False)
    assert topic.partitions[1] == MetadataResponsePartition(
        error_code=0, partition_index=1, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
    )


async def test_null_means_all_topics_and_an_empty_list_none(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t"), NewTopic(name="u")])
    for version in (1, 12):
        assert told(await asked(broker, None, version=version)) == [("t", 0), ("u", 0)]
        assert told(await asked(broker, [], version=version)) == []
    assert told(await asked(broker, [], version=0)) == [("t", 0), ("u", 0)]


async def test_names_are_told_once_those_that_exist_first(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t")])
    response = await asked(broker, ["x", "a b", "t", "x", "t"], allow_auto_topic_creation=False)
    assert told(response) == [
        ("t", 0),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


async def test_ids_are_looked_up_and_unknown_ones_told_first(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t")])
    known = broker.cluster.topics["t"].topic_id
    topics = [MetadataRequestTopic(topic_id=each, name="ignored") for each in (known, b"x" * 16)]
    response = await ask(broker, MetadataRequest(topics=topics))
    assert told(response) == [(None, ErrorCode.UNKNOWN_TOPIC_ID), ("t", 0)]
    assert response.topics[0].topic_id == b"x" * 16


async def test_ids_and_null_names_before_their_version_are_refused(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    for topic in (MetadataRequestTopic(name=None), MetadataRequestTopic(topic_id=b"x" * 16, name="t")):
        response = await ask(broker, MetadataRequest(topics=[topic]), 10)
        assert told(response) == [(topic.name or "", ErrorCode.INVALID_REQUEST)]
        assert response.brokers == []
    response = await ask(broker, MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 13)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_missing_topic_is_created_if_request_and_broker_allow_it(tmp_path: Path) -> None:
    for allowed, enabled, is_created in ((True, "true", True), (False, "true", False), (True, "false", False)):
        directory = tmp_path / f"{allowed}-{enabled}"
        directory.mkdir()
        broker = await opened(directory, {"auto.create.topics.enable": enabled})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.administration.run)
            response = await asked(broker, ["t", "a b"], allow_auto_topic_creation=allowed)
            assert ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) in told(response)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert ("t" in broker.cluster.topics) == is_created


async def test_operations_are_told_on_request(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name="t")])
    response = await asked(
        broker,
        ["t", "x"],
        version=10,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert [topic.topic_authorized_operations for topic in response.topics] == [3576] * 2
    assert response.cluster_authorized_operations == 8096
    assert (await asked(broker, ["t"])).topics[0].topic_authorized_operations == -(1 << 31)


async def test_partitions_whose_brokers_are_away(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    elsewhere = BrokerEndpoint(2, "h", 1)
    broker.cluster.put_broker(BrokerRegistration(2, {"OTHER": elsewhere}))
    leaders = (1, 2, 3)
    states = tuple(PartitionState(leader, 5, (1, 2, 3), (1, 2)) for leader in leaders)
    broker.cluster.put_topic(TopicState("t", b"t" * 16, states))

    async def partitions(version: int) -> list[tuple[int, int, list[int], list[int], list[int]]]:
        (topic,) = (await asked(broker, ["t"], version=version)).topics
        return [
            (each.error_code, each.leader_id, each.replica_nodes, each.isr_nodes, each.offline_replicas)
            for each in topic.partitions
        ]

    everybody = ([1, 2, 3], [1, 2], [2, 3])
    assert await partitions(12) == [
        (ErrorCode.NONE, 1, *everybody),
        (ErrorCode.LISTENER_NOT_FOUND, -1, *everybody),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1, *everybody),
    ]
    assert [each[0] for each in await partitions(5)] == [0, 5, 5]
    assert [each[:4] for each in await partitions(0)] == [
        (ErrorCode.REPLICA_NOT_AVAILABLE, 1, [1], [1]),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1], [1]),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1, [1], [1]),
    ]


async def test_a_long_answer_gives_way_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PARTITIONS_PER_SLICE", 100)
    broker = await opened(tmp_path)
    state = PartitionState(1, 0, (1,), (1,))
    for number in range(50):
        broker.cluster.put_topic(TopicState(f"t{number}", number.to_bytes(16), (state,) * 100))
    async with counted_turns() as turns:
        response = await asked(broker, None)
    assert [topic.name for topic in response.topics] == [f"t{number}" for number in range(50)]
    assert sum(len(topic.partitions) for topic in response.topics) == 5000
    assert turns.count > 10


@pytest.mark.parametrize("version", [5, 12])
async def test_very_many_names_are_read_looked_up_and_refused_in_slices(tmp_path: Path, version: int) -> None:
    broker = await opened(tmp_path)
    names = [f"t{number}" for number in range(20 * module.NAMES_PER_SLICE)]
    topics = [MetadataRequestTopic(name=name) for name in names]
    async with counted_turns() as turns:
        response = await ask(broker, MetadataRequest(topics=topics, allow_auto_topic_creation=False), version)
    assert told(response) == [(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in names]
    assert turns.count > 30  # tasks of a turn run in any order
    topics[-1].name = None
    code = ErrorCode.INVALID_REQUEST if version < module.ASK_BY_ID_SINCE else ErrorCode.UNKNOWN_SERVER_ERROR
    async with counted_turns() as turns:
        response = await module.metadata(MetadataRequest(topics=topics), broker.context(version))
    assert (response.error_code, len(response.topics)) == (code, len(topics))
    assert {topic.error_code for topic in response.topics} == {code}
    assert turns.count > 30  # tasks of a turn run in any order


async def test_a_long_answer_about_all_topics_is_kept_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PARTITIONS_PER_SLICE", 10)
    broker = await opened(tmp_path)
    state = PartitionState(1, 0, (1,), (1,))
    broker.cluster.put_topic(TopicState("t", bytes(15) + b"t", (state,) * 50))

    async def is_kept(version: int = 12, **options: bool) -> bool:
        """Whether the answer is there at once; if not, it is from now on."""
        answer = module.metadata(MetadataRequest(topics=None, **options), broker.context(version))
        assert not isinstance(answer, MetadataResponse)
        if isinstance(answer, EncodedAnswer):
            return True
        await answer
        return False

    assert [await is_kept(), await is_kept()] == [False, True]
    assert told(await asked(broker, None)) == [("t", 0)]
    assert not await is_kept(11)
    assert not await is_kept(include_topic_authorized_operations=True)
    assert await is_kept()
    broker.cluster.put_topic(TopicState("u", bytes(15) + b"u", (state,)))
    assert not await is_kept()
    assert told(await asked(broker, None)) == [("t", 0), ("u", 0)]
    assert await is_kept()


class Maker:
    """Makes long answers and counts them."""

    def __init__(self) -> None:
        self.answers = LongAnswers()
        self.cluster_version = 1
        self.begun = 0
        self.gate = trio.Event()

    async def put_together(self) -> bytes:
        self.begun += 1
        number = self.begun
        await self.gate.wait()
        return str(number).encode()

    def make(self, key: str) -> Coroutine[Any, Any, EncodedAnswer]:
        return self.answers.make(key, self.put_together, lambda: self.cluster_version)


async def test_few_answers_are_kept() -> None:
    maker = Maker()
    maker.gate.set()
    keys = [str(number) for number in range(ANSWERS_MAX + 1)]
    for key in keys:
        await maker.make(key)
    assert [maker.answers.get(1, key) is None for key in keys] == [True] * ANSWERS_MAX + [False]
    assert maker.answers.get(2, keys[-1]) is None


@pytest.mark.parametrize("is_changing", [False, True])
async def test_a_crowd_that_asks_the_same_shares_one_answer(nursery: trio.Nursery, *, is_changing: bool) -> None:
    """If the cluster has changed meanwhile, those who asked after the first answer was begun share a second one."""
    maker = Maker()
    told: list[bytes] = []

    async def ask(answer: Coroutine[Any, Any, EncodedAnswer]) -> None:
        told.append((await answer).body)

    nursery.start_soon(ask, maker.make("all"))
    await trio.testing.wait_all_tasks_blocked()
    for answer in [maker.make("all") for _ in range(300)]:
        nursery.start_soon(ask, answer)
    await trio.testing.wait_all_tasks_blocked()
    maker.cluster_version += is_changing
    maker.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert told == [b"1"] + ([b"2"] if is_changing else [b"1"]) * 300


async def test_who_leaves_while_its_answer_is_made_leaves_it_to_the_next(nursery: trio.Nursery) -> None:
    maker = Maker()
    with trio.CancelScope() as scope:
        nursery.start_soon(_cancel_when_blocked, scope)
        await maker.make("all")
    maker.gate.set()
    assert (await maker.make("all")).body == b"2"


async def _cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_replicas_whose_disk_is_gone_and_partitions_nobody_told_of(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    broker.show(2)
    untold = PartitionState(leader=-1, leader_epoch=-1, replicas=(), isr=())
    broken = PartitionState(leader=1, leader_epoch=0, replicas=(1, 2), isr=(1,), offline_replicas=(2,))
    broker.cluster.put_topic(TopicState("t", b"t" * 16, (untold, broken)))
    ((partition,),) = [topic.partitions for topic in (await asked(broker, ["t"])).topics]
    assert (partition.partition_index, partition.error_code, partition.leader_id) == (1, ErrorCode.NONE, 1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1, 2], [1], [2])


async def test_topics_without_ids_are_told_and_forgotten_by_name(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    for name in "tu":
        broker.cluster.put_topic(TopicState(name, bytes(16), (PartitionState(1, 0, (1,), (1,)),)))
    assert [topic.topic_id for topic in (await asked(broker, ["t", "u"])).topics] == [bytes(16)] * 2
    broker.cluster.remove_topic("t")
    broker.cluster.remove_topic("u")
    assert not broker.cluster.topic_by_id
