"""Groups and producer ids while each call to the disk fails once: what was acknowledged is there, what was refused is not.

A group's offsets and generations are in a log, and so is what a shard has in memory: the two have to agree whatever failed.
"""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.replication.config import LogConfig
from ottla.replication.controller.topic_planner import NewTopic
from ottla.replication.log.tests.failing_calls import FailingCalls, run_every_case
from ottla.server.coordinators.coordinators import ProducerIdBlocks
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.tests.cluster.test_topic_faults import Life
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)

COMMITS = 6  # some more than fit into a segment
RETRIABLE = {  # by these a client looks for the coordinator again, or waits
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


class GroupLife(Life):
    """A broker that is alone, with its groups."""

    async def start(self) -> GroupLife:
        await super().start()
        self.groups = self.broker.groups
        return self

    async def make_topics(self) -> None:
        offsets = NewTopic(name=GROUP_METADATA_TOPIC, partition_count=1)
        await self.administration.create_topics([NewTopic(name="t"), offsets], is_internal=True)
        self.replicas.update_topic_config(GROUP_METADATA_TOPIC, LogConfig(segment_bytes=400))

    async def commit(self, offset: int, generation_id: int = -1, member_id: str = "", group: str = "g") -> ErrorCode:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="m" * 40
        )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        response = await finished(self.groups.offsets.offset_commit(request, api_version=7))
        return ErrorCode.of(response.topics[0].partitions[0].error_code)

    async def committed(self, group: str = "g") -> int:
        request = OffsetFetchRequest(
            group_id=group, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])], require_stable=False
        )
        response = await finished(self.groups.offsets.offset_fetch(request, api_version=5))
        assert response.error_code == ErrorCode.NONE
        offset: int = response.topics[0].partitions[0].committed_offset
        return offset

    async def loaded(self) -> None:
        """Return when the group's coordinator is here, however often its load had to be tried."""
        for _ in range(100):
            with suppress(KafkaError, AssertionError):
                await self.committed()
                return
            await trio.sleep(1)
        raise AssertionError("the offsets topic was never loaded")

    async def generation(self) -> tuple[str, int] | None:
        """A member joins and gets its assignment; returns its id and generation, or None if it was refused."""
        joining = JoinGroupRequest(
            group_id="classic",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )
        joined = await finished(self.groups.classic.join_group(joining, api_version=3, client_id="c", client_host="h"))
        if joined.error_code:
            assert ErrorCode.of(joined.error_code) in RETRIABLE
            return None
        request = SyncGroupRequest(
            group_id="classic",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        )
        synced = await finished(self.groups.classic.sync_group(request, api_version=3))
        if synced.error_code:
            assert ErrorCode.of(synced.error_code) in RETRIABLE | {ErrorCode.REBALANCE_IN_PROGRESS}
            return None
        return joined.member_id, joined.generation_id

    def knows(self, member: tuple[str, int]) -> bool:
        request = HeartbeatRequest(group_id="classic", member_id=member[0], generation_id=member[1])
        return self.groups.classic.heartbeat(request).error_code == ErrorCode.NONE


async def run_case(calls: FailingCalls) -> None:
    storage = MemoryStorage()
    life = await GroupLife(storage).start()
    acknowledged, refused, member = -1, set[int](), None
    await life.make_topics()
    await life.loaded()
    assert await life.commit(100) is ErrorCode.NONE
    acknowledged = 100
    storage.fail = calls
    for offset in range(COMMITS):
        if offset == 2:
            member = await life.generation()
        code = await life.commit(offset)
        if code is ErrorCode.NONE:
            acknowledged = offset
        else:
            assert code in RETRIABLE
            refused.add(offset)
    storage.fail = None
    is_online = life.replicas.log_directories[0].is_online
    if is_online:  # it serves on, and memory says what was answered
        await life.loaded()
        assert await life.committed() == acknowledged
        assert member is None or life.knows(member)
        assert await life.commit(77) is ErrorCode.NONE
        acknowledged = 77
        member = member or await life.generation()
        assert member is not None
    storage.kill()
    await life.end()
    again = await GroupLife(storage).start()
    await again.loaded()
    found = await again.committed()
    # where the disk broke in the middle of a write, that one may be there or not
    assert found == acknowledged or (not is_online and found in refused), (found, acknowledged, refused)
    assert member is None or again.knows(member)


@pytest.mark.thorough
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long, id="all"), pytest.param(7, id="some")])
def test_offsets_and_generations_are_what_was_acknowledged(every: int) -> None:
    def case(calls: FailingCalls) -> None:
        trio.run(run_case, calls, clock=MockClock(autojump_threshold=0))

    assert run_every_case(case, lasting=True, every=every) > 100 // every


def test_a_shard_serves_again_when_there_is_room() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        life = await GroupLife(storage).start()
        await life.make_topics()
        await life.loaded()
        assert await life.commit(1) is ErrorCode.NONE
        storage.space_left = 20
        for offset in (2, 3, 4):
            assert await life.commit(offset) is ErrorCode.NOT_COORDINATOR
            assert await life.committed() == 1
        storage.space_left = None
        assert await life.commit(5) is ErrorCode.NONE
        assert await life.committed() == 5

    trio.run(run, clock=MockClock(autojump_threshold=0))


@pytest.mark.thorough
@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC, errno.EIO, errno.EINTR])
def test_no_producer_id_is_given_twice(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.coordinators.coordinators.BLOCK_SIZE", 2)

    def case(calls: FailingCalls) -> None:
        async def run() -> None:
            storage = MemoryStorage()
            given: list[int] = []
            for fails in (False, True, False):
                life = await Life(storage).start()
                if not given:
                    with suppress(Exception):
                        await life.coordination.multi([Create(znodes.PRODUCER_ID_BLOCK)])
                ids = ProducerIdManager(ProducerIdBlocks(life.coordination, 1).allocate_block, trio.Lock())
                storage.fail = calls if fails else None
                for _ in range(7):
                    try:
                        given.append(await ids.next())
                    except KafkaError as error:
                        assert error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                storage.kill()
                await life.end()
            assert len(given) == len(set(given)) >= 14

        trio.run(run, clock=MockClock(autojump_threshold=0))

    assert run_every_case(case, (code,)) >= 4
