"""Patterns are compiled once: what is kept matches the same, and whatever is wrong with the file, all are compiled as ever."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.process import kept_patterns
from ottla.server.process.kept_patterns import COMPILER, KeptPatterns, keeping_patterns
from ottla.wire.kept_files import write_cached

compiler: Any = sys.modules[COMPILER]
PATTERNS: list[tuple[Any, int]] = [
    (r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]{1,10})", 0),
    (r"(.*?)([\"\\\x00-\x1f])", re.VERBOSE | re.MULTILINE | re.DOTALL),
    (b"[\x80-\xff]", 0),
    ("(?i:straße)|ΣΊΣΥΦΟΣ", re.IGNORECASE),
    (r"(?<=a)b(?!c)|(x)?(?(1)y|z)\b\1", 0),
]
TEXTS = ["topic-17", 'say "no"', "STRASSE straße σίσυφος", "ab abc xyx zz", "ä\u0661"]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return tmp_path / "start.patterns"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What had to be compiled."""
    patterns: list[Any] = []
    parse: Callable[..., Any] = compiler._parser.parse

    def noting(pattern: Any, *given: Any) -> Any:
        patterns.append(pattern)
        return parse(pattern, *given)

    monkeypatch.setattr(compiler._parser, "parse", noting)
    return patterns


def compile_all() -> list[re.Pattern[Any]]:
    re.purge()
    return [re.compile(pattern, flags) for pattern, flags in PATTERNS]


def finds(pattern: re.Pattern[Any]) -> list[Any]:
    texts: list[Any] = [each.encode() for each in TEXTS] if isinstance(pattern.pattern, bytes) else TEXTS
    return [(found.span(), found.groups(), found.groupdict()) for each in texts for found in pattern.finditer(each)]


def test_the_second_time_nothing_is_compiled_and_all_match_the_same(path: Path, parsed: list[Any]) -> None:
    plain = compile_all()
    for times in (1, 0):
        parsed.clear()
        with keeping_patterns(path):
            kept = compile_all()
        assert len(parsed) == times * len(PATTERNS)
        assert kept == plain
        assert [(each.flags, each.groups, each.groupindex) for each in kept] == [
            (each.flags, each.groups, each.groupindex) for each in plain
        ]
        assert [finds(each) for each in kept] == [finds(each) for each in plain]
    assert any(finds(each) for each in plain)


def test_a_damaged_file_is_not_used_and_is_written_anew(path: Path, parsed: list[Any]) -> None:
    with keeping_patterns(path):
        compile_all()
    path.write_bytes(path.read_bytes()[:-1])
    parsed.clear()
    with keeping_patterns(path):
        compile_all()
    assert parsed
    parsed.clear()
    with keeping_patterns(path):
        compile_all()
    assert parsed == []


@pytest.mark.parametrize(
    "outcome", [5, (), (1,), (0, [], 0, {}, ()), (0, [2**40], 0, {}, (None,)), (0, [1, 2, 3], 0, {}, (None,))]
)
def test_what_the_matcher_does_not_take_is_compiled_anew(path: Path, parsed: list[Any], outcome: Any) -> None:
    write_cached(path, sys.version.encode(), {("a+b", 0): outcome})
    for times in (1, 0):
        re.purge()
        parsed.clear()
        with keeping_patterns(path):
            assert re.compile("a+b").fullmatch("aab")
        assert len(parsed) == times


def test_python_has_its_compiler_again_afterwards_and_errors_are_its_own(path: Path) -> None:
    before = compiler.compile
    with keeping_patterns(path):
        assert compiler.compile is not before
        with pytest.raises(re.error) as raised:
            re.compile("[a")
    assert raised.value.msg == "unterminated character set"
    assert compiler.compile is before
    assert not path.exists()


@pytest.mark.parametrize(("pattern", "flags"), [(b"\\w", re.LOCALE), ("a", re.DEBUG)])
def test_what_depends_on_more_than_the_pattern_is_not_kept(path: Path, pattern: Any, flags: int) -> None:
    re.purge()
    with keeping_patterns(path):
        assert re.compile(pattern, flags).match(pattern[-1:])
    assert not path.exists()


def test_without_a_file_or_with_another_re_nothing_is_touched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compiler.compile
    with keeping_patterns(None):
        assert compiler.compile is before
    monkeypatch.setattr(kept_patterns, "COMPILER", "re._put_together_in_another_way")
    with keeping_patterns(path):
        assert compiler.compile is before


def test_of_too_many_only_those_in_use_are_kept(path: Path, parsed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_patterns, "PATTERNS_MAX", 3)
    re.purge()
    with keeping_patterns(path):
        re.compile("of the version before")
    with keeping_patterns(path):
        compile_all()
    parsed.clear()
    with keeping_patterns(path):
        compile_all()
        re.compile("of the version before")
    assert parsed == ["of the version before"]


@settings(max_examples=50)
@given(
    st.text("ab(|)[]^-?*+{},.\\d$0", max_size=12),
    st.sampled_from([0, re.IGNORECASE, re.ASCII, re.DOTALL]),
    st.text("abd0-", max_size=8),
)
def test_any_pattern_is_the_same_the_second_time(pattern: str, flags: int, text: str) -> None:
    patterns = KeptPatterns(compiler, {})
    try:
        expected = compiler.compile(pattern, flags)
    except (re.error, OverflowError) as error:
        with pytest.raises(type(error)):
            patterns.compile(pattern, flags)
        return
    for _ in range(2):
        made = patterns.compile(pattern, flags)
        assert made == expected
        assert [each.span() for each in made.finditer(text)] == [each.span() for each in expected.finditer(text)]
    assert len(patterns.worth_keeping()) == 1
