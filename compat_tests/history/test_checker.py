"""The checker notices each kind of wrong, calls it by its name and calls nothing else; and is silent where all is well.

Random conversations are held with the small broker of `broken.py`, whole and with each of its flaws.
"""

import itertools
import json
import threading
from random import Random

import pytest
from compat_tests.history.broken import Broker, Entry, Flaw, ReadError
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from ottla.server.testing.history.checker import check
from ottla.server.testing.history.history import (
    KINDS,
    TIMED_OUT,
    Acknowledged,
    EndAsked,
    Ended,
    EndSeen,
    EpochRaised,
    Failed,
    FaultBegan,
    Fenced,
    HistoryFile,
    Merged,
    OffsetAdded,
    OffsetCommitted,
    OffsetFailed,
    OffsetFetched,
    OffsetSent,
    ProducerBegan,
    ReachedEnd,
    Read,
    ReadBegan,
    ReadFailed,
    Recorder,
    RecordsDeleted,
    Sent,
    TopicBegan,
    from_line,
    to_line,
    told,
)
from ottla.server.testing.history.rules import Rule

PARTITIONS = (("plain", 0), ("plain", 1), ("transactions", 0), ("compacted", 0), ("transactions", 1))
PROCESSED = ("processor", "plain", 0)
READERS = (("reader", False), ("committed reader", True))


def place(number):
    """A partition; the second one with transactions meets seldom, unless only those are wanted."""
    return PARTITIONS[4 if number == 14 else number % 4]


class Conversation:
    """Clients that talk to a broker, a step at a time, and write down what happens."""

    def __init__(self, flaw=None):
        self.broker = Broker(flaw)
        self.history = []
        ticks = itertools.count()
        self.add = Recorder(self.history.append, clock=lambda: float(next(ticks))).add
        self.sequences, self.values = itertools.count(), itertools.count()
        self.pending = {where: [] for where in PARTITIONS}
        self.latest = {}
        self.transaction = None
        self.transactional, self.zombie = "transactional 0", None
        self.transactions = itertools.count()
        self.positions = {}
        self.add(TopicBegan, "plain", 2)
        self.add(TopicBegan, "transactions", 2, False, True)
        self.add(TopicBegan, "compacted", 1, True)
        for producer in ("producer 0", "producer 1", self.transactional):
            self.add(ProducerBegan, producer, True, -1)
        for (reader, committed_only), where in itertools.product(READERS, PARTITIONS):
            self.positions[reader, where] = 0
            self.add(ReadBegan, reader, *where, 0, committed_only)

    # --- steps --------------------------------------------------------------------------------------------------------

    def send(self, number):
        where = place(number)
        producer = f"producer {number // 4 % 2}"
        transaction = None
        if where[0] == "transactions" and number >= 8:
            producer, transaction = self.transactional, self.begun()
        key = str(number % 3) if where[0] == "compacted" else None
        value = f"value {next(self.values)}"
        sent = Entry(-1, value, producer, next(self.sequences), transaction, key)
        self.add(Sent, producer, *where, value, key, transaction)
        self.broker.append(where, sent)
        self.pending[where].append(sent)
        self.latest[where] = sent

    def replicate(self, number):
        where = place(number)
        waiting = {sent.sequence: sent for sent in self.pending[where]}
        for entry in self.broker.replicate(where):
            if sent := waiting.get(entry.sequence):
                # A duplicate is acknowledged once.
                del waiting[entry.sequence]
                self.pending[where].remove(sent)
                offset = self.broker.acknowledge(where, entry)
                self.add(Acknowledged, entry.producer, *where, entry.value, offset)

    def retry(self, number):
        """An answer was lost: the last record is sent again."""
        where = place(number)
        # No producer tries again what it has given up, or what is of an earlier transaction.
        if (sent := self.latest.get(where)) and sent.transaction in (None, self.transaction):
            self.broker.append(where, sent)

    def give_up(self, number):
        where = place(number)
        if where[0] != "transactions" and self.pending[where]:
            for sent in self.pending[where]:
                self.add(Failed, sent.producer, *where, sent.value, "timed out", True)
            self.pending[where].clear()
            self.latest.pop(where, None)

    def refuse(self, number):
        where, value = PARTITIONS[number % 2], f"value {next(self.values)}"
        self.add(Sent, "producer 1", *where, value)
        self.broker.refuse(where, "producer 1", value)
        self.add(Failed, "producer 1", *where, value, "too large", False)

    # --- transactions: an even number commits ------------------------------------------------------------------------

    def begun(self):
        if self.transaction is None:
            self.transaction = next(self.transactions)
        return self.transaction

    def add_offset(self, number):
        offset = next(self.values)
        self.add(OffsetAdded, self.transactional, self.begun(), *PROCESSED, offset)
        self.broker.add_offset(offset)

    def end_transaction(self, number):
        if self.transaction is not None:
            self.add(EndAsked, self.transactional, self.transaction, number % 2 == 0)
            self._end(number % 2 == 0)
            self.add(Ended, self.transactional, self.transaction, number % 2 == 0)
            self.transaction = None

    def _end(self, commit):
        self.replicate(2)
        self.replicate(14)
        self.broker.end_transaction(self.transactional, self.transaction, commit)

    def lose_end(self, number):
        """The answer to a commit is lost, and another producer goes on; an odd number: what was asked for was lost too."""
        if self.transaction is not None:
            self.add(EndAsked, self.transactional, self.transaction, True)
            self._end(number % 4 != 3 and number % 3 > 0)
            self._replace()

    def fence(self, number):
        if self.transaction is not None:
            self._end(False)
            self._replace()

    def _replace(self):
        self.zombie = self.transactional, self.transaction
        self.transactional, self.transaction = f"transactional {self.transaction + 1}", None
        self.add(ProducerBegan, self.transactional, True, -1)
        self.add(Fenced, self.zombie[0])

    def send_as_zombie(self, number):
        if self.zombie is not None:
            where, value = ("transactions", number % 2), f"value {next(self.values)}"
            self.add(Sent, self.zombie[0], *where, value, None, self.zombie[1])
            self.broker.append_of_fenced(where, Entry(-1, value, self.zombie[0], next(self.sequences), self.zombie[1]))
            self.add(Failed, self.zombie[0], *where, value, "fenced", True)

    def fetch_processed(self, number):
        self.add(OffsetFetched, *PROCESSED, self.broker.fetch_processed())

    # --- all kinds of things ------------------------------------------------------------------------------------------

    def restart(self, number):
        self.add(FaultBegan, "restart", "the broker")
        self.broker.restart()
        for where, pending in self.pending.items():
            for sent in pending:
                self.broker.append(where, sent)

    def read(self, number):
        where = place(number)
        reader, committed_only = READERS[number // 4 % 2]
        self._read(reader, where, committed_only, 1 + number // 4, final=False)

    def _read(self, reader, where, committed_only, count, final):
        position = self.positions[reader, where]
        records, go_on = self.broker.fetch(where, position, count, committed_only, final)
        if records:
            self.add(Read, reader, *where, tuple(records))
        self.positions[reader, where] = go_on
        return go_on != position

    def look(self, number):
        where = place(number)
        self.add(EndSeen, "looker", *where, self.broker.end(where), self.broker.leader_epoch)

    def commit(self, number):
        where, offset = place(number), next(self.values)
        self.add(OffsetSent, "group", *where, offset)
        if number % 5 == 0:
            self.add(OffsetFailed, "group", *where, offset, "refused", False)
            return
        if number % 5 != 1:
            self.broker.commit_offset(where, offset)
        if number % 5 > 2:
            self.add(OffsetCommitted, "group", *where, offset)
        else:
            self.add(OffsetFailed, "group", *where, offset, "timed out", True)

    def fetch_offset(self, number):
        where = place(number)
        self.add(OffsetFetched, "group", *where, self.broker.fetch_offset(where))

    def delete(self, number):
        where = ("plain", 1)
        before = min(self.broker.log(where).start + number, self.broker.log(where).high_watermark)
        self.add(RecordsDeleted, *where, before)
        self.broker.delete_before(where, before)

    def compact(self, number):
        self.broker.compact(("compacted", 0))

    # --- the end ------------------------------------------------------------------------------------------------------

    def end(self):
        """Everything is settled, fresh readers read all of it, and the logs are taken out of the disks."""
        self.end_transaction(1)
        self.fetch_processed(0)
        for number in (0, 1, 2, 3, 14):
            self.replicate(number)
            self.fetch_offset(number)
        for (reader, committed_only), where in itertools.product(READERS, PARTITIONS):
            self._read_all(f"final {reader}", where, committed_only)
        return [self.broker.replicas(where) for where in PARTITIONS]

    def _read_all(self, reader, where, committed_only):
        start = self.broker.log(where).start
        self.positions[reader, where] = start
        self.add(ReadBegan, reader, *where, start, committed_only, True)
        try:
            while self._read(reader, where, committed_only, 3, final=True):
                pass
        except ReadError as error:
            self.add(ReadFailed, reader, *where, str(error))
        else:
            self.add(ReachedEnd, reader, *where, self.positions[reader, where])


SIMPLE = ("send", "send", "send", "replicate", "replicate", "retry", "give_up", "refuse", "end_transaction", "restart")
SIMPLE += ("read", "read", "look", "commit", "commit", "fetch_offset", "delete", "compact")
IN_TRANSACTIONS = (
    "send",
    "send",
    "replicate",
    "read",
    "add_offset",
    "end_transaction",
    "lose_end",
    "lose_end",
    "fence",
)
IN_TRANSACTIONS += ("send_as_zombie", "fetch_processed")
# Numbers choose partitions and clients. Those of few choices meet more often.
THEMES = [(SIMPLE, range(12)), (SIMPLE, (0, 4)), (SIMPLE, (2, 6, 10))]
THEMES += [(SIMPLE + IN_TRANSACTIONS, range(15)), (IN_TRANSACTIONS, (6, 7, 9, 10, 14))]
one_theme = st.sampled_from([tuple(map(st.sampled_from, theme)) for theme in THEMES])
conversations = one_theme.flatmap(lambda theme: st.lists(st.tuples(*theme), max_size=60))


def hold(steps, flaw=None):
    conversation = Conversation(flaw)
    for name, number in steps:
        getattr(conversation, name)(number)
    logs = conversation.end()
    return conversation, check(conversation.history, logs)


def rules(proofs):
    return {proof.violation.rule for proof in proofs}


@settings(max_examples=300, deadline=None)
@given(conversations)
def test_where_all_is_well_it_is_silent(steps):
    assert hold(steps)[1] == []


# Seeds of searches that find a flaw soon. Any other finds it too, later.
SOON = {
    Flaw.LOSES_A_RECORD_IN_THE_MIDDLE: 34,
    Flaw.SHOWS_ABORTED: 6,
    Flaw.SHOWS_OPEN: 32,
    Flaw.ENDS_OTHERWISE_IN_ONE_PARTITION: 14,
    Flaw.DROPS_OFFSETS_OF_COMMITTED: 16,
    Flaw.SHOWS_PENDING_OFFSETS: 40,
    Flaw.SHOWS_UNREPLICATED: 9,
    Flaw.HIDES_COMMITTED: 39,
    Flaw.END_GOES_BACK: 15,
    Flaw.FORGETS_AN_OFFSET: 35,
}


@pytest.mark.parametrize("flaw", Flaw)
def test_each_flaw_is_called_by_its_name_and_nothing_else_is(flaw):
    @settings(max_examples=60, deadline=None)
    @given(conversations)
    def nothing_else(steps):
        assert rules(hold(steps, flaw)[1]) <= flaw.rules

    nothing_else()
    many = settings(max_examples=5000, deadline=None, phases=[Phase.generate])
    random = Random(SOON.get(flaw, 1))
    hurt = find(conversations, lambda steps: flaw.rule in rules(hold(steps, flaw)[1]), settings=many, random=random)
    conversation, proofs = hold(hurt, flaw)
    assert conversation.broker.has_sinned
    assert all(str(proof).startswith(proof.violation.rule.name) for proof in proofs)


# --- told by hand -----------------------------------------------------------------------------------------------------

BEGIN = (TopicBegan(0, "t", 1), ProducerBegan(0, "p", True, -1))


def sent(value, at=1.0, producer="p", **more):
    return Sent(at, producer, "t", 0, value, **more)


def read_finally(*records, end, committed_only=False, name="final"):
    return (
        ReadBegan(9, name, "t", 0, 0, committed_only, True),
        Read(9, name, "t", 0, records),
        ReachedEnd(9, name, "t", 0, end),
    )


def found(*events):
    return rules(check([*BEGIN, *events]))


def test_what_is_acknowledged_and_read_is_in_order():
    assert found(sent("a"), Acknowledged(2, "p", "t", 0, "a", 0), *read_finally((0, "a"), end=1)) == set()


def test_a_proof_names_the_events_that_belong_to_it():
    events = [*BEGIN, sent("a"), Acknowledged(2, "p", "t", 0, "a", 0), sent("b"), *read_finally((0, "b"), end=1)]
    [lost] = check(events)
    assert lost.violation.rule == Rule.LOST
    assert lost.events == [events[2], events[3], events[6]]  # it was sent, acknowledged, and "b" stands in its place
    assert str(lost).startswith("LOST in t-0: ") and "offset 0; the log ends at 1." in str(lost)


def test_what_was_acknowledged_without_an_offset_may_be_anywhere_but_has_to_be_there():
    told_nothing = Acknowledged(2, "p", "t", 0, "a", -1)
    assert found(sent("a"), sent("b"), told_nothing, *read_finally((0, "a"), (1, "b"), end=2)) == set()
    assert found(sent("a"), sent("b"), told_nothing, *read_finally((0, "b"), end=1)) == {Rule.LOST}


def test_acks_1_promises_nothing_after_a_restart():
    events = (ProducerBegan(0, "q", True, 1), sent("a", producer="q"), Acknowledged(2, "q", "t", 0, "a", 0))
    assert found(*events, *read_finally(end=0)) == set()


def test_only_idempotent_producers_are_promised_order_and_singleness():
    twice = ((0, "b"), (1, "a"), (2, "a"))
    events = (ProducerBegan(0, "q", False, -1), sent("a", producer="q"), sent("b", producer="q"))
    assert found(*events, *read_finally(*twice, end=3)) == set()
    assert found(sent("a"), sent("b"), *read_finally(*twice, end=3)) == {Rule.DUPLICATE, Rule.REORDERED}


def test_a_producer_that_gave_up_records_in_flight_may_have_written_them_twice():
    """Not those whose answer it had, nor what it sent in its new epoch, nor where a broker's answer made it take one."""
    twice = read_finally((0, "a"), (1, "a"), end=2)
    gave_up, answered = EpochRaised(2, "p", f"epoch bump: 1 {TIMED_OUT}"), Acknowledged(2, "p", "t", 0, "a", 1)
    assert found(sent("a"), gave_up, answered, *twice) == set()
    assert found(sent("a"), gave_up, *twice) == set()
    assert found(sent("a"), answered, gave_up, *twice) == {Rule.DUPLICATE}
    assert found(gave_up, sent("a"), answered, *twice) == {Rule.DUPLICATE}
    assert found(sent("a"), EpochRaised(2, "p", "epoch bump: out of order"), answered, *twice) == {Rule.DUPLICATE}


def test_what_may_be_written_may_be_there_or_not():
    failed = Failed(2, "p", "t", 0, "a", "timed out", True)
    assert found(sent("a"), failed, *read_finally((0, "a"), end=1)) == set()
    assert found(sent("a"), failed, *read_finally(end=0)) == set()


def test_a_record_cannot_be_read_before_it_is_sent():
    early = (ReadBegan(0, "early", "t", 0, 0), Read(0, "early", "t", 0, ((0, "a"),)))
    assert found(*early, sent("a"), *read_finally((0, "a"), end=1)) == {Rule.INVENTED}


def test_a_transaction_whose_end_nobody_learned_may_have_ended_either_way():
    events = (sent("a", transaction=1), Acknowledged(2, "p", "t", 0, "a", 0), EndAsked(3, "p", 1, True))
    everything = read_finally((0, "a"), end=2)
    topic = TopicBegan(0, "t", 1, transactional=True)
    assert found(topic, *events, *everything, *read_finally((0, "a"), end=2, committed_only=True, name="c")) == set()
    assert found(topic, *events, *everything, *read_finally(end=2, committed_only=True, name="c")) == set()
    committed = (*events, Ended(4, "p", 1, True))
    assert found(topic, *committed, *everything, *read_finally(end=2, committed_only=True, name="c")) == {Rule.SKIPPED}


def test_an_offset_of_a_transaction_in_doubt_is_there_if_and_only_if_its_records_are():
    topic = TopicBegan(0, "t", 1, transactional=True)
    group = ("g", "t", 0)
    processed = (OffsetAdded(1, "p", 1, *group, 7), sent("a", transaction=1), Acknowledged(2, "p", "t", 0, "a", 0))
    in_doubt = (topic, *processed, EndAsked(3, "p", 1, True), Fenced(4, "p"))
    everything = read_finally((0, "a"), end=2)
    committed, aborted = (read_finally(*seen, end=2, committed_only=True, name="c") for seen in (((0, "a"),), ()))
    with_offset, without = OffsetFetched(5, *group, 7), OffsetFetched(5, *group, -1)
    assert found(*in_doubt, with_offset, *everything, *committed) == set()
    assert found(*in_doubt, without, *everything, *aborted) == set()
    assert found(*in_doubt, with_offset, *everything, *aborted) == {Rule.TORN}
    assert found(*in_doubt, without, *everything, *committed) == {Rule.TORN}


def test_a_transaction_that_was_to_be_committed_and_was_aborted_was_shown_to_nobody():
    topic = TopicBegan(0, "t", 1, transactional=True)
    began = (topic, ReadBegan(0, "c", "t", 0, 0, True), sent("a", transaction=1), EndAsked(3, "p", 1, True))
    shown = Read(4, "c", "t", 0, ((0, "a"),))
    aborted = (EndAsked(5, "p", 1, False), Ended(6, "p", 1, False))
    assert found(*began, *aborted, *read_finally((0, "a"), end=2)) == set()
    assert found(*began, shown, *aborted, *read_finally((0, "a"), end=2)) == {Rule.ABORTED_SHOWN}


def test_without_readers_at_the_end_nothing_is_proven():
    assert found(sent("a"), Acknowledged(2, "p", "t", 0, "a", 0)) == {Rule.UNREAD}


def test_an_end_may_only_go_back_under_another_leader():
    assert found(EndSeen(1, "v", "t", 0, 5, 1), EndSeen(2, "v", "t", 0, 4, 1)) == {Rule.END_BACK}
    assert found(EndSeen(1, "v", "t", 0, 5, 1), EndSeen(2, "v", "t", 0, 4, 2)) == set()
    assert found(EndSeen(1, "v", "t", 0, 5, 1), EndSeen(2, "w", "t", 0, 4, 1)) == set()


def test_a_value_that_is_sent_twice_spoils_the_history():
    with pytest.raises(ValueError, match="sent twice"):
        found(sent("a"), sent("a"))


def test_many_of_a_kind_are_counted_and_few_are_told():
    events = [sent(str(number)) for number in range(50)]
    acknowledged = [Acknowledged(2, "p", "t", 0, str(number), number) for number in range(50)]
    assert len(check([*BEGIN, *events, *acknowledged, *read_finally(end=0)])) == 10


# --- histories --------------------------------------------------------------------------------------------------------

fields = {
    float: st.floats(0, 1e9),
    int: st.integers(-1, 2**63 - 1),
    str: st.text(max_size=20),
    bool: st.booleans(),
}


def of_kind(kind):
    def values(name, annotation):
        if name == "records":
            return st.lists(st.tuples(fields[int], fields[str])).map(tuple)
        optional = [st.none()] if type(None) in getattr(annotation, "__args__", ()) else []
        known = [fields[part] for part in getattr(annotation, "__args__", (annotation,)) if part in fields]
        return st.one_of(*optional, *known)

    return st.builds(kind, **{name: values(name, annotation) for name, annotation in kind.__annotations__.items()})


events = st.one_of(*map(of_kind, KINDS.values()))


@settings(deadline=None)
@given(events)
def test_an_event_is_the_same_after_it_was_a_line(event):
    line = to_line(event)
    assert line.count(b"\n") == 1
    assert from_line(line) == event
    assert type(from_line(line)) is type(event)
    assert isinstance(json.loads(line), list)


def test_threads_are_written_down_in_the_order_of_their_times(tmp_path):
    file = HistoryFile(tmp_path / "history.jsonl")
    record = Recorder(file.append)

    def write(name):
        for number in range(500):
            record.add(FaultBegan, name, str(number))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    written = list(file)
    assert [event.at for event in written] == sorted(event.at for event in written)
    assert sorted((event.fault, int(event.target)) for event in written) == [(n, i) for n in "abcd" for i in range(500)]
    assert list(file) == written


def test_histories_of_several_processes_become_one(tmp_path):
    files = [HistoryFile(tmp_path / name) for name in "ab"]
    for at in range(10):
        files[at % 2].append(FaultBegan(float(at), "fault", "target"))
    for file in files:
        file.close()
    assert [event.at for event in Merged(files)] == list(range(10))


@settings(deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_values_that_differ_are_told_differently(left, right):
    assert (told(left) == told(right)) == (left == right)
    assert len(told(left)) < 100
