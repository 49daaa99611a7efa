"""Histories that clients of a test write: each promise that is broken is found, and nothing where all is well."""

import itertools
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.testing.history.history import UNKNOWN_OFFSET, EndSeen, ProducerBegan
from ottla.server.testing.history.narration import FinalRead, Seen
from ottla.server.testing.history.observed import ConsumerLog, ProducerLog
from ottla.server.testing.history.rules import Rule
from ottla.server.testing.history.wrapping import History

Records = list[tuple[int, bytes | None]]


class Story:
    """A producer, consumers and what they see, in a few words; partition 0 of "orders"."""

    def __init__(self) -> None:
        self.history = History()
        self.producers: dict[str, ProducerLog] = {}
        self.consumers: dict[str, ConsumerLog] = {}
        self.final: list[FinalRead] = []

    def producer(self, name: str = "p", *, idempotent: bool = True, acks: int = -1) -> ProducerLog:
        if name not in self.producers:
            self.producers[name] = self.history.producer_began(name, idempotent=idempotent, acks=acks)
        return self.producers[name]

    def send(self, value: bytes | None, offset: int | None, by: str = "p") -> None:
        """Send a record; `offset`: None if it is never acknowledged."""
        sending = self.producer(by).sent("orders", 0, value)
        if offset is not None:
            sending.acknowledged(offset)

    def read(
        self, *records: tuple[int, bytes | None], position: int | None = None, by: str = "c", committed: bool = False
    ) -> None:
        if by not in self.consumers:
            self.consumers[by] = self.history.consumer_began(by, "g", committed_only=committed)
            self.consumers[by].began("orders", 0, records[0][0] if records else 0)
        end = records[-1][0] + 1 if position is None else position
        self.consumers[by].read("orders", 0, records, end)

    def log(self, *records: tuple[int, str], end: int | None = None, committed: bool = False) -> None:
        after = end if end is not None else records[-1][0] + 1 if records else 0
        self.final.append(FinalRead("orders", 0, 0, after, records, committed))


def lost(story: Story) -> None:
    story.send(b"a", 0)
    story.send(b"b", 1)
    story.send(b"c", 2)
    story.read((0, b"a"), (2, b"c"))


def lost_at_the_end(story: Story) -> None:
    story.send(b"a", 0)
    story.send(b"b", 1)
    story.log((0, "a"))


def lost_of_two_alike(story: Story) -> None:
    for offset in range(3):
        story.send(b"same", offset)
    story.read((0, b"same"), (2, b"same"))


def duplicate(story: Story) -> None:
    story.send(b"a", 0)
    story.read((0, b"a"), (1, b"a"))


def duplicate_of_unknown_offset(story: Story) -> None:
    story.send(b"a", UNKNOWN_OFFSET)
    story.read((0, b"a"), (1, b"a"))


def moved(story: Story) -> None:
    story.send(b"a", 0)
    story.send(b"b", 1)
    story.read((0, b"b"), (1, b"a"))


def changed(story: Story) -> None:
    story.send(b"a", 0)
    story.read((0, b"other bytes"))


def reordered(story: Story) -> None:
    story.send(b"a", None)
    story.send(b"b", None)
    story.read((0, b"b"), (1, b"a"))


def two_values(story: Story) -> None:
    story.send(b"a", None)
    story.send(b"b", None)
    story.log((0, "a"))
    story.log((0, "b"), committed=True)


def refused(story: Story) -> None:
    story.producer().sent("orders", 0, b"a").failed("MESSAGE_TOO_LARGE", may_be_written=False)
    story.read((0, b"a"))


def aborted_shown(story: Story) -> None:
    producer = story.producer()
    producer.transaction_began()
    story.send(b"a", 0)
    producer.end_asked(False)
    producer.ended(False)
    story.read((0, b"a"), committed=True)


def open_shown(story: Story) -> None:
    story.producer().transaction_began()
    story.send(b"a", 0)
    story.read((0, b"a"), committed=True)


def fenced_wrote(story: Story) -> None:
    story.send(b"a", 0)
    story.producer().fenced()
    story.send(b"b", None)
    story.read((0, b"a"), (1, b"b"))


def shown_then_gone(story: Story) -> None:
    story.send(b"a", None)
    story.read((0, b"a"))
    story.log(end=0)


def skipped(story: Story) -> None:
    story.send(b"a", 0)
    story.send(b"b", 1)
    story.read((0, b"a"), (1, b"b"))
    story.read((0, b"a"), by="other")
    story.read(position=2, by="other")


def backwards(story: Story) -> None:
    story.send(b"a", 0)
    story.send(b"b", 1)
    story.read((0, b"a"), (1, b"b"))
    story.read((0, b"a"))


def end_back(story: Story) -> None:
    for end in (5, 4):
        story.history.note(EndSeen, "viewer", "orders", 0, end, 7)


def offset_lost(story: Story) -> None:
    consumer = story.history.consumer_began("c", "g")
    for offset in (1, 2):
        consumer.offsets_sent({("orders", 0): offset})
        consumer.offsets_committed({("orders", 0): offset})
    consumer.offset_fetched("orders", 0, 1)


def offset_of_aborted(story: Story) -> None:
    producer = story.producer()
    producer.transaction_began()
    producer.offset_added("g", "orders", 0, 5)
    producer.end_asked(False)
    producer.ended(False)
    story.history.consumer_began("c", "g").offset_fetched("orders", 0, 5)


def offset_of_open(story: Story) -> None:
    producer = story.producer()
    producer.transaction_began()
    producer.offset_added("g", "orders", 0, 5)
    story.history.consumer_began("c", "g").offset_fetched("orders", 0, 5)


def torn(story: Story) -> None:
    producer = story.producer()
    producer.transaction_began()
    for partition in (0, 1):
        producer.sent("orders", partition, b"%d" % partition).acknowledged(0)
    producer.end_asked(True)
    for committed in (False, True):
        story.final += [
            FinalRead("orders", 0, 0, 2, [(0, "0")], committed),
            FinalRead("orders", 1, 0, 2, [] if committed else [(0, "1")], committed),
        ]
    story.read((0, b"0"), committed=True)


def two_owners(story: Story) -> None:
    for name in ("a", "b"):
        story.history.consumer_began(name, "g").owned([("orders", 0)], epoch=3)


def unread(story: Story) -> None:
    story.send(b"a", 0)
    story.log((0, "a"), end=1)
    story.log(end=0, committed=True)


BROKEN: dict[Callable[[Story], None], Rule] = {
    lost: Rule.LOST,
    lost_at_the_end: Rule.LOST,
    lost_of_two_alike: Rule.LOST,
    duplicate: Rule.DUPLICATE,
    duplicate_of_unknown_offset: Rule.DUPLICATE,
    moved: Rule.MOVED,
    changed: Rule.CHANGED,
    reordered: Rule.REORDERED,
    two_values: Rule.TWO_VALUES,
    refused: Rule.REFUSED,
    aborted_shown: Rule.ABORTED_SHOWN,
    open_shown: Rule.OPEN_SHOWN,
    fenced_wrote: Rule.FENCED_WROTE,
    shown_then_gone: Rule.SHOWN_THEN_GONE,
    skipped: Rule.SKIPPED,
    backwards: Rule.BACKWARDS,
    end_back: Rule.END_BACK,
    offset_lost: Rule.OFFSET_LOST,
    offset_of_aborted: Rule.OFFSET_OF_ABORTED,
    offset_of_open: Rule.OFFSET_OF_OPEN,
    torn: Rule.TORN,
    two_owners: Rule.TWO_OWNERS,
    unread: Rule.UNREAD,
}


@pytest.mark.parametrize(("tell", "rule"), BROKEN.items(), ids=[each.__name__ for each in BROKEN])
def test_a_broken_promise_is_found(tell: Callable[[Story], None], rule: Rule) -> None:
    story = Story()
    tell(story)
    assert {each.violation.rule for each in story.history.broken(story.final)} >= {rule}
    with pytest.raises(AssertionError, match=f"{rule.name} in orders-[01]: {rule}"):
        story.history.check(story.final)


def test_a_paragraph_tells_what_proves_it() -> None:
    story = Story()
    lost(story)
    with pytest.raises(AssertionError) as found:
        story.history.check()
    first, _, paragraph = str(found.value).partition("\n\n")
    assert first == "1 promise of Kafka broken:"
    assert paragraph.splitlines()[0] == (
        "LOST in orders-0: a record acknowledged with acks=all is not there: offset 1; the log ends at 3."
    )
    assert "Sent: producer='p', topic='orders', partition=0, value='b', key=None, transaction=None" in paragraph
    assert "Acknowledged: producer='p', topic='orders', partition=0, value='b', offset=1" in paragraph


def test_records_that_only_others_sent_are_no_invention_unless_told() -> None:
    story = Story()
    story.read((0, b"from elsewhere"), (3, b"too"))
    assert story.history.broken() == []
    assert {each.violation.rule for each in story.history.broken(all_producers=True)} == {Rule.INVENTED}


def test_nothing_is_missed_where_nobody_looked() -> None:
    story = Story()
    for offset in range(10):
        story.send(b"%d" % offset, offset)
    assert story.history.broken() == []
    story.read((4, b"4"), (5, b"5"))
    assert story.history.broken() == []


def test_a_record_of_unknown_partition_is_found_where_it_was_read() -> None:
    story = Story()
    first, second = (story.producer().sent("orders", None, b"same") for _ in range(2))
    first.failed("timed out")
    second.acknowledged(7, 1)
    consumer = story.history.consumer_began("c")
    for partition, offset in ((0, 3), (1, 7)):
        consumer.began("orders", partition, offset)
        consumer.read("orders", partition, [(offset, b"same")], offset + 1)
    assert story.history.broken(all_producers=True) == []


def test_the_first_outcome_of_a_record_counts() -> None:
    story = Story()
    sending = story.producer().sent("orders", 0, b"a")
    sending.acknowledged(0)
    sending.failed("late", may_be_written=False)
    story.read((0, b"a"))
    assert story.history.broken() == []


def test_compacted_topics_lose_records_of_a_key() -> None:
    story = Story()
    for offset in range(3):
        story.producer().sent("orders", 0, b"%d" % offset, b"k").acknowledged(offset)
    story.read((2, b"2"))
    story.consumers["c"].began("orders", 0, 0)
    story.consumers["c"].read("orders", 0, [(2, b"2")], 3)
    assert {each.violation.rule for each in story.history.broken()} == {Rule.LOST}
    story.history.compacted("orders")
    assert story.history.broken() == []


def test_compacted_topics_lose_keys_with_their_tombstones() -> None:
    story = Story()
    story.history.compacted("orders")
    for offset, value in enumerate((b"a", None, b"b")):
        story.producer().sent("orders", 0, value, b"k" if offset < 2 else b"other").acknowledged(offset)
    story.log((2, "b"))
    assert story.history.broken(story.final) == []
    story.producer().sent("orders", 0, b"c", b"k").acknowledged(3)
    assert {each.violation.rule for each in story.history.broken(story.final)} == {Rule.LOST}
    story.producer().sent("orders", 0, None, b"k").failed("timed out")
    assert story.history.broken(story.final) == []


def test_a_topic_that_is_made_anew_is_another_one() -> None:
    story = Story()
    story.send(b"a", 0)
    story.send(b"b", 1)
    late = story.producer().sent("orders", 0, b"late")
    story.read((0, b"a"), (1, b"b"))
    story.history.topic_deleted("orders")
    late.acknowledged(2)
    story.send(b"c", 0)
    story.send(b"d", 1)
    story.read((2, b"c"))  # of a reader that has not begun anew
    story.log((0, "c"), (1, "d"))
    assert story.history.broken(story.final) == [] and story.history.topics() == {"orders"}
    story.final.clear()
    story.log((0, "c"))
    assert {each.violation.rule for each in story.history.broken(story.final)} == {Rule.LOST}
    story.history.topic_deleted("orders", is_sure=False)
    assert story.history.topics() == set() and story.history.broken(story.final) == []


def test_what_is_read_by_nobody_but_committed_readers() -> None:
    story = Story()
    producer = story.producer()
    for commit in (True, False):
        producer.transaction_began()
        story.send(b"same", 0 if commit else 2)
        producer.end_asked(commit)
        producer.ended(commit)
    story.read((0, b"same"), committed=True, position=4)
    assert story.history.broken() == []


@given(st.lists(st.tuples(st.sampled_from([b"x", b"y", None]), st.booleans(), st.booleans()), max_size=30), st.data())
def test_a_log_that_keeps_its_promises_is_never_blamed(
    sends: list[tuple[bytes | None, bool, bool]], data: st.DataObject
) -> None:
    """Values repeat, some records are not acknowledged though written, and readers stop and start anywhere."""
    story = Story()
    log: Records = []
    for value, is_acknowledged, is_written in sends:
        sending = story.producer().sent("orders", data.draw(st.sampled_from([0, None])), value)
        if is_acknowledged:
            sending.acknowledged(data.draw(st.sampled_from([len(log), UNKNOWN_OFFSET])), 0)
        if is_acknowledged or is_written:
            log.append((len(log), value))
    for number in range(data.draw(st.integers(0, 3))):
        start = data.draw(st.integers(0, len(log)))
        reader = story.history.consumer_began(f"reader {number}")
        reader.began("orders", 0, start)
        part = log[start : data.draw(st.integers(start, len(log)))]
        reader.read("orders", 0, part, start + len(part))
    assert story.history.broken() == []


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=8), st.integers(0, 30))
def test_offsets_that_readers_went_through_are_known(ranges: list[tuple[int, int]], offset: int) -> None:
    seen = Seen(ranges=[(first, first + count) for first, count in ranges])
    expected = any(first <= offset < after for first, after in seen.ranges)
    seen.merge()
    assert seen.covers(offset) == expected
    assert all(before[1] < after[0] for before, after in itertools.pairwise(seen.ranges))


def test_threads_write_at_a_time() -> None:
    story = Story()
    producer = story.producer()

    def work(partition: int) -> None:
        for offset in range(200):
            producer.sent("orders", partition, b"same").acknowledged(offset)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(story.history) == 1601 and story.history.broken() == []


def test_a_callback_in_the_middle_of_an_observation_is_taken_down_too() -> None:
    times = iter((1.0, 3.0, 2.0))
    called: list[bool] = []

    def clock() -> float:
        time_s = next(times)
        if not called:  # as a client that is collected just then, and calls back for a record
            called.append(True)
            history.note(ProducerBegan, "inner", False, -1)
            history.note(ProducerBegan, "earlier", False, -1)
        return time_s

    history = History(clock)
    noting = threading.Thread(target=history.note, args=(ProducerBegan, "outer", False, -1), daemon=True)
    noting.start()
    noting.join(30)
    assert not noting.is_alive()
    assert [note.fields[0] for note in history._in_order()] == ["outer", "earlier", "inner"]
    history.check()
