"""The leader of a group shares out partitions by range, as Kafka's consumers do."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.client.assignment import assigned, encoded, range_assignment, topics_in

TOPICS = st.sampled_from(["a", "b", "c"])


def test_first_members_get_one_more():
    wanted = {"m2": ["a", "b"], "m1": ["a"]}
    assert range_assignment(wanted, {"a": 3, "b": 1}) == {
        "m1": [("a", 0), ("a", 1)],
        "m2": [("a", 2), ("b", 0)],
    }


@given(
    st.dictionaries(st.text(max_size=3), st.lists(TOPICS, unique=True), max_size=5),
    st.dictionaries(TOPICS, st.integers(0, 7)),
)
def test_each_wanted_partition_has_one_reader_who_wants_it(wanted, counts):
    found = range_assignment(wanted, counts)
    assert found.keys() == wanted.keys()
    places = [place for each in found.values() for place in each]
    assert len(places) == len(set(places))
    somebodys = {topic for topics in wanted.values() for topic in topics}
    assert set(places) == {(topic, n) for topic, count in counts.items() if topic in somebodys for n in range(count)}
    assert all(topic in wanted[member] for member, places in found.items() for topic, _ in places)


@given(st.binary(max_size=40))
def test_any_subscription_is_read(blob):
    assert isinstance(topics_in(blob), list)


def test_an_assignment_is_what_other_consumers_read():
    assert assigned(encoded([("a", 1), ("b", 0), ("a", 2)])) == (("a", 1), ("a", 2), ("b", 0))
