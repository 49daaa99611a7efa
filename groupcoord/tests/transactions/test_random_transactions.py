"""Transactions under random producers: whatever they do, the state in force is the state that the log says, a transaction that
was decided is never decided otherwise, and nobody works with an epoch that was given to somebody else.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.groupcoord.tests.transaction_conversation import Asked, Transactions
from ottla.groupcoord.transactions.metadata import (
    EPOCH_EXHAUSTED,
    NO_PRODUCER_EPOCH,
    ONGOING,
    PREPARED,
    TransactionMetadata,
)
from ottla.groupcoord.transactions.records import TransactionRecord
from ottla.groupcoord.transactions.shard import CompleteTransaction, MarkersOwed, ProducerAnswer
from ottla.groupcoord.transactions.transitions import AddPartitions, EndTransaction, InitProducerId
from ottla.wire.errors import ErrorCode
from ottla.wire.tests.effort import examples

NAMES = ("a", "b")
PLACES = [("topic", index) for index in range(4)]
names = st.sampled_from(NAMES)


class RandomTransactions(RuleBasedStateMachine):
    @initialize(transaction_version=st.sampled_from([0, 1, 2]))
    def begin(self, transaction_version: int) -> None:
        self.talk = Transactions(transaction_version=transaction_version, transactional_id_expiration_ms=200_000)
        self.producers: dict[str, list[tuple[int, int]]] = {name: [(7, 0)] for name in NAMES}
        self.given: set[tuple[str, int, int]] = set()
        self.asked: list[tuple[str, Asked]] = []
        self.owed: list[MarkersOwed] = []
        self.completing: list[tuple[MarkersOwed, Asked]] = []
        self.decided: dict[tuple[str, int, int], bool] = {}

    def send(self, name: str, request: InitProducerId | AddPartitions | EndTransaction) -> None:
        self.asked.append((name, self.talk.send(request)))
        self.take_answers()

    def take_answers(self) -> None:
        waiting = []
        for name, asked in self.asked:
            answer = asked.answer
            if answer is None:
                waiting.append((name, asked))
            elif answer.error is ErrorCode.NONE and answer.producer_id >= 0:
                self.producers[name].append((answer.producer_id, answer.producer_epoch))
        self.asked = waiting

    # ------------------------------------------------------------------ producers

    @rule(name=names, known=st.booleans(), which=st.integers(0, 3))
    def init(self, name: str, known: bool, which: int) -> None:
        self.send(name, InitProducerId(name, 20_000, self.producer(name, which) if known else None))

    @rule(name=names, which=st.integers(0, 1), places=st.frozensets(st.sampled_from(PLACES), min_size=1))
    def add(self, name: str, which: int, places: frozenset[tuple[str, int]]) -> None:
        producer_id, epoch = self.producer(name, which)
        self.send(name, AddPartitions(name, producer_id, epoch, places, self.talk.transaction_version))

    @rule(name=names, which=st.integers(0, 2), commit=st.booleans(), version=st.sampled_from([0, 2]))
    def end(self, name: str, which: int, commit: bool, version: int) -> None:
        producer_id, epoch = self.producer(name, which)
        self.send(name, EndTransaction(name, producer_id, epoch, commit, version))

    def producer(self, name: str, which: int) -> tuple[int, int]:
        """The last one that this name had, or one of those before."""
        return self.producers[name][-1 - min(which, len(self.producers[name]) - 1)]

    @rule(name=names)
    def exhaust(self, name: str) -> None:
        """Many producers have come and gone."""
        known = self.talk.shard.known(name)
        is_pending = any(record.transactional_id == name for record, _ in self.talk.uncommitted)
        if known is not None and known.state not in PREPARED and not is_pending:
            version = min(self.talk.transaction_version, 1)
            last = TransactionRecord(name, known._replace(producer_epoch=EPOCH_EXHAUSTED), version)
            self.talk._put_in_force(last)
            self.producers[name].append((known.producer_id, EPOCH_EXHAUSTED))

    # ------------------------------------------------------------------ the shell, time, and trouble

    @rule()
    def commit_slowly(self) -> None:
        self.talk.is_committing = False

    @rule()
    def commit(self) -> None:
        self.talk.is_committing = True
        self.talk.commit()
        self.take_answers()

    @rule(refused=st.booleans())
    def refuse(self, refused: bool) -> None:
        self.talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE if refused else ErrorCode.NONE

    @rule()
    def no_ids(self) -> None:
        self.talk.has_producer_ids = not self.talk.has_producer_ids

    @rule(milliseconds=st.integers(0, 60_000))
    def pass_time(self, milliseconds: int) -> None:
        self.talk.advance(milliseconds)

    @rule()
    def restart(self) -> None:
        self.talk.restart()
        self.asked.clear()
        self.owed.clear()
        self.completing.clear()

    @rule()
    def take_owed(self) -> None:
        for owed in self.talk.shard.take_owed():
            self.owed.append(owed)
            decision = (owed.transactional_id, owed.producer_id, owed.producer_epoch)
            if owed.transaction_version >= 2:
                assert self.decided.setdefault(decision, owed.is_commit) == owed.is_commit

    @precondition(lambda self: self.owed)
    @rule(which=st.integers(0, 3))
    def complete(self, which: int) -> None:
        owed = self.owed.pop(min(which, len(self.owed) - 1))
        asked = self.talk.send(CompleteTransaction(owed.transactional_id, owed.producer_id, owed.producer_epoch))
        if asked.answer is None:
            self.completing.append((owed, asked))
        elif asked.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            self.owed.append(owed)

    # ------------------------------------------------------------------ what has to hold

    @invariant()
    def state_is_what_the_log_says(self) -> None:
        again = Transactions(transaction_version=self.talk.transaction_version)
        again.log = self.talk.log
        again.restart()
        living = {name: _without_memory(self.talk.shard.known(name)) for name in self.talk.shard.ids()}
        rebuilt = {name: again.shard.known(name) for name in again.shard.ids()}
        if self.talk.transaction_version == 0:
            living = {name: _as_version_0(known) for name, known in living.items()}
        assert rebuilt == living

    @invariant()
    def only_open_transactions_have_partitions(self) -> None:
        for name in self.talk.shard.ids():
            known = self.talk.shard.known(name)
            assert known is not None
            if known.partitions:
                assert known.state is ONGOING or known.state in PREPARED
            assert known.producer_id >= 0 and known.producer_epoch >= 0

    @invariant()
    def everything_prepared_is_owed_or_being_written(self) -> None:
        owed = {each.transactional_id for each in self.owed} | set(self.talk.shard._owed)
        owed |= {each.transactional_id for each, asked in self.completing if asked.answer is None}
        for name in self.talk.shard.ids():
            known = self.talk.shard.known(name)
            assert known is not None and (known.state not in PREPARED or name in owed)

    def teardown(self) -> None:
        """When the trouble is over everybody can begin anew."""
        talk = self.talk
        talk.refuse_appends, talk.has_producer_ids, talk.is_committing = ErrorCode.NONE, True, True
        talk.commit()
        talk.restart()
        talk.write_markers()
        for name in NAMES:
            answer: ProducerAnswer = talk.init(name)
            if answer.error is ErrorCode.CONCURRENT_TRANSACTIONS:
                talk.write_markers()
                answer = talk.init(name)
            assert answer.error is ErrorCode.NONE
            assert talk.add(answer, transactional_id=name) is ErrorCode.NONE
            assert talk.end(answer, transactional_id=name).error is ErrorCode.NONE
            talk.write_markers()


def _without_memory(known: TransactionMetadata | None) -> TransactionMetadata | None:
    """The metadata that a record has."""
    return None if known is None else known._replace(last_producer_epoch=NO_PRODUCER_EPOCH)


def _as_version_0(known: TransactionMetadata | None) -> TransactionMetadata | None:
    if known is None:
        return None
    return known._replace(previous_producer_id=-1, next_producer_id=-1, client_transaction_version=0)


TestRandomTransactions = RandomTransactions.TestCase
TestRandomTransactions.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
