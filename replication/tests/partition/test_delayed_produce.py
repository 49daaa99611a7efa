"""Who waits for a commit: everybody is told once, also where being told leads to more changes of the partition."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.replication.log.tests.logs import NOW_MS, batch
from ottla.replication.partition.delayed_produce import DelayedProduce, ProducePurgatory
from ottla.replication.partition.partition import Partition
from ottla.replication.tests.partition.test_partition import LOCAL, leader, produce
from ottla.wire.errors import ErrorCode
from ottla.wire.tests.effort import examples

FOLLOWER = 2


class Told:
    """A partition with a follower that has nothing yet, who waits in it, and who was told what, in order."""

    def __init__(self) -> None:
        self.partition: Partition = leader(replicas=(LOCAL, FOLLOWER), isr=(LOCAL, FOLLOWER))
        self.waits = ProducePurgatory()
        self.told: list[tuple[str, ErrorCode]] = []

    def wait(self, name: str, then: Callable[[], object] = lambda: None, acks: int = -1) -> DelayedProduce | None:
        """Append a record and wait; `then` is done when that is told. None if it is told at once."""

        def settle(code: ErrorCode) -> None:
            self.told.append((name, code))
            then()

        offset = produce(self.partition, batch(NOW_MS))
        # As a request does it: those whom the append has settled may have led to its commit.
        code = self.partition.acknowledgement(offset, acks)
        if code is None:
            return self.waits.add(self.partition, offset, acks, settle)
        settle(code)
        return None

    def commit(self) -> None:
        """The follower fetches up to the end."""
        self.partition.on_follower_fetch(FOLLOWER, self.partition.log.log_end_offset, 0, now_ms=NOW_MS)

    def check(self, *names: str) -> None:
        """These were told, once each, in this order, and nobody waits or watches any more."""
        assert self.told == [(name, ErrorCode.NONE) for name in names]
        assert not len(self.waits) and not self.waits._queues and not len(self.partition.watchers)


def test_a_watcher_before_them_may_change_the_partition_again() -> None:
    story = Told()

    def change() -> None:
        if story.partition.high_watermark:
            story.partition.watchers.discard(change)
            story.partition.notify_watchers()

    story.partition.watchers.add(change)
    story.wait("one")
    story.commit()
    story.check("one")


def test_who_left_while_others_were_called_is_not_called() -> None:
    partition, calls = leader(), list[str]()

    def second() -> None:
        calls.append("second")

    def first() -> None:
        calls.append("first")
        partition.watchers.discard(second)

    for each in (first, second):
        partition.watchers.add(each)
    partition.notify_watchers()
    assert calls == ["first"]


def test_being_told_may_change_the_partition_again() -> None:
    story = Told()
    story.wait("one", story.partition.notify_watchers)
    story.wait("two", story.partition.notify_watchers)
    story.commit()
    story.check("one", "two")


def test_being_told_may_make_others_of_the_queue_give_up() -> None:
    story = Told()
    waits: list[Any] = []
    for name in ("one", "two", "three"):
        waits.append(story.wait(name, lambda: [each.give_up() for each in waits]))
    story.commit()
    story.check("one")


def test_who_comes_while_the_last_one_is_told_has_a_turn() -> None:
    story = Told()

    def go_on() -> None:
        story.partition.notify_watchers()
        story.wait("next")

    story.wait("one", go_on)
    story.commit()
    assert len(story.waits) == 1
    story.commit()
    story.check("one", "next")


ACTIONS = st.sampled_from(("wait", "commit", "notify", "give up the first", "give up the last"))


@given(st.lists(st.tuples(ACTIONS, st.lists(ACTIONS, max_size=3)), max_size=12))
@settings(max_examples=examples(60))
@example([("wait", ["wait"]), ("wait", ["commit"])])
def test_whatever_being_told_leads_to_everybody_is_told_once(actions: list[tuple[str, list[str]]]) -> None:
    story, waits = Told(), dict[str, DelayedProduce]()
    numbers, asked, given_up = count(), set[str](), set[str]()

    def act(action: str, then: list[str]) -> None:
        if action == "wait":
            asked.add(name := str(next(numbers)))
            wait = story.wait(name, lambda: [act(each, []) for each in then])
            if wait is not None:
                waits[name] = wait
        elif action == "commit":
            story.commit()
        elif action == "notify":
            story.partition.notify_watchers()
        elif waits:
            name = [*waits][0 if action == "give up the first" else -1]
            if waits[name].settle is not None:
                given_up.add(name)
            waits[name].give_up()

    for action, then in actions:
        act(action, then)
    while len(story.waits):
        story.commit()
    told = [name for name, _ in story.told]
    assert sorted(told) == sorted(asked - given_up)
    assert not story.waits._queues and not len(story.partition.watchers)
