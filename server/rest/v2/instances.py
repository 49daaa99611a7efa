"""Consumer instances: consumers that the proxy keeps for clients over HTTP.

An instance holds positions and no records: what a client does not take is fetched again. So thousands of instances cost
little. A read collects records until the client's time is over, or enough bytes are there, as Confluent's proxy does.

An instance that nobody asks for its timeout is deleted, and leaves its group.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import re2
import trio

from ottla.server.rest import admin, formats
from ottla.server.rest.client.cluster import KafkaCluster, Partition
from ottla.server.rest.client.membership import Membership
from ottla.server.rest.client.reading import Committed, Fetched, Step, commit, committed_of, fetch, records_of
from ottla.server.rest.errors import Code, KafkaFailure, RestError, Unreachable, illegal_state, instance_not_found
from ottla.server.rest.v2.record_texts import next_chunk, plain_text, texts_of
from ottla.wire.records import Record
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.rest.schemas.schemas import Schemas

logger = logging.getLogger("ottla.rest")

INSTANCE_TIMEOUT_S = 300.0
INSTANCES_MAX = 10_000
REQUEST_TIMEOUT_S, REQUEST_TIMEOUT_MAX_S = 1.0, 50.0
ANSWER_BYTES_MAX = 32 << 20
READING_BYTES_MAX = 256 << 20
"""Answers of all reads that are being collected; who comes to it answers with what there is."""

WAIT_S, PAUSE_S, COMMIT_S, SWEEP_S, CLOSE_S = 0.5, 0.05, 5.0, 1.0, 10.0
_EXCLUSIVE = "Subscription to topics, partitions and pattern are mutually exclusive"


@dataclass(frozen=True, kw_only=True)
class InstanceConfig:
    """Settings of a consumer instance, from the request that created the instance."""

    kind: str = formats.BINARY
    reset: str = "latest"
    auto_commit: bool = True
    bytes_min: int | None = None
    """A read with more bytes is over; None: it takes its whole time."""
    timeout_s: float = REQUEST_TIMEOUT_S


@dataclass(slots=True)
class ReadingRoom:
    """Limits shared by all users. `left`: bytes left for responses in the making; `instances`: number of instances."""

    left: int = field(default=READING_BYTES_MAX)
    instances: int = 0
    """Consumer instances of all users."""
    is_closing: bool = False
    """Reads end with what they have."""


class Instance:
    """Consumer instance. A task must hold `lock` to read or change the instance."""

    def __init__(
        self,
        cluster: KafkaCluster,
        group: str,
        name: str,
        config: InstanceConfig,
        room: ReadingRoom,
        schemas: Schemas | None = None,
    ) -> None:
        self.group, self.name, self.config = group, name, config
        self.user = ""
        """User of the proxy that it belongs to."""
        self.lock = trio.Lock()
        self.topics: list[str] = []
        self.pattern: str | None = None
        self.expires_at_s = 0.0
        self._cluster, self._room, self._schemas = cluster, room, schemas
        self._positions: dict[Partition, int | None] = {}
        """The next offset of each assigned partition; None is the committed one, or the reset's; EARLIEST, LATEST."""
        self._uncommitted: dict[Partition, int] = {}
        self._committed_at_s = 0.0
        self._is_manual = False
        self._membership: Membership | None = None
        self._scope: trio.CancelScope | None = None

    # --- what is read

    @property
    def partitions(self) -> list[Partition]:
        return sorted(self._positions)

    async def subscribe(self, topics: Sequence[str] | None, pattern: str | None) -> None:
        """Subscribe to `topics`; if None, to all topics that match `pattern`. Raises RestError."""
        if self._is_manual or (topics is not None and self.pattern) or (topics is None and self.topics):
            raise illegal_state(_EXCLUSIVE)
        await self.unsubscribe(is_final=not topics and not pattern)
        self.topics, self.pattern = list(topics or ()), pattern
        if not self.topics and not pattern:
            return
        if self._membership is None:
            self._membership = Membership(
                self._cluster, self.group, self._wanted_topics, self._on_assigned, self._on_revoked
            )
        self._scope = trio.CancelScope()
        self._cluster.nursery.start_soon(self._run_membership, self._membership, self._scope)

    async def _run_membership(self, membership: Membership, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await membership.run()
        except Exception as error:  # it would end the proxy
            logger.exception("bug: a member of group %r", self.group)
            membership.problem = RestError(Code.INTERNAL, f"The proxy has a bug here, which its log tells of: {error}")

    async def unsubscribe(self, *, is_final: bool = True) -> None:
        """Commit read offsets and end the subscription or manual assignment. `is_final`: leave the group as well."""
        if self._scope is not None:
            self._scope.cancel()
            self._scope = None
        await self._on_revoked()
        self.topics, self.pattern, self._is_manual = [], None, False
        if is_final and self._membership is not None:
            await self._membership.leave()
            self._membership = None

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Assign partitions manually instead of by the group. Raises RestError."""
        if self.topics or self.pattern:
            raise illegal_state(_EXCLUSIVE)
        wanted = list(partitions)
        self._is_manual = bool(wanted)
        self._positions = {each: self._positions.get(each) for each in wanted}

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Set the position of each partition: to an offset, EARLIEST or LATEST. Raises RestError."""
        for topic, number in offsets:
            if (topic, number) not in self._positions:
                raise illegal_state(f"No current assignment for partition {topic}-{number}")
        self._positions.update(offsets)
        # A commit without offsets is of positions, as by Kafka's consumer.
        for place, offset in offsets.items():
            if offset >= 0:
                self._uncommitted[place] = offset
            else:
                self._uncommitted.pop(place, None)

    async def _wanted_topics(self) -> Sequence[str]:
        if self.pattern is None:
            return self.topics
        matches = re2.compile(self.pattern).fullmatch
        answer = await self._cluster.refreshed(None)
        return [each.name for each in answer.topics if each.name and not each.error_code and matches(each.name)]

    async def _on_assigned(self, partitions: Sequence[Partition]) -> None:
        self._positions = dict.fromkeys(partitions)
        try:
            await self._resolve()
        except RestError as error:
            logger.info("positions of group %r are asked again when they are needed: %s", self.group, error)

    async def _on_revoked(self) -> None:
        if self.config.auto_commit and self._uncommitted:
            try:
                with trio.move_on_after(CLOSE_S):
                    await self.commit()
            except RestError as error:
                logger.info("offsets of group %r are not committed: %s", self.group, error)
        self._positions, self._uncommitted = {}, {}

    async def close(self) -> None:
        """Close the instance: commit read offsets and leave the group."""
        with trio.move_on_after(CLOSE_S):
            await self.unsubscribe()

    # --- offsets

    async def commit(self, offsets: Mapping[Partition, Committed] | None = None) -> None:
        """Commit `offsets`; None: all offsets that were read. Raises RestError."""
        wanted = offsets or {each: Committed(offset, "") for each, offset in self._uncommitted.items()}
        if not wanted:
            return
        member = self._membership
        if member is None:
            await commit(self._cluster, self.group, wanted)
        else:
            await commit(self._cluster, self.group, wanted, member.member_id, member.generation_id)
        self._committed_at_s = trio.current_time()
        for place, each in wanted.items():
            if self._uncommitted.get(place) == each.offset:
                del self._uncommitted[place]

    async def _resolve(self) -> None:
        """Replace missing, EARLIEST and LATEST positions by offsets. Raises RestError."""
        unknown = [place for place, position in self._positions.items() if position is None]
        if unknown:
            found = await committed_of(self._cluster, self.group, unknown)
            for place in unknown:
                if place in found:
                    self._set(place, found[place].offset)
            await self._reset([each for each in unknown if each not in found])
        for sentinel in (admin.EARLIEST, admin.LATEST):
            places = [place for place, position in self._positions.items() if position == sentinel]
            for place, offset in (await self._offsets_at(places, sentinel)).items():
                self._set(place, offset)

    async def _reset(self, places: Sequence[Partition]) -> None:
        if places and self.config.reset == "none":
            shown = ", ".join(f"{topic}-{number}" for topic, number in places[:10])
            raise RestError(Code.KAFKA, f"Undefined offset with no reset policy for partitions: [{shown}]")
        for place in places:
            self._set(place, admin.EARLIEST if self.config.reset == "earliest" else admin.LATEST)

    async def _offsets_at(self, places: Sequence[Partition], time: int) -> dict[Partition, int]:
        return await admin.offsets_at(self._cluster, places, time) if places else {}

    def _set(self, place: Partition, offset: int) -> None:
        # It may have been given back meanwhile.
        if place in self._positions:
            self._positions[place] = offset

    # --- reading

    async def read(self, timeout_s: float, bytes_max: int) -> bytes:
        """Read records for at most `timeout_s` seconds; return them as a JSON list. Raises RestError."""
        now_s = trio.current_time()
        until_s = now_s + timeout_s
        if self.config.auto_commit and now_s - self._committed_at_s > COMMIT_S:
            # What the client had got before has arrived, for it comes again.
            await self._commit_quietly()
        answer = _Collected(self.config, min(bytes_max, ANSWER_BYTES_MAX), self._room)
        try:
            while not answer.is_full and not self._room.is_closing and (left_s := until_s - trio.current_time()) > 0:
                with trio.move_on_after(left_s + WAIT_S):
                    await self._read_some(answer, min(left_s, WAIT_S), until_s)
            return answer.body
        finally:
            self._room.left += answer.size

    async def _commit_quietly(self) -> None:
        try:
            await self.commit()
        except RestError as error:
            logger.info("offsets of group %r are not committed: %s", self.group, error)

    async def _read_some(self, answer: _Collected, wait_s: float, until_s: float) -> None:
        if self._membership is not None and self._membership.problem is not None:
            raise self._membership.problem
        if not self._positions:
            await trio.sleep(min(wait_s, PAUSE_S))
            return
        try:
            await self._resolve()
            positions = {place: each for place, each in self._positions.items() if each is not None and each >= 0}
            fetched = await fetch(self._cluster, positions, wait_s, answer.left)
        except (KafkaFailure, Unreachable) as error:
            if isinstance(error, KafkaFailure) and not error.error.retriable:
                raise
            if trio.current_time() + PAUSE_S >= until_s:
                if answer.count:
                    return
                raise
            await trio.sleep(PAUSE_S)
            return
        time_slice = TimeSlice()
        for each in fetched:
            if each.is_out_of_range:
                await self._reset([each.place])
            elif not await self._take(each, positions[each.place], answer, time_slice):
                return
        if not any(each.records for each in fetched):
            await trio.lowlevel.checkpoint()

    async def _take(self, fetched: Fetched, begin: int, answer: _Collected, time_slice: TimeSlice) -> bool:
        """Add fetched records, from offset `begin`, to the response `answer`; return False if the response is full."""
        if self._schemas is not None and self.config.kind in formats.WITH_SCHEMA:
            return await self._take_decoded(self._schemas, fetched, begin, answer)
        place, kind = fetched.place, self.config.kind
        for record, next_offset in records_of(fetched, begin):
            text_of = partial(plain_text, kind, place)
            if not self._put(place, record, next_offset, answer, text_of):
                return False
            await time_slice.yield_if_over()
        return True

    async def _take_decoded(self, schemas: Schemas, fetched: Fetched, begin: int, answer: _Collected) -> bool:
        """Like `_take`, for records with schemas; a thread decodes them. Return False if the response is full."""
        kind = self.config.kind
        steps: Iterator[Step] = records_of(fetched, begin)
        while chunk := await schemas.code(partial(next_chunk, steps, answer.left)):
            texts = await texts_of(schemas, kind, fetched.place, chunk)
            for (record, next_offset), text in zip(chunk, texts, strict=False):
                if not self._put(fetched.place, record, next_offset, answer, partial(_text, text)):
                    return False
            steps = chain(chunk[len(texts) :], steps)
        return True

    def _put(
        self,
        place: Partition,
        record: Record | None,
        next_offset: int,
        answer: _Collected,
        text_of: Callable[[Record], str],
    ) -> bool:
        """Add a record (None: none) to a response, and advance the position. Return False if the response is full."""
        if place not in self._positions:
            return True
        if record is not None:
            try:
                if not answer.add(record, text_of):
                    return False
            except RestError:
                if not answer.count:
                    raise
                # The records before it have been read, and belong to the client. The next read meets it first.
                answer.is_full = True
                return False
        self._set(place, next_offset)
        self._uncommitted[place] = next_offset
        return True


def _text(text: str | RestError, record: Record) -> str:
    if isinstance(text, RestError):
        raise text
    return text


class _Collected:
    """Records collected for the response to a read."""

    def __init__(self, config: InstanceConfig, bytes_max: int, room: ReadingRoom) -> None:
        self._config, self._bytes_max, self._room = config, bytes_max, room
        self._parts: list[str] = []
        self._bytes = 0
        self.size = 0
        self.is_full = False

    @property
    def count(self) -> int:
        return len(self._parts)

    @property
    def left(self) -> int:
        """Number of bytes that the next fetch may return."""
        return max(self._bytes_max - self._bytes, 1)

    @property
    def body(self) -> bytes:
        return f"[{','.join(self._parts)}]".encode()

    def add(self, record: Record, text_of: Callable[[Record], str]) -> bool:
        """Add a record, or return False if the response is full. Raises RestError if the record has another format."""
        size = len(record.key or b"") + len(record.value or b"")
        is_over = self._bytes + size >= self._bytes_max or self.size >= ANSWER_BYTES_MAX
        if is_over or (self._room.left < size and self._parts):
            self.is_full = True
            return False
        part = text_of(record)
        self._parts.append(part)
        self._bytes += size
        self.size += len(part)
        self._room.left -= len(part)
        least = self._config.bytes_min
        self.is_full = least is not None and self._bytes > least
        return True


class Instances:
    """All consumer instances of a backend."""

    def __init__(
        self,
        cluster: KafkaCluster,
        timeout_s: float = INSTANCE_TIMEOUT_S,
        schemas: Schemas | None = None,
        room: ReadingRoom | None = None,
    ) -> None:
        self._cluster, self._timeout_s, self._schemas = cluster, timeout_s, schemas
        self._room = room or ReadingRoom()
        self._all: dict[tuple[str, str, str], Instance] = {}

    @property
    def has_schemas(self) -> bool:
        """True if a schema registry is configured."""
        return self._schemas is not None

    def __len__(self) -> int:
        return len(self._all)

    def create(self, group: str, name: str | None, config: InstanceConfig, user: str = "") -> Instance:
        """Create and return a consumer instance of `user`. `name` None: generate one. Raises RestError."""
        name = name or f"rest-consumer-{secrets.token_hex(16)}"
        if (user, group, name) in self._all:
            message = "Consumer with specified consumer ID already exists in the specified consumer group."
            raise RestError(Code.CONSUMER_ALREADY_EXISTS, message)
        if self._room.instances >= INSTANCES_MAX:
            raise RestError(Code.TOO_MANY_REQUESTS, f"There are {INSTANCES_MAX} consumer instances; delete some.")
        instance = self._all[user, group, name] = Instance(
            self._cluster, group, name, config, self._room, self._schemas
        )
        instance.user = user
        self._room.instances += 1
        self._touch(instance)
        return instance

    def find(self, group: str, name: str, user: str = "") -> Instance:
        """Return a consumer instance of `user`, and renew its timeout. Raises RestError."""
        instance = self._all.get((user, group, name))
        if instance is None:
            raise instance_not_found()
        self._touch(instance)
        return instance

    def _touch(self, instance: Instance) -> None:
        instance.expires_at_s = trio.current_time() + self._timeout_s

    def hasten(self) -> None:
        """End all waiting reads early, with the records that they have, because the proxy stops."""
        self._room.is_closing = True

    async def delete(self, instance: Instance) -> None:
        """Delete an instance; later requests no longer find it."""
        self._forget(instance)
        async with instance.lock:
            await instance.close()

    def _forget(self, instance: Instance) -> None:
        if self._all.pop((instance.user, instance.group, instance.name), None) is not None:
            self._room.instances -= 1

    async def run(self) -> None:
        """Delete idle instances until cancelled; then leave all groups."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    await trio.sleep(SWEEP_S)
                    now_s = trio.current_time()
                    for each in [each for each in self._all.values() if each.expires_at_s <= now_s]:
                        if not each.lock.locked():
                            logger.info("consumer instance %s of group %r has timed out", each.name, each.group)
                            self._forget(each)
                            nursery.start_soon(each.close)
        finally:
            with trio.move_on_after(CLOSE_S, shield=True):
                async with trio.open_nursery() as nursery:
                    for each in self._all.values():
                        nursery.start_soon(each.close)
