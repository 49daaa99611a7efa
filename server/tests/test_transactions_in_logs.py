"""A coordinator of transactions and the log of one partition, with markers that are late, lost or doubled between them.

Meanwhile the coordinator moves, the level of transaction.version goes up and down, and a producer's next transaction may be of
the older or the newer protocol. Whatever happens, a marker ends the transaction that was decided with it and no other one, and
none that is still owed is refused: its transactional id would wait for it for ever.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.groupcoord.tests.transaction_conversation import ID, Transactions
from ottla.groupcoord.transactions.metadata import (
    EPOCH_EXHAUSTED,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    TransactionMetadata,
)
from ottla.groupcoord.transactions.records import TransactionRecord
from ottla.groupcoord.transactions.shard import CompleteTransaction, MarkersOwed, ProducerAnswer, Request
from ottla.groupcoord.transactions.transitions import AddPartitions, EndTransaction, InitProducerId, verify
from ottla.replication.log.producers import MarkerVersion, ProducerStateManager
from ottla.replication.log.verification import VerificationGuard
from ottla.wire.control_batches import ControlType, EndTxnMarker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader

PLACE = ("topic", 0)
OLD, NEW = 0, 2
STEPS = 400


class Producer:
    def __init__(self, world: World, given: ProducerAnswer) -> None:
        self.world = world
        self.id, self.epoch = given.producer_id, given.producer_epoch
        self.verified: tuple[VerificationGuard | None, BatchHeader, int] | None = None
        self.begin()

    def begin(self) -> None:
        self.protocol = self.world.chance.choice((OLD, NEW))
        self.has_added = self.has_written = False
        self.is_commit: bool | None = None  # of an EndTxn whose answer was lost

    def go_on_with(self, given: ProducerAnswer) -> None:
        if (given.producer_id, given.producer_epoch) != (self.id, self.epoch):
            self.id, self.epoch = given.producer_id, given.producer_epoch
            self.world.sequences[self.id, self.epoch] = 0
        self.begin()

    def add(self) -> bool:
        request = AddPartitions(ID, self.id, self.epoch, frozenset([PLACE]), self.protocol)
        return self.world.ask(request).error is ErrorCode.NONE

    def write(self) -> None:
        """Have a batch verified, or append the one that was; other things may happen in between."""
        world, log = self.world, self.world.log
        if self.verified is not None:
            self.append(*self.verified)
            self.verified = None
            return
        if self.is_commit is not None:
            return
        if self.protocol == OLD and not self.has_added:
            self.has_added = self.add()
            if not self.has_added:
                return
        sequence = world.sequences.get((self.id, self.epoch), 0)
        try:
            guard = log.start_verification(
                self.id, sequence, self.epoch, supports_epoch_bump=self.protocol == NEW, now_ms=0
            )
        except KafkaError as error:
            known = world.known
            is_present = known is not None and (known.producer_id, known.producer_epoch) == (self.id, self.epoch)
            assert not is_present or known.state in PREPARED, error  # type: ignore[union-attr]
            return
        batch = world.batch(self.id, self.epoch, sequence, 0)
        if guard is None:
            self.append(None, batch, world.transaction)
        elif self.add() if self.protocol == NEW else self.takes_part():
            self.verified = guard, batch, world.transaction

    def append(self, guard: VerificationGuard | None, batch: BatchHeader, transaction: int) -> None:
        world, log = self.world, self.world.log
        try:
            update = log.check(batch._replace(base_offset=world.offset), is_client=True, guard=guard)
        except KafkaError:
            return
        assert transaction not in world.over, "its marker is written"
        log.apply(update)
        world.offset += 1
        world.sequences[batch.producer_id, batch.producer_epoch] = batch.base_sequence + 1
        self.has_written = True
        if update.started:
            world.open_transactions[batch.producer_id] = transaction
        assert world.open_transactions[batch.producer_id] == transaction

    def takes_part(self) -> bool:
        known = self.world.known
        return verify(known, self.id, self.epoch) is ErrorCode.NONE and known is not None and PLACE in known.partitions

    def end(self) -> None:
        has_begun = self.has_added or self.has_written
        if not has_begun and self.protocol == OLD:
            return
        is_commit = self.is_commit
        if is_commit is None:
            is_commit = has_begun and self.world.chance.random() < 0.6
        answer = self.world.ask(EndTransaction(ID, self.id, self.epoch, is_commit, self.protocol))
        if answer.error is ErrorCode.CONCURRENT_TRANSACTIONS or self.world.chance.random() < 0.3:
            self.is_commit = is_commit
        elif answer.error is not ErrorCode.NONE:
            self.world.producers.remove(self)
        elif self.protocol == NEW:
            self.go_on_with(answer)
        else:
            self.begin()


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.talk = Transactions(transaction_version=self.chance.choice((0, 1, 2)))
        self.log = ProducerStateManager()
        self.offset, self.coordinator_epoch, self.transaction = 0, 1, 0
        self.producers: list[Producer] = []
        self.sequences: dict[tuple[int, int], int] = {}
        self.owed: dict[tuple[int, int], MarkersOwed] = {}
        self.on_their_way: list[tuple[MarkersOwed, int]] = []
        self.open_transactions: dict[int, int] = {}
        self.decided: dict[int, tuple[int, int, bool]] = {}
        self.over: set[int] = set()

    @property
    def known(self) -> TransactionMetadata | None:
        return self.talk.shard.known(ID)

    def batch(self, producer_id: int, epoch: int, sequence: int, flags: int) -> BatchHeader:
        return BatchHeader(
            self.offset, 100, 0, 2, 0, TRANSACTIONAL_FLAG | flags, 0, 0, 0, producer_id, epoch, sequence, 1
        )

    def ask(self, request: Request) -> ProducerAnswer:
        return self.watched(lambda: self.talk.ask(request))

    def watched(self, act: Any) -> Any:
        """Do something, and note which transaction it has begun or decided, and which markers are owed then."""
        was_ongoing = self.known is not None and self.known.state is ONGOING
        outcome = act()
        known = self.known
        if known is not None and known.state is ONGOING and not was_ongoing:
            self.transaction += 1
        if known is not None and known.state in PREPARED and was_ongoing:
            self.decided[self.transaction] = known.producer_id, known.producer_epoch, known.state is PREPARE_COMMIT
        for owed in self.talk.shard.take_owed():
            self.owed[owed.producer_id, owed.producer_epoch] = owed
            if owed.partitions:
                self.on_their_way.append((owed, self.coordinator_epoch))
            else:
                self.complete(owed)
        return outcome

    def complete(self, owed: MarkersOwed) -> None:
        del self.owed[owed.producer_id, owed.producer_epoch]
        self.talk.ask(CompleteTransaction(ID, owed.producer_id, owed.producer_epoch))

    def deliver(self) -> None:
        number = self.chance.randrange(len(self.on_their_way))
        owed, coordinator_epoch = self.on_their_way[number]
        if self.chance.random() < 0.7:
            del self.on_their_way[number]
        is_owed = coordinator_epoch == self.coordinator_epoch and owed in self.owed.values()
        # In the older protocol transactions share epochs, and nothing tells a late marker of one from that of the next.
        if owed.transaction_version < NEW and not is_owed:
            return
        kind = ControlType.COMMIT if owed.is_commit else ControlType.ABORT
        batch = self.batch(owed.producer_id, owed.producer_epoch, -1, CONTROL_FLAG)
        try:
            update = self.log.check_marker(
                batch, EndTxnMarker(kind, coordinator_epoch), MarkerVersion.of(owed.transaction_version)
            )
        except KafkaError as error:
            assert not is_owed, error
            return
        decision = owed.producer_id, owed.producer_epoch, owed.is_commit
        if update.completed:
            assert self.decided.get(self.open_transactions.pop(owed.producer_id)) == decision
        # In the older protocol several may have been decided alike, of which the last one is meant.
        self.over.add(max(number for number, each in self.decided.items() if each == decision))
        self.log.apply(update)
        self.offset += 1
        if is_owed and self.chance.random() < 0.7:
            self.complete(owed)

    def begin_producer(self) -> None:
        before = self.chance.choice(self.producers) if self.producers and self.chance.random() < 0.3 else None
        given = self.ask(InitProducerId(ID, 20_000, None if before is None else (before.id, before.epoch)))
        if given.error is not ErrorCode.NONE:
            return
        if before is not None:
            before.go_on_with(given)
        else:
            self.producers = [*self.producers[-1:], Producer(self, given)]

    def use_up_epochs(self) -> None:
        """Nearly all: many transactions are over."""
        self.ask(InitProducerId(ID, 20_000, None))
        assert self.known is not None
        late = self.known._replace(producer_epoch=EPOCH_EXHAUSTED - self.chance.randrange(10))
        self.talk._put_in_force(TransactionRecord(ID, late, min(self.talk.transaction_version, 1)))

    def move(self) -> None:
        self.coordinator_epoch += 1
        self.owed.clear()
        self.watched(self.talk.restart)

    def step(self) -> None:
        what = self.chance.random()
        if what < 0.12:
            self.begin_producer()
        elif what < 0.3:
            if self.on_their_way:
                self.deliver()
        elif what < 0.33:
            self.move()
        elif what < 0.36:
            self.talk.transaction_version = self.chance.choice((0, 1, 2, 2))
        elif what < 0.39:
            self.watched(lambda: self.talk.advance(self.chance.choice((1_000, 25_000))))
        elif what < 0.46:
            if self.owed:
                self.on_their_way.append((self.chance.choice(list(self.owed.values())), self.coordinator_epoch))
        elif self.producers:
            producer = self.chance.choice(self.producers)
            if self.chance.random() < 0.6:
                producer.write()
            else:
                producer.end()


@pytest.mark.parametrize("seed", range(100))
def test_a_marker_ends_the_transaction_that_it_was_decided_with(seed: int) -> None:
    world = World(seed)
    if seed % 2:
        world.use_up_epochs()
    for _ in range(STEPS):
        world.step()
    assert world.over
