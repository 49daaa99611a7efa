"""Members of a share group: each says that it is there, and consumes from the leaders of what it is assigned.

What becomes of a record is left to chance: most are accepted, at once or after a while; some are released, rejected, held so
long that another member gets them, or held longer by renewal. Members leave, or are gone without a word, and come back under
another id. In the end (`is_draining`) they accept everything, so that the group gets to the end of the topic.

Nobody tells a member in which epoch of its leader it has acquired records. So it asks the leader for its epoch after it was
given some: if that is the same as it was at the look before, they were acquired in it.
"""

import base64
import random
from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple

import trio

from ottla.server.testing.client.connections import BACKOFF_S, Channel, Connections
from ottla.server.testing.history.group_events import (
    ShareAcquired,
    ShareAnswered,
    ShareSaid,
    ShareSessionLost,
    ShareTold,
)
from ottla.server.testing.history.history import Recorder
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import share_fetch
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from ottla.wire.messages.share_group import ShareGroupHeartbeatRequest

HEARTBEAT_VERSION, SHARE_FETCH_VERSION, SHARE_ACKNOWLEDGE_VERSION, LIST_OFFSETS_VERSION = 1, 2, 2, 7
MAX_WAIT_MS = 500
JOIN_EPOCH = FIRST_EPOCH = 0
LEAVE_EPOCH = FINAL_EPOCH = -1
LIFE_S = 30.0  # on average
TYPES = {"accept": 1, "release": 2, "reject": 3, "renew": 4}
FATES = {"accept": 70, "accept later": 10, "release": 8, "reject": 3, "renew": 4, "keep": 5}
PUT_OUT = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
REFUSALS = (
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
)
"""Told before anything is stored."""


class Word(NamedTuple):
    """What a member has to say of records that it was given together, and when."""

    due: float
    partition: int
    first: int
    last: int
    what: str
    delivery_count: int
    leader_epoch: int | None


class _Session:
    def __init__(self, name: str, channel: Channel) -> None:
        self.name = name
        self.channel = channel
        self.epoch = FIRST_EPOCH
        self.partitions: set[int] = set()
        self.named: set[int] = set()  # in any request
        self.leader_epochs: dict[int, int] = {}
        self.words: list[Word] = []
        self.unanswered: float | None = None  # when the fetch was asked for whose records are not written down yet


class SimShareMember:
    """See the module's docstring."""

    def __init__(
        self,
        coordinating: Connections,
        fetching: Connections,
        record: Recorder,
        group: str,
        topic: str,
        records_max: int = 50,
    ) -> None:
        """It has a way of its own to the coordinator, where fetches that wait hold up no heartbeat."""
        self.is_draining = False
        self.accepted = 0
        self._coordinating, self._client = coordinating, fetching
        self._add = record.add
        self._group, self._topic = group, topic
        self._chance = random.Random(coordinating.name + str(coordinating.network.chance.random()))
        self._records_max = records_max
        self._lives, self._sessions = count(), count()
        self._name = self._member_id = ""
        self._assigned: frozenset[int] = frozenset()
        self._member_epoch = JOIN_EPOCH
        self._is_heard = False

    def __str__(self) -> str:
        return f"{self._name}: epoch {self._member_epoch}, assigned {sorted(self._assigned)}"

    async def run(self) -> None:
        """One life after the other, until cancelled."""
        await self._client.topic_id(self._topic)
        while True:
            self._name = f"{self._coordinating.name}/{next(self._lives)}"
            self._member_id = base64.urlsafe_b64encode(self._chance.randbytes(16)).decode().rstrip("=")
            self._member_epoch, self._assigned, self._is_heard = JOIN_EPOCH, frozenset(), False
            await self._live()
            await trio.sleep(self._chance.uniform(0.0, 5.0))

    async def _live(self) -> None:
        is_orderly = self._chance.random() < 0.5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._heartbeat_regularly)
            async with trio.open_nursery() as sessions:
                is_over = trio.Event()
                for broker in self._client.brokers:
                    sessions.start_soon(self._consume, broker, is_over)
                await trio.sleep(self._chance.expovariate(1 / LIFE_S))
                while self.is_draining:
                    await trio.sleep(1.0)
                is_over.set()
                if not is_orderly:
                    sessions.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
        if is_orderly:
            await self._heartbeat(LEAVE_EPOCH)

    # ------------------------------------------------------------------ membership

    async def _heartbeat_regularly(self) -> None:
        while True:
            response = await self._heartbeat(self._member_epoch)
            code = None if response is None else ErrorCode(response.error_code)
            # An answer that was lost may have told of another assignment. The member says everything again, as Kafka's client
            # does (AbstractHeartbeatRequestManager). The broker tells everything then.
            self._is_heard = code is ErrorCode.NONE
            if code is ErrorCode.NONE:
                self._member_epoch = response.member_epoch
                if response.assignment is not None:
                    self._assigned = frozenset(
                        index for topic in response.assignment.topic_partitions for index in topic.partitions
                    )
                await trio.sleep(response.heartbeat_interval_ms / 1000 * self._chance.uniform(0.5, 1.0))
            elif code in PUT_OUT:
                self._member_epoch, self._assigned = JOIN_EPOCH, frozenset()
            await trio.sleep(BACKOFF_S)

    async def _heartbeat(self, epoch: int) -> Any:
        coordinator = await self._coordinating.coordinator(self._group)
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if self._is_heard else [self._topic],
        )
        return await self._coordinating.ask(coordinator, request, HEARTBEAT_VERSION)

    # ------------------------------------------------------------------ one broker

    async def _consume(self, broker: int, is_over: trio.Event) -> None:
        session: _Session | None = None
        is_closed = False
        try:
            while not is_over.is_set():
                if session is None:
                    session, is_closed = await self._begin(broker), False
                elif await self._turn(broker, session):
                    if not session.partitions:
                        is_closed = await self._close(session)
                        session = None
                else:
                    session = None
                    await trio.sleep(BACKOFF_S)
            is_closed = session is None or await self._close(session)
        finally:
            if not is_closed and session is not None:  # gone without a word
                self._lose(session)
                session.channel.lose()

    def _led_by(self, broker: int) -> set[int]:
        leaders = self._client.leaders
        return {each for each in self._assigned if leaders.get((self._topic, each), (-1, -1))[0] == broker}

    async def _find_leaders(self) -> None:
        if any((self._topic, each) not in self._client.leaders for each in self._assigned):
            await self._client.refresh(self._topic)

    async def _begin(self, broker: int) -> _Session | None:
        await self._find_leaders()
        partitions = self._led_by(broker)
        channel = await self._client.channel(broker) if partitions else None
        if channel is None:
            for each in partitions:
                self._client.forget_leader(self._topic, each)
            await trio.sleep(0.2)
            return None
        session = _Session(f"{self._name}@{broker}#{next(self._sessions)}", channel)
        session.leader_epochs = await self._look(session, partitions)
        return session

    async def _turn(self, broker: int, session: _Session) -> bool:
        """One request; whether the session goes on."""
        await self._find_leaders()
        words = self._due(session)
        is_renewal = any(word.what == "renew" for word in words)
        if session.epoch != FIRST_EPOCH and words and (is_renewal or self._chance.random() < 0.5):
            return await self._acknowledge(session, words, is_renewal=is_renewal)
        return await self._fetch(broker, session, words)

    def _due(self, session: _Session) -> list[Word]:
        """What is to be said now: renewals for themselves, and nothing in the first request of a session."""
        if session.epoch == FIRST_EPOCH:
            return []
        now = trio.current_time()
        due = [word for word in session.words if word.due <= now or self.is_draining]
        renewals = [word for word in due if word.what == "renew"]
        chosen = renewals or due
        session.words = [word for word in session.words if word not in chosen]
        return sorted(chosen, key=lambda word: (word.partition, word.first))

    # ------------------------------------------------------------------ fetching

    async def _fetch(self, broker: int, session: _Session, words: list[Word]) -> bool:
        wanted = self._led_by(broker)
        request = self._fetch_request(session, wanted, words)
        session.partitions = wanted
        session.named |= wanted
        self._say(session, words)
        asked = session.unanswered = trio.current_time()
        response = await self._client.ask_on(session.channel, request, SHARE_FETCH_VERSION)
        if response is None or response.error_code:
            self._not_answered(session, words, response, asked)
            return False
        self._add(ShareAnswered, self._group, session.name, asked)
        session.epoch += 1
        found = [each for topic in response.responses for each in topic.partitions]
        errors = {each.partition_index: ErrorCode(each.acknowledge_error_code) for each in found}
        self._hear(session, words, errors, asked)
        for each in found:
            if each.error_code:
                self._client.forget_leader(self._topic, each.partition_index)
        await self._take(
            session, [each for each in found if each.acquired_records], asked, response.acquisition_lock_timeout_ms
        )
        session.unanswered = None
        if any(each.error_code for each in found):
            await self._client.refresh(self._topic)
        return True

    def _fetch_request(self, session: _Session, wanted: set[int], words: list[Word]) -> ShareFetchRequest:
        named = {
            each: share_fetch.FetchPartition(partition_index=each, acknowledgement_batches=[])
            for each in wanted - session.partitions
        }
        for word in words:
            data = named.setdefault(
                word.partition, share_fetch.FetchPartition(partition_index=word.partition, acknowledgement_batches=[])
            )
            data.acknowledgement_batches.append(
                share_fetch.AcknowledgementBatch(
                    first_offset=word.first, last_offset=word.last, acknowledge_types=[TYPES[word.what]]
                )
            )
        topic_id, forgotten = self._client.topic_ids[self._topic], sorted(session.partitions - wanted)
        records_max = self._chance.randint(1, self._records_max)
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=self._chance.choice((0, 1)),
            topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=[named[each] for each in sorted(named)])]
            if named
            else [],
            forgotten_topics_data=[share_fetch.ForgottenTopic(topic_id=topic_id, partitions=forgotten)]
            if forgotten
            else [],
        )

    async def _take(self, session: _Session, found: list[Any], asked: float, lock_ms: int) -> None:
        if not found:
            return
        looked = await self._look(session, [each.partition_index for each in found])
        for each in found:
            index, epoch = each.partition_index, looked.get(each.partition_index)
            if epoch != session.leader_epochs.get(index):
                epoch = None
            for run in each.acquired_records:
                where = (self._topic, index, run.first_offset, run.last_offset)
                self._add(
                    ShareAcquired, self._group, session.name, *where, run.delivery_count, epoch, asked, lock_ms / 1000
                )
                session.words = [word for word in session.words if not _overlap(word, index, run)]
                session.words += self._words(index, run, epoch, lock_ms / 1000)
        session.leader_epochs |= looked

    def _words(self, partition: int, run: Any, epoch: int | None, lock_s: float) -> Iterable[Word]:
        """What is to become of records: they share their fate with some that come after them."""
        now, first = trio.current_time(), run.first_offset
        while first <= run.last_offset:
            last = min(run.last_offset, first + self._chance.choice((0, 1, 4, 1000)))
            (fate,) = self._chance.choices(list(FATES), list(FATES.values()))
            about = (partition, first, last)
            if fate == "renew":
                yield Word(now + lock_s * self._chance.uniform(0.3, 0.8), *about, "renew", run.delivery_count, epoch)
                yield Word(now + lock_s * self._chance.uniform(0.9, 1.2), *about, "accept", run.delivery_count, epoch)
            elif fate == "accept later":
                yield Word(now + lock_s * self._chance.uniform(0.0, 1.1), *about, "accept", run.delivery_count, epoch)
            elif fate != "keep" or self.is_draining:
                what = "accept" if self.is_draining or fate == "keep" else fate
                yield Word(now, *about, what, run.delivery_count, epoch)
            first = last + 1

    async def _look(self, session: _Session, partitions: Iterable[int]) -> dict[int, int]:
        """The epochs in which the broker of a session leads partitions, of those that it leads."""
        wanted = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in sorted(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=wanted)])
        response = await self._client.ask_on(session.channel, request, LIST_OFFSETS_VERSION)
        if response is None:
            return {}
        return {
            each.partition_index: each.leader_epoch for each in response.topics[0].partitions if not each.error_code
        }

    # ------------------------------------------------------------------ acknowledging

    async def _acknowledge(
        self, session: _Session, words: list[Word], *, is_renewal: bool = False, is_last: bool = False
    ) -> bool:
        request = self._acknowledge_request(session, words, is_renewal=is_renewal, is_last=is_last)
        self._say(session, words)
        asked = trio.current_time()
        response = await self._client.ask_on(session.channel, request, SHARE_ACKNOWLEDGE_VERSION)
        if response is None or response.error_code:
            self._not_answered(session, words, response, asked)
            return False
        if not is_last:
            self._add(ShareAnswered, self._group, session.name, asked)
        session.epoch += 1
        errors = {
            each.partition_index: ErrorCode(each.error_code)
            for topic in response.responses
            for each in topic.partitions
        }
        self._hear(session, words, errors, asked)
        return True

    def _acknowledge_request(
        self, session: _Session, words: list[Word], *, is_renewal: bool, is_last: bool
    ) -> ShareAcknowledgeRequest:
        partitions: dict[int, share_fetch.AcknowledgePartition] = {}
        for word in words:
            data = partitions.setdefault(
                word.partition,
                share_fetch.AcknowledgePartition(partition_index=word.partition, acknowledgement_batches=[]),
            )
            data.acknowledgement_batches.append(
                share_fetch.AcknowledgementBatch(
                    first_offset=word.first, last_offset=word.last, acknowledge_types=[TYPES[word.what]]
                )
            )
        topic_id = self._client.topic_ids[self._topic]
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=FINAL_EPOCH if is_last else session.epoch,
            is_renew_ack=is_renewal,
            topics=[share_fetch.AcknowledgeTopic(topic_id=topic_id, partitions=list(partitions.values()))]
            if words
            else [],
        )

    async def _close(self, session: _Session) -> bool:
        """End a session in order, and with it what the member holds; whether it has."""
        words = self._due(session)
        self._lose(session)
        if session.epoch == FIRST_EPOCH:
            return True
        return await self._acknowledge(session, [word for word in words if word.what != "renew"], is_last=True)

    # ------------------------------------------------------------------ what is written down

    def _say(self, session: _Session, words: list[Word]) -> None:
        for word in words:
            where = (self._topic, word.partition, word.first, word.last)
            self._add(ShareSaid, self._group, session.name, *where, word.what)

    def _hear(self, session: _Session, words: list[Word], errors: dict[int, ErrorCode], asked: float) -> None:
        for word in words:
            code = errors.get(word.partition)
            if code is not None:
                self._told(session, word, code, asked)
                self.accepted += word.what == "accept" and code is ErrorCode.NONE

    def _told(self, session: _Session, word: Word, code: ErrorCode, asked: float) -> None:
        where = (self._topic, word.partition, word.first, word.last)
        about = (word.what, word.delivery_count, word.leader_epoch, asked)
        error = "" if code is ErrorCode.NONE else code.name
        self._add(ShareTold, self._group, session.name, *where, *about, error, code not in REFUSALS)

    def _not_answered(self, session: _Session, words: list[Word], response: Any, asked: float) -> None:
        if response is not None:
            session.unanswered = None
            for word in words:
                self._told(session, word, ErrorCode(response.error_code), asked)
        self._lose(session)
        session.channel.lose()

    def _lose(self, session: _Session) -> None:
        for each in sorted(session.named):
            self._add(ShareSessionLost, self._group, session.name, self._topic, each, session.unanswered)


def _overlap(word: Word, partition: int, run: Any) -> bool:
    return word.partition == partition and word.first <= run.last_offset and run.first_offset <= word.last
