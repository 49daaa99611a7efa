import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.config.properties import MalformedProperties, format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1\nb = 2\r\nc:3\rd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("  a\t=\t b c \n", {"a": "b c "}),
        ("# comment\n! another\n  # indented\n\na=1", {"a": "1"}),
        ("a=1\\\n   ,2\\\n ,3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=x#y!z", {"a": "x#y!z"}),
        ("a=1\na=2", {"a": "2"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\t\\n\\r\\f\\\\\\q", {"a": "\t\n\r\f\\q"}),
        ("a=\\u00e4\\u20AC", {"a": "ä€"}),
        ("a=\\\\\nb=1", {"a": "\\", "b": "1"}),
        ("a", {"a": ""}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("", {}),
        ("\\\n# comment\n\\\n\na=1", {"a": "1"}),
        ("a=\\ud83d\\ude00\\ud83d", {"a": "\U0001f600\ud83d"}),
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize("escape", ["\\u12", "\\u12xy", "\\u+123", "\\u1_23", "\\u 123", "\\u12３4"])
def test_a_broken_escape_names_its_line(escape: str) -> None:
    with pytest.raises(MalformedProperties, match="line 3"):
        parse_properties(f"a=1\n# x\nb={escape}")


@given(st.text(alphabet=st.sampled_from("ab=: \t\f\\\n\r#!u0041dD83+_é")) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_properties(text)
    except MalformedProperties:
        return
    assert sum(len(key) + len(value) for key, value in found.items()) <= len(text)


@given(st.dictionaries(st.sampled_from(["a", "a.b", "listener.name.x.y"]), st.text() | st.binary().map(os.fsdecode)))
def test_what_is_written_comes_back(values: dict[str, str]) -> None:
    text = format_properties(values)
    assert text.isascii()
    assert parse_properties(text) == values


@given(st.dictionaries(st.text(), st.text()))
def test_what_java_writes_comes_back(values: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        units = text.encode("utf-16-be")
        return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

    assert parse_properties("\n".join(f"{escaped(key)}={escaped(value)}" for key, value in values.items())) == values
