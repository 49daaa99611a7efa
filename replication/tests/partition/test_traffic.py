"""What went through the topics of a broker: counts that only grow, also when topics go."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.partition.traffic import COUNTS, Traffic


@given(st.lists(st.tuples(st.sampled_from(("a", "b", "c")), st.sampled_from(COUNTS), st.integers(0, 1000))))
def test_what_all_topics_have_counted_never_falls(steps: list[tuple[str, str, int]]) -> None:
    traffic, counted = Traffic(), dict.fromkeys(COUNTS, 0)
    for topic, name, amount in steps:
        of_topic = traffic.of(topic)
        assert traffic.of(topic) is of_topic
        setattr(of_topic, name, getattr(of_topic, name) + amount)
        counted[name] += amount
        if amount % 3 == 0:
            traffic.forget(topic)
            assert topic not in traffic.by_topic
    assert {name: getattr(traffic.total(), name) for name in COUNTS} == counted


def test_a_topic_that_comes_back_begins_anew_and_one_that_never_was_may_go() -> None:
    traffic = Traffic()
    traffic.of("topic").bytes_in += 5
    traffic.forget("topic")
    traffic.forget("another")
    assert traffic.of("topic").bytes_in == 0
    assert traffic.total().bytes_in == 5
