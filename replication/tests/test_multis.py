"""Operations cut into multis that a coordination service takes."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.cluster.coordination import (
    BYTES_PER_MULTI,
    OPERATIONS_PER_MULTI,
    Create,
    Delete,
    Operation,
    multis,
)

KIB = 1024


def size(part: list[Operation]) -> int:
    return sum(len(each.path) + (len(each.data) if isinstance(each, Create) else 0) for each in part)


@given(st.lists(st.sampled_from([1, 30 * KIB, 200 * KIB, 900 * KIB]), max_size=20))
def test_nothing_makes_a_multi_larger_than_one_operation_alone(sizes: list[int]) -> None:
    operations: list[Operation] = [Create(f"/{number}", bytes(each)) for number, each in enumerate(sizes)]
    parts = list(multis(operations))
    assert [each for part in parts for each in part] == operations
    assert all(part and (len(part) == 1 or size(part) <= BYTES_PER_MULTI) for part in parts)


def test_many_small_operations_are_cut_by_their_number() -> None:
    parts = list(multis([Delete(f"/{number}") for number in range(2 * OPERATIONS_PER_MULTI + 1)]))
    assert [len(part) for part in parts] == [OPERATIONS_PER_MULTI, OPERATIONS_PER_MULTI, 1]
