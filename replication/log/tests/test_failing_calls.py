import errno

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.log.tests.failing_calls import Call, single_faults, some

OPERATIONS = st.sampled_from(["append", "open", "sync", "rename"])


@given(st.lists(OPERATIONS, max_size=60), st.sampled_from([(errno.EIO,), (errno.EIO, errno.ENOSPC, errno.EMFILE)]), st.integers(1, 12))
def test_a_part_of_all_faults_has_as_many_kinds_as_it_can(operations: list[str], errnos: tuple[int, ...], every: int) -> None:
    made = [Call(operation, "path") for operation in operations]
    faults = list(single_faults(made, errnos))
    chosen = some(made, faults, every)
    assert len(chosen) == len(set(chosen)) == -(-len(faults) // every)
    assert set(chosen) <= set(faults)
    kinds = {(made[each.number].operation, *each[1:]) for each in faults}
    assert len({(made[each.number].operation, *each[1:]) for each in chosen}) == min(len(kinds), len(chosen))
