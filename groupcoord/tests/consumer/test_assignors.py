"""Assignors: what each member gets, how little changes hands, and how evenly partitions are spread."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.groupcoord.consumer.assignors import assign_mixed, assign_range, assign_uniform
from ottla.groupcoord.modern.assignor import Assignment, GroupSpec, Subscriber, count_of, in_kafkas_order

A, B, C = (name.encode() * 16 for name in "abc")


def spec(counts: Mapping[bytes, int], members: Mapping[str, tuple[bytes, ...]], before: Mapping[str, Assignment] = {}):
    subscribers = [Subscriber(each, None, frozenset(topics), before.get(each, {})) for each, topics in members.items()]
    alike = len({each.topic_ids for each in subscribers}) < 2
    return GroupSpec(subscribers, counts, alike)


def partitions(assignment: Mapping[str, Assignment]) -> list[tuple[bytes, int]]:
    return sorted((topic, each) for one in assignment.values() for topic, found in one.items() for each in found)


def kept(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    return sum(
        len(before[each].get(topic, frozenset()) & found) for each in before for topic, found in after[each].items()
    )


# ---------------------------------------------------------------------- range


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    given = assign_range(spec({A: 7, B: 2}, dict.fromkeys("xyz", (A, B))))
    assert given == {
        "x": {A: frozenset({0, 1, 2}), B: frozenset({0})},
        "y": {A: frozenset({3, 4}), B: frozenset({1})},
        "z": {A: frozenset({5, 6})},
    }


def test_range_goes_by_the_readers_of_each_topic() -> None:
    given = assign_range(spec({A: 4, B: 4}, {"x": (A,), "y": (A, B), "z": (B,)}))
    assert given == {
        "x": {A: frozenset({0, 1})},
        "y": {A: frozenset({2, 3}), B: frozenset({0, 1})},
        "z": {B: frozenset({2, 3})},
    }


def test_range_puts_static_members_first() -> None:
    members = [Subscriber("a", None, frozenset({A})), Subscriber("z", "instance", frozenset({A}))]
    given = assign_range(GroupSpec(members, {A: 1}, True))
    assert given == {"a": {}, "z": {A: frozenset({0})}}


# ---------------------------------------------------------------------- uniform, all alike


def test_uniform_lets_members_keep_what_they_have_and_fills_up_the_others() -> None:
    before = {"x": {A: frozenset(range(6))}}
    given = assign_uniform(spec({A: 6}, dict.fromkeys("xy", (A,)), before))
    assert given == {"x": {A: frozenset({0, 1, 2})}, "y": {A: frozenset({3, 4, 5})}}


def test_uniform_lets_the_odd_partition_stay_where_it_is() -> None:
    before = {"x": {A: frozenset({0, 1})}, "y": {A: frozenset({2, 3, 4})}}
    assert assign_uniform(spec({A: 5}, dict.fromkeys("xy", (A,)), before)) == before


@pytest.mark.parametrize("members", [{}, dict.fromkeys("xy", ())])
def test_nobody_and_nothing_make_an_empty_assignment(members: Mapping[str, tuple[bytes, ...]]) -> None:
    for assign in (assign_uniform, assign_range):
        assert not partitions(assign(spec({}, members)))


topics = st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 12), min_size=1)
names = st.lists(st.text("abcdefgh", min_size=1, max_size=3), min_size=1, max_size=8, unique=True)


@given(counts=topics, first=names, second=names)
def test_uniform_is_even_complete_and_sticky(counts: dict[bytes, int], first: list[str], second: list[str]) -> None:
    before = assign_uniform(spec(counts, dict.fromkeys(first, tuple(counts))))
    after = assign_uniform(spec(counts, dict.fromkeys(second, tuple(counts)), before))
    everything = sorted((topic, each) for topic, count in counts.items() for each in range(count))
    for given_now in (before, after):
        assert partitions(given_now) == everything
        sizes = [count_of(each) for each in given_now.values()]
        assert max(sizes) - min(sizes) <= 1
    # Whoever stays keeps as much as the new quota allows.
    smallest = len(everything) // len(second)
    for member in set(first) & set(second):
        had = sum(len(found & before[member].get(topic, frozenset())) for topic, found in after[member].items())
        assert had >= min(count_of(before[member]), smallest)
    again = assign_uniform(spec(counts, dict.fromkeys(second, tuple(counts)), after))
    assert again == after, "nothing moves without a reason"


@given(
    count=st.integers(1, 8),
    before=st.dictionaries(st.sampled_from("abcd"), st.frozensets(st.integers(0, 7), min_size=1), min_size=1),
    is_mixed=st.booleans(),
)
def test_a_partition_that_several_members_have_stays_with_one(
    count: int, before: dict[str, frozenset[int]], is_mixed: bool
) -> None:
    """The leader of a classic group may have given it to all of them."""
    had = {each: {A: frozenset(number % count for number in numbers)} for each, numbers in before.items()}
    members = {each: (A, B) if is_mixed and each == "a" else (A,) for each in "abcd"}
    given_now = assign_uniform(spec({A: count, B: 0}, members, had))
    assert partitions(given_now) == [(A, each) for each in range(count)]


# ---------------------------------------------------------------------- uniform, members that read different topics


def test_mixed_members_share_what_they_both_read() -> None:
    given = assign_mixed(spec({A: 4, B: 4}, {"x": (A,), "y": (A, B)}))
    assert given == {"x": {A: frozenset({0, 1, 2, 3})}, "y": {B: frozenset({0, 1, 2, 3})}}


def test_partitions_move_along_a_chain_of_members() -> None:
    members = {"x": (A,), "y": (A, B), "z": (B,)}
    before = {"x": {A: frozenset(range(6))}}
    after = assign_mixed(spec({A: 6, B: 6}, members, before))
    assert [count_of(after[each]) for each in "xyz"] == [5, 4, 3], "the readers of each topic are even"


def test_mixed_members_keep_what_they_have() -> None:
    members = {"x": (A,), "y": (A, B)}
    before = {"x": {A: frozenset({2, 3})}, "y": {A: frozenset({0, 1})}}
    assert assign_mixed(spec({A: 4, B: 0}, members, before)) == before


readers = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=2), st.sets(st.sampled_from([A, B, C])), min_size=1)


@given(
    counts=st.fixed_dictionaries({A: st.integers(1, 9), B: st.integers(1, 9), C: st.integers(1, 9)}), members=readers
)
def test_mixed_is_complete_balanced_and_stable(counts: dict[bytes, int], members: dict[str, set[bytes]]) -> None:
    asked = {each: tuple(found) for each, found in members.items()}
    given_now = assign_mixed(spec(counts, asked))
    read = set().union(*members.values())
    assert partitions(given_now) == sorted((topic, each) for topic in read for each in range(counts[topic]))
    sizes = {each: count_of(found) for each, found in given_now.items()}
    for giver, has in given_now.items():
        for topic in has:
            for taker, reads in members.items():
                if topic in reads:
                    assert sizes[giver] - sizes[taker] <= 1, "one more move would gain something"
    assert assign_mixed(spec(counts, asked, given_now)) == given_now


def test_members_come_in_the_order_of_javas_hash_map() -> None:
    assert in_kafkas_order(["consumer-1", "b", "a", "consumer-2"]) == ["a", "b", "consumer-2", "consumer-1"]
