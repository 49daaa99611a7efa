"""Acknowledgements of one request, of ShareAcknowledge or with a ShareFetch: who may what, and when all are stored.

| what is wrong                                                    | the partition gets         |
|------------------------------------------------------------------|----------------------------|
| the topic id is unknown                                          | UNKNOWN_TOPIC_ID           |
| offsets out of order, types too few or unknown, an unannounced renewal | INVALID_REQUEST      |
| the client may not read the topic                                | TOPIC_AUTHORIZATION_FAILED |
| no such partition, or no member has fetched it here              | UNKNOWN_TOPIC_OR_PARTITION |
| the member does not hold the records                             | INVALID_RECORD_STATE       |
| the share coordinator cannot store it                            | its error                  |
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.groupcoord.share.coordinator.keys import SharePartitionKey
from ottla.groupcoord.share.partition.acknowledging import REJECT, RENEW, RUNS_MAX, AcknowledgementBatch
from ottla.groupcoord.share.partition.in_flight import Change
from ottla.groupcoord.share.partition.sessions import TopicPartition
from ottla.server.share.leader_share import locks_now_ms
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.server.fetch.rights import FetchRights
    from ottla.server.share.service import ShareGroups


BATCHES_PER_STEP = 500


class Said(Protocol):
    """One batch of acknowledgements, as both requests have it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class Result(NamedTuple):
    """How the acknowledgements for one partition ended."""

    error: ErrorCode
    message: str | None = None


class Member(NamedTuple):
    """Who acknowledges; `may_renew`: the request says that it renews locks."""

    group_id: str
    member_id: str
    may_renew: bool


class Acknowledged:
    """The results of one request; complete when `missing` is 0."""

    def __init__(
        self, groups: ShareGroups, cluster: MetadataCache, member: Member, rights: FetchRights | None = None
    ) -> None:
        self._rights = rights
        self._groups = groups
        self._cluster = cluster
        self._member = member
        self.results: dict[TopicPartition, Result] = {}
        self.missing = 0
        self._has_acknowledged = False
        self._empty: list[TopicPartition] = []
        self.on_done: Callable[[], None] | None = None

    @property
    def is_done(self) -> bool:
        return not self.missing

    def add(self, partition: TopicPartition, said: Sequence[Said]) -> Iterator[None]:
        """Acknowledge for one partition, in short steps: the last one does it, when everything was looked at."""
        if partition.topic is None:
            self.results[partition] = Result(ErrorCode.UNKNOWN_TOPIC_ID)
            return
        batches = yield from _sensible(said, may_renew=self._member.may_renew)
        if batches is None:
            self.results[partition] = Result(ErrorCode.INVALID_REQUEST)
        elif self._rights is not None and self._rights.refuse(partition.topic):
            self.results[partition] = Result(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif self._cluster.partition(partition.topic, partition.partition) is None:
            self.results[partition] = Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif not said:
            self._empty.append(partition)
        else:
            self._has_acknowledged = True
            self._acknowledge(partition, batches)

    def end(self) -> None:
        """All have been added. Partitions for which nothing was said are told of only beside others, as in Kafka."""
        if self._has_acknowledged:
            for partition in self._empty:
                self.results.setdefault(partition, Result(ErrorCode.NONE))

    def _acknowledge(self, partition: TopicPartition, batches: Sequence[AcknowledgementBatch]) -> None:
        group_id, member_id, _ = self._member
        share = self._groups.share(SharePartitionKey(group_id, partition.topic_id, partition.partition))
        if share is None or not share.machine.is_active:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self.results[partition] = Result(error, error.message)
            return
        try:
            change = share.machine.acknowledge(member_id, batches, locks_now_ms())
        except KafkaError as error:
            self.results[partition] = Result(error.code, error.message)
            share.after()
            return
        if not change.is_settled:
            self.missing += 1
            change.on_settled = partial(self._on_settled, partition, change)
        else:
            self.results[partition] = Result(change.error)
        share.after()

    def _on_settled(self, partition: TopicPartition, change: Change) -> None:
        self.results[partition] = Result(change.error)
        self.missing -= 1
        on_done = self.on_done
        if not self.missing and on_done is not None:
            self.on_done = None
            on_done()

    def abandon(self) -> None:
        """Nobody waits any more. What was said is stored all the same."""
        self.on_done = None


def _sensible(said: Sequence[Said], *, may_renew: bool) -> Generator[None, None, list[AcknowledgementBatch] | None]:
    """What was said, some of it looked at in each step; None if it makes no sense."""
    # So many are refused in any case, and to look at each of a million takes a second.
    if len(said) > RUNS_MAX:
        return None
    before = -1
    last_type = RENEW if may_renew else REJECT
    batches = []
    for number, batch in enumerate(said, 1):
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        # Kafka lets a batch begin with the record with which the one before it has ended.
        if first > last or first < before or not types:
            return None
        if len(types) > 1 and last - first != len(types) - 1:
            return None
        if min(types) < 0 or max(types) > last_type:
            return None
        before = last
        batches.append(AcknowledgementBatch(first, last, types))
        if number % BATCHES_PER_STEP == 0:
            yield
    return batches
