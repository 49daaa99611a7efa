from uuid import RFC_4122, UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.random_ids import UuidSupply, random_uuid, uuid_of


@given(st.integers(0, 2**128 - 1))
def test_bits_make_the_uuid_that_python_makes_of_them(bits: int) -> None:
    assert uuid_of(bits) == UUID(int=bits, version=4).bytes


def test_random_uuids_differ() -> None:
    made = {random_uuid() for _ in range(100)}
    assert len(made) == 100
    assert all((each.version, each.variant) == (4, RFC_4122) for each in (UUID(bytes=one) for one in made))


def test_a_supply_gives_nothing_twice() -> None:
    supply = UuidSupply(3)
    made = [supply.take() for _ in range(10)]
    supply.clear()
    made.append(supply.take())
    assert len(set(made)) == 11
    assert {UUID(bytes=one).version for one in made} == {4}
