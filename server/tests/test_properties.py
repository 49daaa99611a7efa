import pytest

from ottla.server.settings.properties import MalformedProperties, parse_properties


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
    ],
)
def test_a_text_is_read_as_java_reads_it(text: str, found: dict[str, str]) -> None:
    assert parse_properties(text) == found


@pytest.mark.parametrize("escape", ["\\u12", "\\u12xy"])
def test_a_broken_escape_names_its_line(escape: str) -> None:
    with pytest.raises(MalformedProperties, match="line 3"):
        parse_properties(f"a=1\n# x\nb={escape}")
