from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.server.cli.replicas.plans import Impossible, Placed, plan_spread


def loads(partitions):
    return Counter(broker for each in partitions for broker in each.replicas)


def leads(partitions):
    return Counter(each.replicas[0] for each in partitions)


def after(partitions, moves):
    changed = {(each.topic, each.partition): each for each in moves}
    return [changed.get((each.topic, each.partition), each) for each in partitions]


def spread_of(counts, brokers):
    return max(counts[each] for each in brokers) - min(counts[each] for each in brokers)


clusters = st.integers(1, 6).flatmap(
    lambda size: st.tuples(
        st.lists(
            st.lists(st.lists(st.integers(0, 7), min_size=size, max_size=size, unique=True), min_size=1, max_size=7),
            max_size=6,
        ),
        st.sets(st.integers(0, 7), min_size=size, max_size=8),
    )
)


@given(clusters)
@example(
    (
        [
            [[0, 1]] * 7,
            [[0, 1], [0, 1], [0, 1], [3, 1], [1, 2], [1, 3], [3, 4]],
            [[0, 1]],
            [[0, 1]],
        ],
        {0, 1, 2, 3, 4, 5},
    )
)
def test_every_broker_has_as_much_as_the_others(cluster):
    topics, brokers = cluster
    before = [
        Placed(f"t{number}", index, tuple(replicas))
        for number, topic in enumerate(topics)
        for index, replicas in enumerate(topic)
    ]
    moves = plan_spread(before, sorted(brokers))
    planned = after(before, moves)
    assert all(set(each.replicas) <= brokers for each in planned)
    assert all(len(set(each.replicas)) == len(each.replicas) for each in planned)
    assert [len(each.replicas) for each in planned] == [len(each.replicas) for each in before]
    for number in range(len(topics)):
        assert spread_of(loads([each for each in planned if each.topic == f"t{number}"]), brokers) <= 1
    # Several replicas of a partition are in the way of each other, and may keep it from being quite even.
    assert spread_of(loads(planned), brokers) <= (1 if all(len(each.replicas) == 1 for each in before) else 2)
    assert plan_spread(planned, sorted(brokers)) == []  # what is even stays as it is


@given(st.lists(st.integers(0, 3), max_size=40))
def test_leaders_are_even_where_all_brokers_have_all_replicas(first):
    before = [
        Placed("t", index, (leader, *[each for each in range(4) if each != leader]))
        for index, leader in enumerate(first)
    ]
    planned = after(before, plan_spread(before, range(4)))
    assert all(set(each.replicas) == {0, 1, 2, 3} for each in planned)
    assert spread_of(leads(planned), range(4)) <= 1


def test_no_more_moves_than_needed():
    before = [Placed("t", index, (1,)) for index in range(8)]
    assert len(plan_spread(before, [1, 2, 3, 4])) == 6
    even = [Placed(name, 0, (broker,)) for name, broker in (("a", 2), ("b", 2), ("c", 1), ("d", 1))]
    assert plan_spread(even, [1, 2]) == []


def test_brokers_that_are_left_out_are_emptied():
    before = [Placed("t", index, (index % 4,)) for index in range(8)]
    moves = plan_spread(before, [0])
    assert {each.replicas for each in moves} == {(0,)}
    assert len(moves) == 6


def test_ten_thousand_partitions_are_planned_in_a_moment():
    before = [Placed(f"t{index % 3}", index, (1,)) for index in range(10_000)]
    assert len(plan_spread(before, [1, 2, 3, 4])) == 7_500


def test_more_replicas_than_brokers_are_refused():
    with pytest.raises(Impossible, match="t-0 has 2 replicas, which 1 brokers cannot hold"):
        plan_spread([Placed("t", 0, (1, 2))], [1])
