"""Random members, writes that fail, leaders that change: held against a model that keeps one record for each record."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.groupcoord.share.partition.acknowledging import ACCEPT, GAP, REJECT, RELEASE, RENEW
from ottla.groupcoord.share.partition.in_flight import RecordState
from ottla.groupcoord.tests.sharing import MANY, Sharing, check
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.tests.effort import examples

LOCK_MS = 30_000
members = st.sampled_from("abc")
kinds = st.sampled_from([ACCEPT, ACCEPT, RELEASE, REJECT, GAP, RENEW])


class Members(RuleBasedStateMachine):
    """`held` is what members believe to hold, until when; `counts` is how often each record was delivered."""

    @initialize(
        limit=st.integers(2, 6), locks=st.integers(3, 30), counts=st.lists(st.integers(1, 9), min_size=2, max_size=8)
    )
    def begin(self, limit: int, locks: int, counts: list[int]) -> None:
        self.sharing = Sharing(delivery_count_limit=limit, partition_max_record_locks=locks)
        self.held: dict[int, tuple[str, int]] = {}
        self.changing: set[int] = set()
        self.counts: dict[int, int] = {}
        self.done: set[int] = set()  # said by their holders, and stored or on the way
        self.sharing.is_slow = True
        self.sharing.produce(*counts)

    @rule(counts=st.lists(st.integers(1, 9), max_size=4))
    def produce(self, counts: list[int]) -> None:
        if self.sharing.end < 300:
            self.sharing.produce(*counts)

    @rule(
        member=members,
        batches=st.integers(1, 5),
        records_max=st.integers(1, 20),
        size=st.integers(1, 10),
        is_record_limit=st.booleans(),
    )
    def fetch(self, member: str, batches: int, records_max: int, size: int, is_record_limit: bool) -> None:
        before = self.sharing.partition.end_offset
        found = self.sharing.fetch(
            member, batches=batches, records_max=records_max, batch_size=size, is_record_limit=is_record_limit
        )
        offsets = [offset for first, last, _ in found for offset in range(first, last + 1)]
        assert offsets == sorted(set(offsets))
        if is_record_limit:
            assert len(offsets) <= records_max
        for first, last, count in found:
            for offset in range(first, last + 1):
                assert offset not in self.held, "two holders"
                assert offset not in self.changing
                assert offset not in self.done, "delivered after it was done"
                assert self.counts.get(offset, 0) + 1 == count
                self.counts[offset] = count
                self.held[offset] = member, self.sharing.now_ms + LOCK_MS
        partition, locks = self.sharing.partition, self.sharing.settings.partition_max_record_locks
        # The last batch is not torn, so its records come on top.
        assert partition.end_offset == before or partition.end_offset - partition.start_offset < locks + 9

    @precondition(lambda self: self.held)
    @rule(data=st.data(), is_thief=st.booleans())
    def acknowledge(self, data: st.DataObject, is_thief: bool) -> None:
        member = (
            data.draw(members) if is_thief else data.draw(st.sampled_from(sorted({m for m, _ in self.held.values()})))
        )
        start = data.draw(st.sampled_from(sorted(self.held)))
        length = data.draw(st.integers(1, 8))
        types = data.draw(st.lists(kinds, min_size=length, max_size=length) | kinds.map(lambda kind: [kind]))
        last = start + length - 1
        partition = self.sharing.partition
        said = dict(zip(range(start, last + 1), types * length if len(types) == 1 else types, strict=False))
        said = {offset: kind for offset, kind in said.items() if offset >= partition.start_offset}
        may = all(self.held.get(offset, ("", 0))[0] == member for offset in said)
        known = {offset for run in partition.in_flight.runs() for offset in range(run.first, run.last + 1)}
        # A hole in what is in flight is passed over.
        is_hole = not set(said) <= known
        try:
            self.sharing.say(member, (start, last, types))
        except KafkaError as error:
            assert error.code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)
            assert not may, (member, start, last)
            # Renewals that came before the refusal hold.
            self._refresh_locks()
            return
        assert may or is_hole
        self._note_said(said)

    def _note_said(self, said: dict[int, int]) -> None:
        for offset, kind in said.items():
            if offset not in self.held:
                continue
            if kind == RENEW:
                self.held[offset] = self.held[offset][0], self.sharing.now_ms + LOCK_MS
            else:
                del self.held[offset]
                self.changing.add(offset)

    def _refresh_locks(self) -> None:
        for run in self.sharing.partition.in_flight.runs():
            for offset in range(run.first, run.last + 1):
                if offset in self.held:
                    assert run.member_id == self.held[offset][0]
                    assert run.locked_until_ms is not None and run.locked_until_ms >= self.held[offset][1]
                    self.held[offset] = run.member_id, run.locked_until_ms

    @rule(member=members)
    def leave(self, member: str) -> None:
        self.sharing.release(member)
        for offset, (holder, _) in list(self.held.items()):
            if holder == member:
                del self.held[offset]
                self.changing.add(offset)

    @rule(ms=st.sampled_from([1, 10_000, 20_000, LOCK_MS]))
    def wait(self, ms: int) -> None:
        self.sharing.pass_ms(ms)
        self.held = {
            offset: (member, until) for offset, (member, until) in self.held.items() if until > self.sharing.now_ms
        }
        self._learn()

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def store(self, error: ErrorCode) -> None:
        self.sharing.answer(error)
        self.sharing.send()
        self._learn()

    def _learn(self) -> None:
        """After a write is stored or not: what is not changing any more is done, free, or held as before."""
        for run in self.sharing.partition.in_flight.runs():
            for offset in range(run.first, run.last + 1):
                if run.change is None:
                    self.changing.discard(offset)
                    if run.state is RecordState.ACQUIRED:
                        assert run.locked_until_ms is not None
                        self.held[offset] = run.member_id, run.locked_until_ms
                    if run.state.is_final:
                        self.done.add(offset)
        start = self.sharing.partition.start_offset
        self.done |= {offset for offset in self.counts if offset < start}
        self.changing = {offset for offset in self.changing if offset >= start}

    @rule(step=st.integers(1, 5))
    def drop(self, step: int) -> None:
        """The log drops its first records."""
        sharing = self.sharing
        sharing.log_start = min(sharing.log_start + step, sharing.end)
        sharing.log = [batch for batch in sharing.log if batch.last_offset >= sharing.log_start]
        if sharing.log_start > sharing.partition.next_fetch_offset():
            sharing.partition.on_log_start(sharing.log_start)
        self.done |= set(range(sharing.log_start))

    @rule()
    def change_leaders(self) -> None:
        """A new leader loads the stored state; all other state is lost."""
        stored = self.sharing.stored
        self.sharing.lead()
        self.held, self.changing = {}, set()
        start = self.sharing.partition.start_offset
        self.counts = {offset: count for offset, (count, _) in stored.records.items()}
        self.done = {offset for offset, (_, state) in stored.records.items() if state.is_final}
        self.done |= set(range(max(start, self.sharing.log_start)))
        in_flight = self.sharing.partition.in_flight
        live = {o: (r.delivery_count, r.state) for r in in_flight.runs() for o in range(r.first, r.last + 1)}
        assert live == {offset: each for offset, each in stored.records.items() if offset in live}
        # What is not in memory any more is done, and lies before the start.
        assert all(offset < start for offset in stored.records if offset not in live)

    @invariant()
    def keeps_its_word(self) -> None:
        if not hasattr(self, "sharing"):
            return
        check(self.sharing.partition)
        for run in self.sharing.partition.in_flight.runs():
            for offset in range(run.first, run.last + 1):
                holder = self.held.get(offset, ("", 0))[0]
                assert run.member_id == holder, (offset, run, holder)

    def teardown(self) -> None:
        """However it went: once all is stored and members accept what they get, nothing is left over."""
        if not hasattr(self, "sharing"):
            return
        sharing = self.sharing
        sharing.is_slow = False
        sharing.store()
        sharing.pass_ms(LOCK_MS)
        for _ in range(2_000):
            found = sharing.fetch("z", records_max=MANY)
            for first, last, _ in found:
                sharing.say("z", (first, last, ACCEPT))
            if not found and sharing.partition.next_fetch_offset() >= sharing.end:
                break
        assert sharing.partition.start_offset == sharing.partition.end_offset >= sharing.end, sharing.partition
        assert not sharing.partition.in_flight


Members.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMembers = Members.TestCase
