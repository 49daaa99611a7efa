"""Text that is not UTF-8. The expectations are what Java 17's `new String(bytes, UTF_8)` made of these bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.wire.errors import MESSAGE_LENGTH_MAX, ProtocolViolation
from ottla.wire.limits import STRING_BYTES_MAX
from ottla.wire.schema import Array, Struct, Text
from ottla.wire.tests.message_values import messages, versions
from ottla.wire.text import JAVA_REPLACE, REPLACED_BYTES_MAX


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


def test_a_long_string_that_is_not_utf_8_is_refused() -> None:
    """As text it takes three times the bytes, and would not fit into the answer that repeats it."""
    longest = REPLACED_BYTES_MAX
    assert len((b"\xff" * longest).decode("utf-8", JAVA_REPLACE).encode()) == 3 * longest <= STRING_BYTES_MAX
    with pytest.raises(ProtocolViolation):
        (b"x" * longest + b"\xff").decode("utf-8", JAVA_REPLACE)
    assert len(("é" * (STRING_BYTES_MAX // 2)).encode().decode("utf-8", JAVA_REPLACE)) == STRING_BYTES_MAX // 2


def _texts(cls: type[Struct], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in cls.wire_fields.items():
        part = field.type.item if isinstance(field.type, Array) else field.type
        if isinstance(part, type):
            yield from _texts(part, (*path, name))
        elif part is Text:
            yield (*path, name)


def _holder(cls: type[Struct], path: tuple[str, ...], text: str) -> Struct:
    made = cls.zero()
    [name, *below] = path
    field = cls.wire_fields[name]
    if not below:
        setattr(made, name, text)
    elif isinstance(field.type, Array):
        setattr(made, name, [_holder(field.type.item, tuple(below), text)])
    else:
        setattr(made, name, _holder(field.type, tuple(below), text))
    return made


def _found(made: Struct, path: tuple[str, ...]) -> str:
    for name in path:
        value = getattr(made, name)
        made = value[0] if isinstance(value, list) else value
    return made


def test_every_text_for_people_is_cut_where_it_is_encoded() -> None:
    """It may quote names of 32,767 bytes each. What is left is valid, short, and says what it began with."""
    text = "Group " + "\N{POSTAL HORN}ß" * 20_000 + " not found."
    tried = 0
    for cls in messages():
        for path in _texts(cls):
            for version in versions(cls):
                made = _holder(cls, path, text)
                encoded = made.encode(version)
                decoded = cls.decode(encoded, version)
                if cls.construct(version).build(made) != encoded:
                    raise AssertionError((cls, version))
                try:
                    told = _found(decoded, path)
                except IndexError:  # this version has no such array
                    continue
                tried += told != ""
                assert told in ("", None) or (told[:20] == text[:20] and len(told) == MESSAGE_LENGTH_MAX), (
                    cls,
                    version,
                )
    assert tried > 100


def test_no_answer_has_an_error_message_that_is_an_ordinary_string() -> None:
    for cls in messages():
        for struct in cls.structs().values():
            for name, field in struct.wire_fields.items():
                assert field.type is Text or not name.endswith(("error_message", "_detail")), (
                    f"{struct.__name__}.{name}"
                )
