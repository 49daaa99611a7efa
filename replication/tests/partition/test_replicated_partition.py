"""Three replicas of one partition and a controller, in any order of events: nothing that was committed is ever lost.

Messages are delivered late or to a broker that was restarted meanwhile, leaders are replaced while they still believe in
themselves, in-sync replicas come and go. After every step each replica holds, below its high watermark, what producers
were told is committed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.replication.log.tests.logs import NOW_MS, batch, contents, new_log
from ottla.replication.partition.partition import NO_LEADER, Partition
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches
from ottla.wire.tests.effort import examples

BROKERS = (1, 2, 3)
LAG_MS = 100
brokers = st.sampled_from(BROKERS)
choices = st.integers(0, 5)


@dataclass(frozen=True)
class Decision:
    """What the controller has written down."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True)
class Proposal:
    """A leader's AlterPartition on its way."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class ReplicatedPartition(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW_MS
        self.count = 0
        self.committed: dict[int, bytes] = {}
        self.unacknowledged: dict[int, list[tuple[int, bytes]]] = {broker: [] for broker in BROKERS}
        self.proposals: dict[int, Proposal] = {}
        self.dead: set[int] = set()
        self.replicas = {broker: self.started(broker, new_log()) for broker in BROKERS}
        self.decided = Decision(1, 0, BROKERS, 0)

    def started(self, broker: int, log: object, high_watermark: int = 0) -> Partition:
        return Partition("topic", 0, log, local_id=broker, high_watermark=high_watermark, lag_ms=LAG_MS)  # type: ignore[arg-type]

    @initialize()
    def everybody_hears(self) -> None:
        for broker in BROKERS:
            self.hear(broker)

    # --- the controller

    def decide(self, **changes: object) -> None:
        self.decided = replace(self.decided, partition_epoch=self.decided.partition_epoch + 1, **changes)  # type: ignore[arg-type]

    @rule(broker=brokers)
    def hear(self, broker: int) -> None:
        """LeaderAndIsr, or the same once more."""
        if broker in self.dead:
            return
        decided, partition = self.decided, self.replicas[broker]
        epochs = {"leader_epoch": decided.leader_epoch, "partition_epoch": decided.partition_epoch}
        if decided.leader == broker:
            partition.make_leader(replicas=BROKERS, isr=decided.isr, now_ms=self.now_ms, **epochs)
        else:
            partition.make_follower(leader_id=decided.leader, replicas=BROKERS, **epochs)
            self.unacknowledged[broker].clear()

    @rule(preferred=brokers)
    def elect(self, preferred: int) -> None:
        """Another leader of those in sync, whether the old one knows or not."""
        alive = [broker for broker in self.decided.isr if broker not in self.dead]
        leader = preferred if preferred in alive else next(iter(alive), NO_LEADER)
        isr = tuple(alive) or self.decided.isr
        self.decide(leader=leader, leader_epoch=self.decided.leader_epoch + 1, isr=isr)

    @rule(broker=brokers)
    def answer(self, broker: int) -> None:
        proposal = self.proposals.pop(broker, None)
        if proposal is None:
            return
        current = self.decided
        if (proposal.leader_epoch, proposal.partition_epoch) == (current.leader_epoch, current.partition_epoch):
            self.decide(isr=proposal.isr)
            self.replicas[broker].settle_isr(
                proposal.isr, leader_epoch=proposal.leader_epoch, partition_epoch=self.decided.partition_epoch
            )

    @rule(broker=brokers)
    def answer_gets_lost(self, broker: int) -> None:
        """The controller has agreed, and the leader will never know from the answer."""
        proposal = self.proposals.pop(broker, None)
        current = self.decided
        if proposal and (proposal.leader_epoch, proposal.partition_epoch) == (
            current.leader_epoch,
            current.partition_epoch,
        ):
            self.decide(isr=proposal.isr)

    # --- the brokers

    @rule(broker=brokers)
    def crash(self, broker: int) -> None:
        """The process ends; what it wrote is still there, what it only knew is not."""
        self.dead.add(broker)
        self.proposals.pop(broker, None)
        self.unacknowledged[broker].clear()
        if self.decided.leader == broker:
            self.elect(broker)

    @rule(broker=brokers, forgotten=st.integers(0, 3))
    def restart(self, broker: int, forgotten: int) -> None:
        if broker in self.dead:
            self.dead.remove(broker)
            before = self.replicas[broker]
            self.replicas[broker] = self.started(broker, before.log, max(0, before.high_watermark - forgotten))
            if self.decided.leader == NO_LEADER:
                self.elect(broker)
            self.hear(broker)

    @rule(choice=choices)
    def produce(self, choice: int) -> None:
        """To one that believes it leads."""
        leaders = [broker for broker in self.alive() if self.replicas[broker].is_leader]
        if not leaders:
            return
        broker = leaders[choice % len(leaders)]
        partition = self.replicas[broker]
        self.count += 1
        value = b"%d" % self.count
        records = batch(NOW_MS, value=value)
        offset = partition.append_as_leader(records, required_acks=-1, now_ms=self.now_ms).last_offset
        self.unacknowledged[broker].append((offset, value))

    @rule(choice=choices, rounds=st.integers(1, 3))
    def fetch(self, choice: int, rounds: int) -> None:
        """Some rounds of a follower with the leader that it knows."""
        pairs = [(broker, self.replicas[broker].leader_id) for broker in self.alive()]
        pairs = [pair for pair in pairs if pair[1] not in (NO_LEADER, pair[0], *self.dead)]
        for _ in range(rounds if pairs else 0):
            self.fetch_once(pairs[choice % len(pairs)][0])

    def fetch_once(self, broker: int) -> None:
        follower = self.replicas[broker]
        leader, offset = self.replicas[follower.leader_id], follower.log_end_offset
        try:
            read = leader.read(
                offset,
                100,
                at_least_one_batch=True,
                is_follower=True,
                current_leader_epoch=follower.leader_epoch,
                last_fetched_epoch=follower.log.latest_leader_epoch,
            )
        except KafkaError as error:
            assert error.code in FENCED
            return
        if read.diverging_epoch is not None:
            follower.truncate_to(follower.divergence(*read.diverging_epoch), now_ms=self.now_ms)
            return
        leader.on_follower_fetch(broker, offset, follower.log_start_offset, now_ms=self.now_ms)
        self.propose(leader, leader.joining_isr(broker))
        follower.append_as_follower(
            memoryview(bytearray(contents(read.records))),
            leader_high_watermark=read.high_watermark,
            leader_log_start_offset=read.log_start_offset,
            now_ms=self.now_ms,
        )

    def propose(self, leader: Partition, isr: tuple[int, ...] | None) -> None:
        if isr is not None:
            assert leader.followers is not None
            leader.followers.propose(isr)
            self.proposals[leader.leader_id] = Proposal(isr, leader.leader_epoch, leader.partition_epoch)

    @rule(broker=brokers)
    def look_at_laggards(self, broker: int) -> None:
        self.now_ms += LAG_MS + 1
        if broker not in self.dead:
            self.propose(self.replicas[broker], self.replicas[broker].shrunk_isr(self.now_ms))

    def catch_up(self, broker: int) -> None:
        end = self.replicas[self.decided.leader].log_end_offset
        for _ in range(100):
            if broker != self.decided.leader:
                self.fetch_once(broker)
            if self.replicas[broker].log_end_offset == end:
                return

    def alive(self) -> list[int]:
        return [broker for broker in BROKERS if broker not in self.dead]

    # --- what has to be true

    def teardown(self) -> None:
        """When the faults are over everybody comes to hold the same, and all of it is committed."""
        for broker in sorted(self.dead):
            self.restart(broker, 0)
        for broker in BROKERS:
            self.answer(broker)
        for broker in BROKERS:
            self.hear(broker)
        for _ in range(4):  # to cut what differs, to catch up, to show it, and to hear that all others have
            for broker in BROKERS:
                self.catch_up(broker)
            self.answer(self.decided.leader)
        self.acknowledge()
        held = [values_of(partition) for partition in self.replicas.values()]
        assert held[0] == held[1] == held[2]
        assert {partition.high_watermark for partition in self.replicas.values()} == {len(held[0])}
        self.what_is_committed_is_there()

    @invariant()
    def acknowledge(self) -> None:
        for broker, waiting in self.unacknowledged.items():
            partition = self.replicas[broker]
            while waiting and partition.acknowledgement(waiting[0][0] + 1, -1) is ErrorCode.NONE:
                offset, value = waiting.pop(0)
                assert self.committed.setdefault(offset, value) == value

    @invariant()
    def what_is_committed_is_there(self) -> None:
        for partition in self.replicas.values():
            held = values_of(partition)
            for offset in range(partition.high_watermark):
                assert offset not in self.committed or held[offset] == self.committed[offset]

    @precondition(lambda self: self.decided.leader not in self.dead | {NO_LEADER})
    @invariant()
    def a_leader_has_everything(self) -> None:
        held = values_of(self.replicas[self.decided.leader])
        assert {offset: held.get(offset) for offset in self.committed} == self.committed


def test_a_repeated_request_leaves_an_open_proposal_open() -> None:
    """The controller agrees to a proposal of before the request. What was committed meanwhile is on the replica that joins."""
    state = ReplicatedPartition()
    state.everybody_hears()
    state.crash(broker=1)
    state.crash(broker=2)
    state.hear(broker=3)
    state.restart(broker=1, forgotten=0)
    state.fetch(choice=0, rounds=1)  # it may join the replicas in sync
    state.hear(broker=3)  # the same once more
    state.look_at_laggards(broker=3)  # so late that it is not waited for as one that has just caught up
    state.produce(choice=0)
    state.acknowledge()
    assert not state.committed
    state.answer(broker=3)
    state.crash(broker=3)
    assert state.decided.leader == 1
    state.a_leader_has_everything()


FENCED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)


def values_of(partition: Partition) -> dict[int, bytes | None]:
    region, *_ = partition.log.read(0, 1 << 20, upper_bound=partition.log_end_offset, at_least_one_batch=True)
    data = contents(region)
    return {
        record.offset: record.value
        for _, start, end in iter_batches(data)
        for record in decode_records(data[start:end])
    }


ReplicatedPartition.TestCase.settings = settings(
    max_examples=examples(int(os.environ.get("OTTLA_EXAMPLES", "120"))),
    stateful_step_count=80,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
test_nothing_committed_is_lost = pytest.mark.filterwarnings("default")(ReplicatedPartition.TestCase)
