"""Text that is not UTF-8. The expectations are what Java 17's `new String(bytes, UTF_8)` made of these bytes."""

import pytest

from ottla.wire.text import JAVA_REPLACE


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"topic", "topic"),
        ("köln \N{POSTAL HORN}".encode(), "köln \N{POSTAL HORN}"),
        (b"a\xffb", "a?b"),
        (b"\xed\xbf\xbf", "?"),
        (b"\xed\xa0\xef", "??"),
        (b"\xed\xed\xbf\xff", "???"),
        (b"\xed\xa0\xdf\x80\x80\xf5", "?\u07c0??"),
        (b"\xed\xae\x8f\xa0", "??"),
        (b"\xed\xc2\xc2", "???"),
        (b"\xe0\xed\xae\x8f\xa0", "???"),
        (b"\xf0\x9f\x98", "?"),
        (b"\xc0\x80", "??"),
    ],
)
def test_replacement_characters_are_as_many_as_in_java(raw: bytes, text: str) -> None:
    assert raw.decode("utf-8", JAVA_REPLACE) == text.replace("?", "\ufffd")
