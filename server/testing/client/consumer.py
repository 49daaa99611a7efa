"""A consumer that fetches from leaders: of all partitions of its topics, or of those that its group gives it.

`poll` sends a fetch to each leader that has none under way, and returns as soon as there are records. Fetches go on between two
polls. As in Java's client a partition is given up only within `poll`, so that what the poll before returned can be committed
before.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import trio

from ottla.server.testing.client.admin import EARLIEST, LATEST, Admin
from ottla.server.testing.client.answers import NOT_COORDINATOR, NOT_LEADER, NoAnswer, raise_for
from ottla.server.testing.client.classic_membership import ClassicMembership
from ottla.server.testing.client.connections import Channel
from ottla.server.testing.client.membership import ConsumerMembership, Membership
from ottla.server.testing.history.from_wire import shown_records
from ottla.server.testing.history.observed import Observations
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.records import Record

FETCH_AT_MOST, COMMIT_AT_MOST = 12, 9
MAX_WAIT_MS = 500
PARTITION_BYTES_MAX, FETCH_BYTES_MAX = 1 << 20, 16 << 20
RESETS = {"earliest": EARLIEST, "latest": LATEST}
NONE = "none"
MEMBERSHIPS = {"consumer": ConsumerMembership, "classic": ClassicMembership}
"""Kinds of membership by the names of Kafka's setting group.protocol."""

Place = tuple[str, int]


class ConsumerRecord(NamedTuple):
    """A record and where it was read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class _Fetched(NamedTuple):
    place: Place
    records: list[Record]
    before: int
    position: int


class Consumer:
    """Consumer of one client.

    `group`: None to read all partitions of the topics. `group_protocol`: "consumer" (KIP-848: the broker assigns) or "classic" (a
    member assigns, in ranges; all give up everything in a rebalance). `reset`: "earliest", "latest" or "none" (KafkaError), where a partition
    has no committed offset or it is gone. `committed_only`: isolation.level=read_committed. `history` notes what is read;
    None: nobody does.
    """

    def __init__(
        self,
        admin: Admin,
        name: str,
        topics: Sequence[str],
        group: str | None = None,
        *,
        group_protocol: str = "consumer",
        reset: str = "earliest",
        committed_only: bool = False,
        max_wait_ms: int = MAX_WAIT_MS,
        history: Observations | None = None,
    ) -> None:
        if not topics:
            raise ValueError("a consumer has at least one topic")
        if group_protocol not in MEMBERSHIPS:
            raise ValueError(f"group_protocol is consumer or classic, not {group_protocol!r}")
        if reset not in RESETS and reset != NONE:
            raise ValueError(f"reset is earliest, latest or none, not {reset!r}")
        self.name, self.group = name, group
        self.positions: dict[Place, int] = {}
        """Offsets of the next records, by topic and partition; those that the consumer has at present."""

        self._admin = admin
        # A Fetch may wait at its broker, and what is asked behind it on a connection waits, too.
        self._connections = admin.connections.beside()
        self._topics = tuple(topics)
        self._reset, self._committed_only, self._max_wait_ms = reset, committed_only, max_wait_ms
        self._member: Membership | None = None
        if group is not None:
            self._member = MEMBERSHIPS[group_protocol](admin, group, self._topics)
        self._is_assigned = self._is_closed = False
        self._under_way: set[Place] = set()
        self._out_of_range: set[Place] = set()
        self._fetched: list[_Fetched] = []
        self._failure: KafkaError | None = None
        self._changed = trio.Event()
        self._log = None if history is None else history.consumer_began(name, group, committed_only=committed_only)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def identity(self) -> dict[str, Any]:
        """Member id and epoch, as requests name them that only a member may make; empty without a group."""
        member = self._member
        if member is None:
            return {}
        return {"member_id": member.member_id, "generation_id_or_member_epoch": member.epoch}

    @property
    def assignment(self) -> list[Place]:
        """Partitions that the consumer has at present."""
        return sorted(self.positions)

    async def poll(self, timeout_s: float = 1.0) -> list[ConsumerRecord]:
        """Return records as soon as there are any, none after `timeout_s`. Raises KafkaError."""
        if self._is_closed:
            raise ValueError("the consumer is closed")
        with trio.move_on_after(timeout_s):
            while not self._fetched and self._failure is None:
                # Taken before all else: what changes meanwhile is then not waited for.
                changes = [self._changed] if self._member is None else [self._changed, self._member.changed]
                await self._assign()
                await self._send_fetches()
                if not self._fetched and self._failure is None:
                    await self._wait(changes)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return self._hand_out()

    async def _wait(self, changes: Sequence[trio.Event]) -> None:
        """Wait for an answer, or until the group changes what belongs to whom."""
        async with trio.open_nursery() as nursery:

            async def until(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            for each in changes:
                nursery.start_soon(until, each)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at an offset of a partition that the consumer has."""
        place = (topic, partition)
        if place not in self.positions:
            raise ValueError(f"the consumer does not have {topic}-{partition} at present")
        self.positions[place] = offset
        self._fetched = [each for each in self._fetched if each.place != place]
        if self._log is not None:
            self._log.began(topic, partition, offset)

    async def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Commit offsets of the group; None: those behind the records that `poll` has returned. Raises KafkaError."""
        if self._member is None:
            raise ValueError("a consumer without a group commits nothing")
        chosen = dict(self.positions if offsets is None else offsets)
        if not chosen:
            return
        if self._log is not None:
            self._log.offsets_sent(chosen)
        try:
            await self._commit(self._member, chosen)
        except (KafkaError, NoAnswer) as failure:
            if self._log is not None:
                self._log.offsets_failed(chosen, failure.code.name if isinstance(failure, KafkaError) else "no answer")
            raise
        if self._log is not None:
            self._log.offsets_committed(chosen)

    async def _commit(self, member: Membership, offsets: Mapping[Place, int]) -> None:
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ]

        async def attempt() -> bool | None:
            request = OffsetCommitRequest(group_id=member.group, topics=topics, **self.identity)
            response = await member.ask(request, at_most=COMMIT_AT_MOST)
            if response is None:
                return None
            codes = [each.error_code for topic in response.topics for each in topic.partitions]
            if any(each in NOT_COORDINATOR or each in NOT_LEADER for each in codes):
                member.forget_coordinator()
                return None
            if ErrorCode.STALE_MEMBER_EPOCH in codes:
                await member.beat()
                return None
            for each in codes:
                raise_for(each)
            return True

        await self._admin.insist(f"a commit of {member.group!r}", attempt)

    async def close(self) -> None:
        """Leave the group; what is under way is dropped."""
        if not self._is_closed:
            self._is_closed = True
            owned, self.positions = list(self.positions), {}
            if self._member is not None:
                if self._log is not None and owned:
                    self._log.disowned(owned, self._member.was_member_at)
                await self._member.leave()
            self._connections.close()

    # ------------------------------------------------------------------ which partitions

    async def _assign(self) -> None:
        """Take over what the group gives, or once all partitions of the topics."""
        if self._member is None:
            if not self._is_assigned:
                for topic in self._topics:
                    for index in await self._admin.partitions_of(topic):
                        await self._take((topic, index))
                self._is_assigned = True
            return
        target = await self._member.target()
        given_up = [place for place in self.positions if place not in target]
        for place in given_up:
            del self.positions[place]
        self._fetched = [each for each in self._fetched if each.place in target]
        if self._log is not None and given_up:
            self._log.disowned(given_up, self._member.was_member_at)
        self._member.own(target)
        taken = [place for place in sorted(target) if place not in self.positions]
        if self._log is not None and taken:
            self._log.owned(taken, self._member.epoch)
        for place in taken:
            await self._take(place)

    async def _take(self, place: Place) -> None:
        if place in self.positions:
            return
        position = None
        if self.group is not None and place not in self._out_of_range:
            position = await self._admin.committed(self.group, *place)
            if self._log is not None:
                self._log.offset_fetched(*place, position)
        if position is None:
            position = await self._position_by_reset(place, "it has no committed offset")
        self._out_of_range.discard(place)
        self.positions[place] = position
        if self._log is not None:
            self._log.began(*place, position)

    async def _position_by_reset(self, place: Place, because: str) -> int:
        if self._reset == NONE:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{place[0]}-{place[1]}: {because}, and reset is none")
        return await self._admin.offset_at(*place, RESETS[self._reset])

    # ------------------------------------------------------------------ fetching

    async def _send_fetches(self) -> None:
        leaders: dict[int, list[Place]] = {}
        for place in sorted(self.positions):
            if place not in self._under_way:
                leader, _ = await self._connections.leader(*place)
                leaders.setdefault(leader, []).append(place)
        for leader, places in leaders.items():
            channel = await self._connections.channel(leader)
            version = None
            if channel is not None:
                version = await self._connections.version_of(channel, FetchRequest, FETCH_AT_MOST)
            if channel is None or version is None:
                for place in places:
                    self._connections.forget_leader(*place)
                self._changed_now()
            else:
                self._send_fetch(channel, places, version)

    def _send_fetch(self, channel: Channel, places: list[Place], version: int) -> None:
        topics: dict[str, list[FetchPartition]] = {}
        asked = {}
        for place in places:
            if place in self.positions:  # it may have been given up while this waited
                asked[place] = self.positions[place]
                part = FetchPartition(
                    partition=place[1],
                    current_leader_epoch=self._connections.leaders.get(place, (0, -1))[1],
                    fetch_offset=asked[place],
                    partition_max_bytes=PARTITION_BYTES_MAX,
                )
                topics.setdefault(place[0], []).append(part)
        if not asked:
            return
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=int(self._committed_only),
            topics=[FetchTopic(topic=topic, partitions=parts) for topic, parts in topics.items()],
        )
        self._under_way |= asked.keys()
        channel.send(request, version, partial(self._answered, asked))

    def _answered(self, asked: Mapping[Place, int], response: Any) -> None:
        self._under_way -= asked.keys()
        if response is None:
            for place in asked:
                self._connections.forget_leader(*place)
        else:
            for topic in response.responses:
                for part in topic.partitions:
                    place = (topic.topic, part.partition_index)
                    if self.positions.get(place) == asked.get(place):
                        self._take_part(place, asked[place], part)
        self._changed_now()

    def _take_part(self, place: Place, position: int, part: Any) -> None:
        if part.error_code in NOT_LEADER:
            self._connections.forget_leader(*place)
        elif part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._reset != NONE:
            del self.positions[place]  # `_assign` begins anew
            self._is_assigned = False
            self._out_of_range.add(place)
        elif part.error_code:
            self._failure = KafkaError(ErrorCode.of(part.error_code), f"a fetch of {place[0]}-{place[1]} at {position}")
        else:
            aborted = [(each.first_offset, each.producer_id) for each in part.aborted_transactions or ()]
            records, end = shown_records(bytes(part.records or b""), aborted, position)
            if end > position:
                # No fetch is sent for it before these are handed out, because `poll` returns first.
                self._fetched.append(_Fetched(place, records, position, end))

    def _hand_out(self) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        fetched, self._fetched = self._fetched, []
        for each in fetched:
            if self.positions.get(each.place) != each.before:
                continue
            self.positions[each.place] = each.position
            topic, partition = each.place
            if self._log is not None:
                records = [(record.offset, record.value) for record in each.records]
                self._log.read(topic, partition, records, each.position)
            for record in each.records:
                headers = tuple((name.decode("utf-8", "replace"), value) for name, value in record.headers)
                found.append(
                    ConsumerRecord(topic, partition, record.offset, record.timestamp, record.key, record.value, headers)
                )
        return found

    def _changed_now(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
