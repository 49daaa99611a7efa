"""OffsetCommit v0 and OffsetFetch v0: offsets in the coordination tree, bounded in number, together with other writers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from ottla.replication.cluster.coordination import CoordinationUnavailable, Create, Operation, SetData
from ottla.server.api import tree_offsets
from ottla.server.api.handlers.offsets import offset_commit, offset_fetch
from ottla.server.api.tree_offsets import TreeOffsets
from ottla.server.dispatch.context import RequestContext
from ottla.server.testing.memory.coordination import MemoryCoordination
from ottla.server.testing.memory.coordination_service import MemoryService
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)

NONE, MISSING, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_SERVER_ERROR
PARTITIONS = 20


class Store:
    """A broker with one topic whose offsets are in the tree."""

    authorizer = None

    def __init__(self, coordination: MemoryCoordination, *, offsets_max: int = 100) -> None:
        topic = SimpleNamespace(name="topic", topic_id=bytes(16), partitions=range(PARTITIONS))
        self.cluster: Any = SimpleNamespace(topics={"topic": topic}, topic_by_id={})
        self.coordination = coordination
        self.tree_offsets = TreeOffsets(
            coordination, topics=self.cluster, metadata_max=lambda: 5, offsets_max=offsets_max
        )

    async def commit(self, group: str, *offsets: tuple[int, int], metadata: str | None = None) -> list[int]:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            for index, offset in offsets
        ]
        topic = OffsetCommitRequestTopic(name="topic", partitions=partitions)
        request = OffsetCommitRequest(group_id=group, topics=[topic])
        answer: Any = await cast(Any, offset_commit(request, RequestContext(cast(Any, self), api_version=0)))
        answer.encode(0)
        return [each.error_code for topic in answer.topics for each in topic.partitions]

    async def fetch(self, group: str, *partitions: int) -> Sequence[tuple[int, int]]:
        topic = OffsetFetchRequestTopic(name="topic", partition_indexes=list(partitions))
        request = OffsetFetchRequest(group_id=group, topics=[topic])
        answer: Any = await cast(Any, offset_fetch(request, RequestContext(cast(Any, self), api_version=0)))
        answer.encode(0)
        return [(each.committed_offset, each.error_code) for topic in answer.topics for each in topic.partitions]


@pytest.fixture
async def tree(nursery: trio.Nursery) -> MemoryCoordination:
    """A session with a tree that has the root of Kafka's old consumers."""
    service = MemoryService(random.Random(3))
    await nursery.start(service.run)
    tree = MemoryCoordination(service.link())
    await nursery.start(tree.run)
    await tree.multi([Create("/consumers")])
    return tree


async def test_offsets_are_nodes_as_kafka_3_9_has_them(autojump_clock: object, tree: MemoryCoordination) -> None:
    store = Store(tree)
    assert await store.commit("g", (0, 5), (3, -1), (PARTITIONS, 1)) == [MISSING, NONE, NONE]
    assert (await tree.get("/consumers/g/offsets/topic/0")).data == b"5"
    await tree.multi([SetData("/consumers/g/offsets/topic/3", b"+77")])
    assert await store.fetch("g", 0, 3, 1) == [(5, NONE), (77, NONE), (-1, MISSING)]


@pytest.mark.parametrize("data", [b"", b"5x", b"9" * 19, b"9" * 5_000, b"\xff", b"1_0"])
async def test_what_is_no_offset_is_an_error(autojump_clock: object, tree: MemoryCoordination, data: bytes) -> None:
    store = Store(tree)
    await store.commit("g", (0, 5), (1, 6))
    await tree.multi([SetData("/consumers/g/offsets/topic/0", data)])
    assert await store.fetch("g", 0, 1) == [(-1, UNKNOWN), (6, NONE)]


async def test_metadata_counts_as_java_does(autojump_clock: object, tree: MemoryCoordination) -> None:
    store = Store(tree)
    assert await store.commit("g", (0, 5), metadata="12345") == [NONE]
    assert await store.commit("g", (0, 6), metadata="\N{GRINNING FACE}" * 3) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await store.fetch("g", 0) == [(5, NONE)]


async def test_new_offsets_are_limited_and_known_ones_go_on(autojump_clock: object, tree: MemoryCoordination) -> None:
    store = Store(tree, offsets_max=2 + len(["g", "g/offsets", "g/offsets/topic"]))
    assert await store.commit("g", (0, 5), (1, 5)) == [NONE] * 2
    assert await store.commit("g", (2, 5)) == [UNKNOWN]
    assert await store.commit("other", (0, 5)) == [UNKNOWN]
    assert await store.commit("g", (0, 9), (1, 9)) == [NONE] * 2
    assert await tree.children("/consumers") == ["g"]


async def test_nodes_above_offsets_are_limited_with_them(autojump_clock: object, tree: MemoryCoordination) -> None:
    store = Store(tree, offsets_max=100)
    assert await store.commit("a" + "/a" * 499, (0, 5)) == [UNKNOWN]
    assert await tree.children("/consumers") == []
    assert await store.commit("b" + "/b" * 49, (0, 5)) == [NONE]
    assert await store.commit("c" + "/c" * 49, (0, 5)) == [UNKNOWN]


@pytest.mark.parametrize("group", ["", "/", "a//b", ".", "a/..", "a\0", "x" * 1_001])
async def test_names_that_are_no_paths_touch_nothing(
    autojump_clock: object, tree: MemoryCoordination, group: str
) -> None:
    store = Store(tree)
    assert await store.commit(group, (0, 5)) == [UNKNOWN]
    assert await store.fetch(group, 0) == [(-1, UNKNOWN)]
    assert await tree.children("/consumers") == []


async def test_another_writer_of_the_same_offsets_makes_nobody_fail(
    autojump_clock: object, nursery: trio.Nursery, tree: MemoryCoordination
) -> None:
    store, outcomes = Store(tree), []

    async def commit(offset: int) -> None:
        outcomes.append(await store.commit("g", *[(index, offset) for index in range(PARTITIONS)]))

    async with trio.open_nursery() as writers:
        for offset in range(5):
            writers.start_soon(commit, offset)
    assert outcomes == [[NONE] * PARTITIONS] * 5
    assert len(set(await store.fetch("g", *range(PARTITIONS)))) == 1  # each commit is one change of the tree


async def test_a_tree_out_of_reach_is_an_error_of_its_part(
    autojump_clock: object, tree: MemoryCoordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tree)
    await store.commit("g", (0, 1), (1, 1))
    monkeypatch.setattr(tree_offsets, "NODES_AT_ONCE", 1)
    written = tree.multi

    async def multi(operations: Sequence[Operation]) -> Any:
        if operations[0].path.endswith("/0"):
            raise CoordinationUnavailable("/")
        return await written(operations)

    monkeypatch.setattr(tree, "multi", multi)
    assert await store.commit("g", (0, 2), (1, 2)) == [UNKNOWN, NONE]

    async def get_all(paths: Sequence[str]) -> Any:
        raise CoordinationUnavailable(paths[0])

    monkeypatch.setattr(tree, "get_all", get_all)
    assert await store.fetch("g", 0, 1) == [(-1, UNKNOWN)] * 2


async def test_a_partition_named_very_often_leaves_turns_to_others(
    autojump_clock: object, tree: MemoryCoordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, checkpoint, turns = Store(tree), trio.lowlevel.checkpoint, []

    async def counted() -> None:
        turns.append(None)
        await checkpoint()

    monkeypatch.setattr(trio.lowlevel, "checkpoint", counted)
    codes = await store.commit("g", *[(0, offset) for offset in range(20_000)])
    assert codes == [NONE] * 20_000 and len(turns) >= 20_000 / 500
    assert await store.fetch("g", *[0] * 20_000) == [(19_999, NONE)]


async def test_the_right_to_the_group_is_needed(autojump_clock: object, tree: MemoryCoordination) -> None:
    store = Store(tree)
    store.authorizer = cast(Any, SimpleNamespace(allows=lambda *arguments: False))
    for ask in (store.commit("g", (0, 5)), store.fetch("g", 0)):
        with pytest.raises(KafkaError) as refused:
            await ask
        assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
