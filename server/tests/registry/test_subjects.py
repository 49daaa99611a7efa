from hypothesis import given
from hypothesis import strategies as st

from ottla.server.registry.subjects import SortedNames, Subject, context_of, normalized, resolved


def test_a_name_is_split_into_context_and_subject() -> None:
    assert Subject.parse("orders-value") == (".", "orders-value")
    assert Subject.parse(":.staging:orders-value") == (".staging", "orders-value")
    assert Subject.parse(":.staging:") == Subject.parse(":.staging") == (".staging", "")
    assert Subject.parse(":*:orders") == ("*", "orders")
    assert Subject.parse(":other:x") == (".", ":other:x")


def test_the_default_context_is_not_named() -> None:
    assert normalized(":.:orders") == "orders"
    assert context_of(":.:orders") == "."
    assert Subject.parse(":.:").is_default_context
    assert not Subject.parse(":.a:").is_default_context


def test_a_reference_is_in_the_context_of_its_schema_unless_it_names_one() -> None:
    assert resolved("other", "orders") == "other"
    assert resolved("other", ":.a:orders") == ":.a:other"
    assert resolved(":.b:other", ":.a:orders") == ":.b:other"


def test_names_that_are_reserved_or_empty_are_not_valid() -> None:
    assert Subject.parse("orders").is_valid()
    for name in ("", "*", "__GLOBAL", "__EMPTY", "a\nb", ":.__GLOBAL:x", ":.a:"):
        assert not Subject.parse(name).is_valid(), name
    assert Subject.parse(":.a:").is_valid(for_settings=True)
    assert Subject.parse(":.__GLOBAL:").is_valid(for_settings=True)


_names = st.text("abc:", max_size=4)


@given(st.lists(st.tuples(st.booleans(), _names)), _names, _names, st.integers(1, 5))
def test_sorted_names_are_a_sorted_set(changes: list[tuple[bool, str]], start: str, prefix: str, count: int) -> None:
    names, expected = SortedNames(), set[str]()
    for is_added, name in changes:
        (names.add if is_added else names.discard)(name)
        (expected.add if is_added else expected.discard)(name)
    assert len(names) == len(expected)
    wanted = sorted(each for each in expected if each >= start and each.startswith(prefix))
    assert names.after(start, prefix, count) == wanted[:count]


def test_many_names_are_kept_in_pieces() -> None:
    names = SortedNames()
    numbers = [number * 7919 % 10_007 for number in range(10_007)]
    for number in numbers:
        names.add(f"{number:05}")
    assert names.after("", "", 20_000) == [f"{number:05}" for number in range(10_007)]
    assert len(names._pieces) > 5
    for number in numbers[:10_000]:
        names.discard(f"{number:05}")
    assert names.after("", "", 20_000) == sorted(f"{number:05}" for number in numbers[10_000:])
