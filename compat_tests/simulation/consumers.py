"""Those who read: readers that follow the end, a viewer that asks for ends, a group that commits offsets, final readers."""

from collections.abc import Callable
from typing import Any

import trio

from ottla.server.testing.client.connections import BACKOFF_S, Connections
from ottla.server.testing.history.history import (
    UNKNOWN_OFFSET,
    EndSeen,
    OffsetCommitted,
    OffsetFailed,
    OffsetFetched,
    OffsetSent,
    ReachedEnd,
    Read,
    ReadBegan,
    ReadFailed,
    Recorder,
    told,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches

FETCH_VERSION, FETCH_FROM_LEADER_VERSION, LIST_OFFSETS_VERSION, OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION = (
    12,
    10,
    7,
    7,
    7,
)
MAX_WAIT_MS = 500
LATEST = -1
TRANSIENT = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
REFUSED_OFFSETS = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class SimReader:
    """Reads one partition from its leader, from the first record on."""

    def __init__(
        self,
        client: Connections,
        record: Recorder,
        topic: str,
        partition: int,
        *,
        knows_epoch: bool,
        committed_only: bool = False,
    ) -> None:
        self.position = 0
        self._committed_only = committed_only
        self._client = client
        self._add = record.add
        self._topic = topic
        self._partition = partition
        self._where = (client.name, topic, partition)
        # Who sends the leader's epoch is refused by older and newer leaders. Who does not has to speak a version in which
        # followers refuse, or it may be told by one that was a leader once that its log does not reach so far.
        self._knows_epoch = knows_epoch
        self._fetch_version = FETCH_VERSION if knows_epoch else FETCH_FROM_LEADER_VERSION

    async def run(self) -> None:
        """Follow the end until cancelled."""
        self._add(ReadBegan, *self._where, 0, self._committed_only, False)
        while True:
            await self._fetch()

    async def read_to_end(self) -> None:
        """Be a final reader."""
        self._add(ReadBegan, *self._where, 0, self._committed_only, True)
        while (end := await self.end()) is None:
            await trio.sleep(BACKOFF_S)
        while self.position < end[0]:
            await self._fetch()
        self._add(ReachedEnd, *self._where, self.position)

    async def _fetch(self) -> None:
        leader, epoch = await self._client.leader(self._topic, self._partition)
        wanted = FetchPartition(
            partition=self._partition,
            current_leader_epoch=epoch if self._knows_epoch else -1,
            fetch_offset=self.position,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            isolation_level=int(self._committed_only),
            topics=[FetchTopic(topic=self._topic, partitions=[wanted])],
        )
        response = await self._client.ask(leader, request, self._fetch_version)
        if response is None:
            self._client.forget_leader(self._topic, self._partition)
            await trio.sleep(BACKOFF_S)
            return
        data = response.responses[0].partitions[0]
        code = ErrorCode(data.error_code)
        if code is ErrorCode.NONE:
            aborted = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
            self._take(bytes(data.records or b""), sorted(aborted))
        else:
            if code not in TRANSIENT:
                self._add(ReadFailed, *self._where, f"{code.name} at {self.position}")
            self._client.forget_leader(self._topic, self._partition)
            await trio.sleep(BACKOFF_S)

    def _take(self, records: bytes, aborted: list[tuple[int, int]]) -> None:
        """`aborted`: where transactions begin that are not to be shown, and of whom."""
        found: list[tuple[int, str]] = []
        hidden: set[int] = set()
        for header, start, _ in iter_batches(records):
            while aborted and aborted[0][0] < header.next_offset:
                hidden.add(aborted.pop(0)[1])
            if header.is_control:
                hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                found += [(each.offset, told(each.value)) for each in decode_records(records, start)]
            found = [each for each in found if each[0] >= self.position]
            end = header.next_offset
        if found:
            self._add(Read, *self._where, tuple(found))
        if records:
            self.position = max(self.position, end)

    async def end(self) -> tuple[int, int] | None:
        """The end of the partition and the leader epoch that came with it; None if nobody said."""
        leader, epoch = await self._client.leader(self._topic, self._partition)
        wanted = ListOffsetsPartition(
            partition_index=self._partition,
            current_leader_epoch=epoch if self._knows_epoch else -1,
            timestamp=LATEST,
        )
        topics = [ListOffsetsTopic(name=self._topic, partitions=[wanted])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(self._committed_only), topics=topics)
        response = await self._client.ask(leader, request, LIST_OFFSETS_VERSION)
        answer = response and response.topics[0].partitions[0]
        if answer is None or answer.error_code:
            self._client.forget_leader(self._topic, self._partition)
            return None
        return answer.offset, answer.leader_epoch

    async def watch_end(self) -> None:
        """Ask for the end again and again, until cancelled."""
        while True:
            if (end := await self.end()) is not None:
                self._add(EndSeen, *self._where, *end)
            await trio.sleep(1.0)


class SimGroup:
    """A group whose only member commits ever higher offsets and fetches them.

    A broker that cannot hear the controller may go on as coordinator of a group after another one has taken its place, in
    Apache Kafka as here. It can commit nothing then, but tells what was committed before: such an answer does not count.
    """

    def __init__(
        self,
        client: Connections,
        record: Recorder,
        topic: str,
        partition: int,
        is_coordinator: Callable[[int, str], bool],
    ) -> None:
        self.committed = 0
        self.is_over = False
        self.succeeded_at = trio.current_time()
        self._is_coordinator = is_coordinator
        self._client = client
        self._group = client.name
        self._add = record.add
        self._topic = topic
        self._partition = partition
        self._where = (client.name, topic, partition)

    async def run(self) -> None:
        offset = 0
        while not self.is_over:
            await trio.sleep(self._client.network.chance.expovariate(2.0))
            if self._client.network.chance.random() < 0.6:
                offset += 1
                await self._commit(offset)
            else:
                await self._fetch()

    async def _commit(self, offset: int) -> None:
        coordinator = await self._client.coordinator(self._group)
        self._add(OffsetSent, *self._where, offset)
        partition = OffsetCommitRequestPartition(
            partition_index=self._partition, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self._group,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[partition])],
        )
        response = await self._client.ask(coordinator, request, OFFSET_COMMIT_VERSION)
        code = None if response is None else ErrorCode(response.topics[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            self.committed += 1
            self.succeeded_at = trio.current_time()
            self._add(OffsetCommitted, *self._where, offset)
        else:
            self._add(OffsetFailed, *self._where, offset, repr(code), code not in REFUSED_OFFSETS)

    async def fetch_at_last(self) -> None:
        """Once the faults are over."""
        while not await self._fetch():
            await trio.sleep(BACKOFF_S)

    async def _fetch(self) -> bool:
        coordinator = await self._client.coordinator(self._group)
        request = OffsetFetchRequest(
            group_id=self._group,
            topics=[OffsetFetchRequestTopic(name=self._topic, partition_indexes=[self._partition])],
            require_stable=True,
        )
        was_coordinator = self._is_coordinator(coordinator, self._group)
        response = await self._client.ask(coordinator, request, OFFSET_FETCH_VERSION)
        if response is None or response.error_code or not was_coordinator:
            return False
        if not self._is_coordinator(coordinator, self._group):
            return False
        answer: Any = response.topics[0].partitions[0]
        if answer.error_code:
            return False
        self.succeeded_at = trio.current_time()
        offset = answer.committed_offset
        self._add(OffsetFetched, *self._where, UNKNOWN_OFFSET if offset < 0 else offset)
        return True
