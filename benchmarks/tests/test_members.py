"""The members of groups that the benchmarks play: what they take for settled, and what for wrong."""

from types import SimpleNamespace

import pytest
from benchmarks import share_members
from benchmarks.brokers import Failed
from benchmarks.group_members import Members, partitions_of, shown
from benchmarks.workloads.share_groups import is_shared

from ottla.wire.messages.consumer_group import Assignment
from ottla.wire.messages.share_fetch import AcquiredRecords

ONE, TWO = bytes(15) + b"1", bytes(15) + b"2"


def test_partitions_are_shown_by_topic_and_read_back():
    owned = frozenset({(ONE, 0), (TWO, 3), (ONE, 2)})
    topics = shown(owned)
    assert [(each.topic_id, each.partitions) for each in topics] == [(ONE, [0, 2]), (TWO, [3])]
    assert partitions_of(Assignment(topic_partitions=topics)) == owned


def settled(*members, partitions=2):
    played = [SimpleNamespace(owned=owned, epoch=epoch, has_news=news) for owned, epoch, news in members]
    return Members.are_settled(SimpleNamespace(members=played), partitions)


def test_a_group_is_settled_when_each_partition_has_one_owner_and_the_broker_knows():
    first, second = frozenset({(ONE, 0)}), frozenset({(ONE, 1)})
    assert settled((first, 2, False), (second, 2, False))
    assert not settled((first, 2, False), (second, 2, True))
    assert not settled((first, 2, False), (second, 1, False))
    assert not settled((first, 2, False), (first, 2, False))
    assert not settled((first | second, 2, False), (frozenset(), 2, False))
    assert not settled((first, 2, False), (second, 2, False), partitions=3)


def test_a_share_group_is_settled_when_all_have_heard_of_all_partitions():
    halves = [SimpleNamespace(assigned=[0, 1], epoch=2), SimpleNamespace(assigned=[2, 3], epoch=2)]
    assert is_shared(halves)
    assert not is_shared(halves[:1])
    assert not is_shared([*halves, SimpleNamespace(assigned=[], epoch=2)])
    assert not is_shared([*halves, SimpleNamespace(assigned=[0], epoch=1)])


def check(records, *acquired):
    member = SimpleNamespace(
        acquired=[
            (index, AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1))
            for index, first, last in acquired
        ]
    )
    share_members.Members([member]).check(records)


def test_each_record_has_to_be_acquired_once():
    check(7, (0, 3, 4), (0, 0, 2), (1, 0, 1))
    for wrong in ([(0, 0, 2), (0, 2, 4)], [(0, 0, 2), (0, 4, 5)], [(0, 0, 3)]):
        with pytest.raises(Failed):
            check(5, *wrong)
