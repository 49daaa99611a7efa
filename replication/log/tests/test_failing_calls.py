from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.log.tests.failing_calls import some


@given(st.lists(st.integers(0, 20), max_size=200), st.integers(1, 12))
def test_a_part_of_all_has_as_many_kinds_as_it_can(kinds: list[int], every: int) -> None:
    chosen = some(kinds, every)
    assert len(chosen) == len(set(chosen)) == -(-len(kinds) // every)
    assert len({kinds[number] for number in chosen}) == min(len(set(kinds)), len(chosen))
