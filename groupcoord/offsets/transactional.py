"""TxnOffsetCommit: offset commits of a group inside a producer's transaction.

The service first asks the transaction's coordinator if the group's partition of the offsets topic takes part. For clients of
transaction version 2 the question also adds the partition. Then the offsets are committed as usual, in a batch that is
part of the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Protocol

import trio

from ottla.groupcoord.offsets.commits import MergedTopics, Topics, elements_in, parts_of, split_commit, with_topics
from ottla.groupcoord.offsets.manager import TXN_TOPIC_ID_VERSION, CommitInTransaction
from ottla.groupcoord.offsets.table import refused_commit
from ottla.groupcoord.runtime.answers import Caller, finished, then
from ottla.groupcoord.runtime.coordinator_shard import Transaction, translated
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE, GroupRuntime
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_KNOWN_SINCE = 2
"""Producers before this version may fail when they hear that a coordinator is loading."""


class CommitVerifier(Protocol):
    """Client of transaction coordinators. It verifies that a partition of the offsets topic is in a transaction."""

    def verify(
        self, partition: int, transactional_id: str, producer_id: int, producer_epoch: int, *, api_version: int
    ) -> Worked[object | None]:
        """Verify that a partition of the offsets topic is part of a producer's transaction.

        Returns the guard for the append, or an awaitable of it. Both raise KafkaError if the partition is not.
        `api_version` is that of TxnOffsetCommit.
        """


class TransactionalOffsetService:
    """Handler of TxnOffsetCommit."""

    def __init__(self, runtime: GroupRuntime, topics: Topics, verifier: CommitVerifier) -> None:
        self._runtime = runtime
        self._topics = topics
        self._verifier = verifier

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, *, api_version: int, denied: Collection[str] = ()
    ) -> Worked[Given[TxnOffsetCommitResponse]]:
        """Handle TxnOffsetCommit. As in Kafka, unknown and `denied` topics are refused before the verification."""
        committing = _Committing(self, request, api_version, denied)
        if elements_in(request.topics, attrgetter("partitions"), ELEMENTS_PER_SLICE) > ELEMENTS_PER_SLICE:
            return committing.run_in_parts()
        return committing.run()

    def refuse_at_once(self, group_id: str) -> ErrorCode:
        try:
            self._runtime.check_running()
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE if group_id else ErrorCode.INVALID_GROUP_ID

    def split(
        self, request: OffsetCommitRequest, api_version: int, denied: Collection[str]
    ) -> tuple[OffsetCommitRequest, list[OffsetCommitResponseTopic]]:
        """Return a commit's topics with existing partitions, and error results for all other partitions."""
        by_id = api_version >= TXN_TOPIC_ID_VERSION
        known, refused = split_commit(request, self._topics, by_id=by_id, denied=denied)
        return with_topics(request, known), refused

    def verify(self, request: TxnOffsetCommitRequest, api_version: int) -> Worked[object | None]:
        """Verify the request's transaction and return the guard for the append. Raises KafkaError."""
        return self._verifier.verify(
            self._runtime.partition_for(request.group_id),
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            api_version=api_version,
        )

    def commit(
        self, request: OffsetCommitRequest, transaction: Transaction, api_version: int
    ) -> Given[OffsetCommitResponse]:
        """Submit the commit to the group's shard."""
        caller = Caller(lambda error: refused_commit(request, error), api_version=api_version)
        return self._runtime.submit(request.group_id, CommitInTransaction(request, transaction), caller)


class _Committing:
    """Processing of one TxnOffsetCommit request."""

    def __init__(
        self,
        service: TransactionalOffsetService,
        request: TxnOffsetCommitRequest,
        api_version: int,
        denied: Collection[str],
    ) -> None:
        self._denied = denied
        self._service = service
        self._request = request
        self._version = api_version
        self._merged: MergedTopics[TxnOffsetCommitResponseTopic] = MergedTopics()

    def run(self) -> Worked[Given[TxnOffsetCommitResponse]]:
        whole = _as_commit(self._request, [(topic, topic.partitions) for topic in self._request.topics])
        known, refused = self._service.split(whole, self._version, self._denied)
        self._add(refused)
        if not known.topics:
            return self._response()
        guard: Worked[object | None]
        try:
            self._check()
            guard = self._service.verify(self._request, self._version)
        except KafkaError as error:
            return self._finish(refused_commit(known, _told(error.code)))
        if isinstance(guard, Coroutine):
            return self._run_when_verified(known, guard)
        return then(self._commit(known, guard), self._finish)

    async def _run_when_verified(
        self, known: OffsetCommitRequest, guard: Coroutine[Any, Any, object | None]
    ) -> Given[TxnOffsetCommitResponse]:
        try:
            verified = await guard
        except KafkaError as error:
            return self._finish(refused_commit(known, _told(error.code)))
        return then(self._commit(known, verified), self._finish)

    async def run_in_parts(self) -> TxnOffsetCommitResponse:
        """Commit a large request part by part; the transaction is verified once."""
        refusal, guard = ErrorCode.NONE, None
        is_verified = False
        for part in _parts_of(self._request):
            known, refused = self._service.split(part, self._version, self._denied)
            self._add(refused)
            if known.topics and not is_verified:
                is_verified = True
                try:
                    self._check()
                    verifying: Worked[object | None] = self._service.verify(self._request, self._version)
                    guard = await verifying if isinstance(verifying, Coroutine) else verifying
                except KafkaError as error:
                    refusal = _told(error.code)
            if known.topics:
                answer = refused_commit(known, refusal) if refusal else await finished(self._commit(known, guard))
                self._add(answer.topics)
            await trio.lowlevel.checkpoint()
        return self._response()

    def _check(self) -> None:
        code = self._service.refuse_at_once(self._request.group_id)
        if code:
            raise KafkaError(code)

    def _commit(self, known: OffsetCommitRequest, guard: object | None) -> Given[OffsetCommitResponse]:
        transaction = Transaction(self._request.producer_id, self._request.producer_epoch, guard)
        return self._service.commit(known, transaction, self._version)

    def _finish(self, response: OffsetCommitResponse) -> TxnOffsetCommitResponse:
        self._add(response.topics)
        return self._response()

    def _add(self, topics: list[OffsetCommitResponseTopic]) -> None:
        """Convert results of a part from OffsetCommit to TxnOffsetCommit, and add them to the response."""
        self._merged.add(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=self._understood(each.error_code)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        )

    def _response(self) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(topics=self._merged.topics())

    def _understood(self, code: int) -> int:
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._version < LOADING_KNOWN_SINCE:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return code


def _parts_of(request: TxnOffsetCommitRequest) -> Iterator[OffsetCommitRequest]:
    """Yield OffsetCommit requests that are small parts of a large request."""
    for part in parts_of(request.topics, attrgetter("partitions"), ELEMENTS_PER_SLICE):
        yield _as_commit(request, part)


def _as_commit(
    request: TxnOffsetCommitRequest,
    topics: Iterable[tuple[TxnOffsetCommitRequestTopic, Sequence[TxnOffsetCommitRequestPartition]]],
) -> OffsetCommitRequest:
    """Convert some topics and partitions of the request to an OffsetCommit request, which shards can handle."""
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        committed_metadata=each.committed_metadata,
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in topics
        ],
    )


def _told(code: ErrorCode) -> ErrorCode:
    """Return the error for the producer: a verification error becomes one after which producers retry."""
    if code is ErrorCode.NETWORK_EXCEPTION:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return translated(code)
