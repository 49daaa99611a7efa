"""Patterns of clients: RE2's rules, whole matches, and nothing that takes for ever."""

import pytest

from ottla.groupcoord import patterns
from ottla.groupcoord.patterns import CHARACTERS_MAX, INSTRUCTIONS_MAX, Pattern
from ottla.wire.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("a", ["a"], ["aa", "ba", "A", ""]),
        ("app-.*", ["app-", "app-1"], ["my-app-1", "app"]),
        ("(?i)app", ["APP", "app"], ["apps"]),
        (".", ["x", "é", "😀"], ["\n", "xy"]),
        (r"\pL+-\d{2}", ["tä-07"], ["t-7"]),
        ("a|bc", ["a", "bc"], ["ac", "abc"]),
        ("(x+x+)+y", ["xxy"], ["x" * 30_000]),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
    ],
)
def test_whole_texts_match(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in (*matching, *others) if compiled.matches(text)] == matching


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "a**", "[b-a]", "a{1001}", "(?<!a)b", "*", "\\"])
def test_what_re2_does_not_know_is_refused_with_words(pattern: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        Pattern(pattern)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refusal.value.message is not None and "b'" not in refusal.value.message


@pytest.mark.parametrize("pattern", ["x" * (CHARACTERS_MAX + 1), "(a|b)*" * 800, r"(\pL{1,50}){20}", "\ud800"])
def test_patterns_have_limits(pattern: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        Pattern(pattern)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("part", [r"\pL", r"\PL", r"[^\pLa]*", "a{1,500}", "a{9,}", "(){1000}"])
def test_what_takes_long_to_read_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    def read(*arguments: object, **options: object) -> None:
        pytest.fail("it was read")

    monkeypatch.setattr(patterns._library(), "compile", read)
    with pytest.raises(KafkaError) as refusal:
        Pattern(part * (CHARACTERS_MAX // len(part)))
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_ordinary_patterns_are_not_dear() -> None:
    assert Pattern(r"(\pL+|\pN)-[a-z]{1,20}\.v\d{1,3}").matches("ab-c.v1")


def test_cost_grows_with_pattern_and_text() -> None:
    small, large = Pattern("a.*"), Pattern("(a|b)*" * 100)
    assert 0 < small.cost("") < small.cost("x" * 100) < large.cost("x" * 100) <= INSTRUCTIONS_MAX * 101
