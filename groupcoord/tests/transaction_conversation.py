"""A shard of transactional ids that several producers talk to, with a log that commits when told and time that stands still."""

from __future__ import annotations

from typing import Any

from ottla.groupcoord.config import TransactionConfig
from ottla.groupcoord.runtime.answers import Caller, Reply
from ottla.groupcoord.runtime.coordinator_shard import Outcome
from ottla.groupcoord.transactions.metadata import (
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionMetadata,
    TransactionState,
)
from ottla.groupcoord.transactions.records import TransactionRecord, decode_record, encode_record
from ottla.groupcoord.transactions.shard import (
    CompleteTransaction,
    MarkersOwed,
    ProducerAnswer,
    Request,
    TransactionShard,
)
from ottla.groupcoord.transactions.transitions import AddPartitions, EndTransaction, InitProducerId
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import Happenings

ID = "tx"
START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1000
PLACES = frozenset({("topic", 0), ("topic", 1)})


class Asked(Caller):
    """One request on its way: `answer` is there once it was answered."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        super().__init__(ErrorCode)
        self.answer: ProducerAnswer | None = None


class Transactions:
    """Requests of producers to a shard and its answers."""

    def __init__(self, *, transaction_version: int = 2, **config: Any) -> None:
        self.config = TransactionConfig(**config)
        self.transaction_version = transaction_version
        self.now_ms = 0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.refuse_appends = ErrorCode.NONE
        self.is_committing = True
        self.uncommitted: list[tuple[TransactionRecord, Outcome[TransactionRecord]]] = []
        self.has_producer_ids = True
        self._last_producer_id = FIRST_PRODUCER_ID - 1
        self.happenings = Happenings(lambda: START_MS + self.now_ms)
        self.shard = self._new_shard()

    def _new_shard(self) -> TransactionShard:
        shard = TransactionShard(
            self.config,
            take_producer_id=self._take_producer_id,
            transaction_version=lambda: self.transaction_version,
            tell=lambda name, log, text, *arguments: log(text, *arguments),
            note=self.happenings.note,
        )
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            shard.replay(record)
        shard.loaded(**self.times())
        return shard

    def _take_producer_id(self) -> int | None:
        if not self.has_producer_ids:
            return None
        self._last_producer_id += 1
        return self._last_producer_id

    # ------------------------------------------------------------------ the shell's part

    def times(self) -> dict[str, int]:
        return {"now_ms": self.now_ms, "timestamp_ms": START_MS + self.now_ms}

    def restart(self) -> None:
        """Lose everything but the log."""
        self.uncommitted.clear()
        self.shard = self._new_shard()

    def commit(self) -> None:
        """Commit the appended records."""
        waiting, self.uncommitted = self.uncommitted, []
        for record, outcome in waiting:
            self._put_in_force(record)
            self._send(outcome.replies)

    def _put_in_force(self, record: TransactionRecord) -> None:
        self.log.append(encode_record(record))
        self.shard.replay(record)

    def _carry_out(self, outcome: Outcome[TransactionRecord]) -> None:
        self._send(outcome.replies)
        replies = self.shard.settle(outcome.settlements, self.refuse_appends, **self.times())
        if self.refuse_appends or self.is_committing:
            if not self.refuse_appends:
                for record in outcome.records:
                    self._put_in_force(record)
            self._send(replies)
        else:
            for record in outcome.records:
                self.uncommitted.append((record, Outcome([], replies, [])))
                replies = []

    def _send(self, replies: list[Reply]) -> None:
        for caller, response in replies:
            assert isinstance(caller, Asked) and isinstance(response, ProducerAnswer)
            assert caller.answer is None, "answered twice"
            caller.answer = response

    def send(self, request: Request) -> Asked:
        asked = Asked()
        self._carry_out(self.shard.handle(request, asked, **self.times()))
        return asked

    def ask(self, request: Request) -> ProducerAnswer:
        answer = self.send(request).answer
        assert answer is not None, "not answered yet"
        return answer

    def advance(self, milliseconds: int) -> None:
        """Let time pass, with everything that is due on the way happening when it is due."""
        end_ms = self.now_ms + milliseconds
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._carry_out(self.shard.expire(**self.times()))
        self.now_ms = end_ms

    # ------------------------------------------------------------------ what producers say

    def init(
        self, transactional_id: str = ID, *, expected: tuple[int, int] | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> ProducerAnswer:
        return self.ask(InitProducerId(transactional_id, timeout_ms, expected))

    def add(
        self,
        producer: ProducerAnswer,
        *places: tuple[str, int],
        transactional_id: str = ID,
        version: int | None = None,
    ) -> ErrorCode:
        version = self.transaction_version if version is None else version
        partitions = frozenset(places) or PLACES
        request = AddPartitions(transactional_id, producer.producer_id, producer.producer_epoch, partitions, version)
        return self.ask(request).error

    def end(
        self,
        producer: ProducerAnswer,
        *,
        commit: bool = True,
        transactional_id: str = ID,
        version: int | None = None,
    ) -> ProducerAnswer:
        version = self.transaction_version if version is None else version
        return self.ask(
            EndTransaction(transactional_id, producer.producer_id, producer.producer_epoch, commit, version)
        )

    def write_markers(self) -> list[MarkersOwed]:
        """All markers that are owed are written."""
        owed = self.shard.take_owed()
        for each in owed:
            request = CompleteTransaction(each.transactional_id, each.producer_id, each.producer_epoch)
            assert self.ask(request).error is ErrorCode.NONE
        return owed

    # ------------------------------------------------------------------ what is seen

    def known(self, transactional_id: str = ID) -> TransactionMetadata:
        known = self.shard.known(transactional_id)
        assert known is not None
        return known

    @property
    def state(self) -> TransactionState:
        return self.known().state

    def in_force(self) -> dict[str, TransactionMetadata | None]:
        return {each: self.shard.known(each) for each in self.shard.ids()}

    # ------------------------------------------------------------------ whole stories

    def in_state(self, state: TransactionState) -> ProducerAnswer:
        """Bring the id into a state. Returns the producer as it knows itself."""
        producer = self.init()
        if state is EMPTY:
            return producer
        assert self.add(producer) is ErrorCode.NONE
        if state is ONGOING:
            return producer
        is_commit = state in (PREPARE_COMMIT, COMPLETE_COMMIT)
        after = self.end(producer, commit=is_commit)
        assert after.error is ErrorCode.NONE
        if state not in (PREPARE_COMMIT, PREPARE_ABORT):
            self.write_markers()
        return after
