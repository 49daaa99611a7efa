"""The simple assignor of share groups: everything is read, shared alike, and kept where that is fair."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.groupcoord.share.assignor import Assignment, assign

A, B = b"a" * 16, b"b" * 16


def members(count: int, *topics: bytes) -> dict[str, frozenset[bytes]]:
    return {f"m{number}": frozenset(topics) for number in range(count)}


def counts(assigned: dict[str, Assignment]) -> list[int]:
    return [sum(map(len, each.values())) for each in assigned.values()]


def shared(assigned: dict[str, Assignment]) -> Counter[tuple[bytes, int]]:
    """Number of members by partition."""
    return Counter((topic, index) for each in assigned.values() for topic, indexes in each.items() for index in indexes)


def test_one_member_reads_everything() -> None:
    assigned = assign(members(1, A, B), {A: range(3), B: range(2)}, {})
    assert assigned == {"m0": {A: frozenset({0, 1, 2}), B: frozenset({0, 1})}}


def test_nobody_gets_anything_of_what_may_not_be_assigned() -> None:
    assert assign(members(2, A), {}, {"m0": {A: frozenset({0})}}) == {"m0": {}, "m1": {}}
    assert assign({}, {A: range(3)}, {}) == {}
    assert assign(members(2), {A: range(3)}, {}) == {"m0": {}, "m1": {}}


@pytest.mark.parametrize(
    ("member_count", "partition_count", "expected"),
    [(2, 4, [2, 2]), (3, 4, [2, 1, 1]), (4, 2, [1, 1, 1, 1]), (3, 2, [2, 1, 1]), (5, 1, [1, 1, 1, 1, 1])],
)
def test_members_that_read_the_same_share_all_topics_alike(
    member_count: int, partition_count: int, expected: list[int]
) -> None:
    assigned = assign(members(member_count, A), {A: range(partition_count)}, {})
    assert counts(assigned) == expected
    sharing = -(-member_count // partition_count)
    assert set(shared(assigned).values()) == {sharing} and len(shared(assigned)) == partition_count


def test_a_newcomer_takes_only_what_is_its_due() -> None:
    before = assign(members(1, A), {A: range(4)}, {})
    after = assign(members(2, A), {A: range(4)}, before)
    assert counts(after) == [2, 2] and after["m0"][A] <= before["m0"][A]
    assert assign(members(2, A), {A: range(4)}, after) == after


def test_topics_of_members_that_read_different_things_are_shared_one_by_one() -> None:
    subscriptions = {"one": frozenset({A, B}), "two": frozenset({B}), "three": frozenset({B})}
    assigned = assign(subscriptions, {A: range(2), B: range(3)}, {})
    assert assigned["one"] == {A: frozenset({0, 1}), B: frozenset({0})}
    assert set(shared(assigned).values()) == {1}


def test_what_a_member_does_not_read_any_more_is_taken_from_it() -> None:
    before = assign(members(1, A, B), {A: range(2), B: range(2)}, {})
    assert assign(members(1, B), {A: range(2), B: range(2)}, before) == {"m0": {B: frozenset({0, 1})}}


subscription = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(8)]), st.frozensets(st.sampled_from([A, B])), max_size=8
)
assignable = st.dictionaries(st.sampled_from([A, B]), st.frozensets(st.integers(0, 9), min_size=1), max_size=2)
current = st.dictionaries(st.sampled_from([f"m{number}" for number in range(8)]), assignable, max_size=8)


@given(subscription, assignable, current)
def test_every_partition_that_somebody_reads_is_assigned_and_nothing_else(
    subscriptions: dict[str, frozenset[bytes]],
    partitions: dict[bytes, frozenset[int]],
    before: dict[str, dict[bytes, frozenset[int]]],
) -> None:
    assigned = assign(subscriptions, partitions, before)
    assert assigned.keys() == subscriptions.keys()
    for member, topics in assigned.items():
        assert topics.keys() <= subscriptions[member] and all(topics.values())
    read = {
        (topic, index) for topics in subscriptions.values() for topic in topics for index in partitions.get(topic, ())
    }
    assert shared(assigned).keys() == read
    again = assign(subscriptions, partitions, assigned)
    assert shared(again).keys() == read
    if not before:
        assert again == assigned, "nobody has to give anything back when nothing has changed"
