"""JSON of strangers is read as Python reads it, as long as it is neither very deep nor of very many pieces."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.wire import foreign_json
from ottla.wire.foreign_json import DEPTH_MAX, ELEMENTS_MAX, parse_json
from ottla.wire.tests.effort import examples

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text('"\\[]{},: a\u00e4\U0001f600', max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\[{,', max_size=4), inner, max_size=4),
    max_leaves=12,
)


def tried(read: Any, data: str | bytes) -> Any:
    try:
        return json.dumps(read(data))
    except (ValueError, RecursionError):
        return ValueError


def depth_of(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)
    return 0


@settings(max_examples=examples(50))
@given(values, st.integers(0, 4), st.booleans())
def test_strings_do_not_count_and_depth_does(value: Any, depth_max: int, escapes: bool) -> None:
    text = json.dumps(value, ensure_ascii=escapes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign_json, "DEPTH_MAX", depth_max)
        if depth_of(value) <= depth_max:
            assert parse_json(text) == parse_json(text.encode()) == value
        else:
            with pytest.raises(ValueError, match=f"nested more than {depth_max} deep"):
                parse_json(text)


@given(st.text('{}[]",:\\ 1a', max_size=40) | st.text(max_size=20))
@example('"\\')
@example('["\\"]')
@example('"' * 9)
def test_any_text_is_read_as_by_python_or_refused(text: str) -> None:
    assert tried(parse_json, text) == tried(json.loads, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign_json, "DEPTH_MAX", 2)
        patch.setattr(foreign_json, "ELEMENTS_MAX", 3)
        assert tried(parse_json, text) in (ValueError, tried(json.loads, text))


@given(st.binary(max_size=30))
@example(b"\xef\xbb\xbf{}")
@example('{"a": 1}'.encode("utf-16"))
def test_any_bytes_are_read_as_by_python_or_refused(data: bytes) -> None:
    assert tried(parse_json, data) == tried(json.loads, data)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 500_000,
        "[" + "[]," * 300_000 + "[]]",
        "[" + "1," * 500_000 + "1]",
        '["' + '","' * 300_000 + '"]',
        "{" + ",".join(f'"{number}":1' for number in range(ELEMENTS_MAX + 2)) + "}",
        "[" + "]" * (2 * DEPTH_MAX) + "[" * DEPTH_MAX + "]" * 500_000,
        '["' + '\\"' * 400_000,
        '"' + "[\\" * 300_000,
        '"' * 500_001,
    ],
)
def test_what_is_too_much_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    parsed = []
    loads = json.loads
    monkeypatch.setattr(foreign_json.json, "loads", lambda text: parsed.append(text) or loads(text))
    with pytest.raises(ValueError):
        parse_json(text)
    # What is one string to its end takes no time to parse.
    assert not parsed or text.lstrip("[").startswith('"')


def test_what_is_allowed_is_a_lot() -> None:
    many = [{"name": 'a,[{"' * 3}] * (ELEMENTS_MAX - 1)
    assert parse_json(json.dumps(many[: ELEMENTS_MAX // 2])) == many[: ELEMENTS_MAX // 2]
    value = '\\"[{,\n' * 100_000
    assert parse_json(json.dumps({"value": value})) == {"value": value}
    deep = "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)
    assert parse_json(f"[{deep},{deep}]") == json.loads(f"[{deep},{deep}]")
    assert parse_json("{}", object_pairs_hook=len) == 0
