"""Text decoded as Java decodes it, and Kafka's text for a UUID.

Bytes that are not UTF-8 become replacement characters, as many as Java's decoder makes of them. Python's "replace" makes
the same except of an encoded surrogate (ED A0..BF and one more byte): one there, up to three here. The error handler
registered below has the name `JAVA_REPLACE` and closes that gap, so that a name from a faulty client is the same name.

A replacement character takes three bytes in place of one. So a long text that is not UTF-8 might not fit into the answer that
repeats it: it is refused. Kafka fails over that answer.
"""

from __future__ import annotations

import base64
import codecs
from typing import Final

from ottla.wire.errors import ProtocolViolation, shortened
from ottla.wire.limits import STRING_BYTES_MAX

JAVA_REPLACE = "java_replace"
REPLACED_BYTES_MAX = STRING_BYTES_MAX // 3
UUID_BYTES: Final = 16


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    text, start = error.object, error.start
    if len(text) > REPLACED_BYTES_MAX:
        raise ProtocolViolation(f"a string of {len(text)} bytes that is not UTF-8")
    if text[start] != 0xED or not b"\xa0" <= text[start + 1 : start + 2] <= b"\xbf":
        return "\ufffd", error.end
    third = text[start + 2 : start + 3]
    return "\ufffd", start + (3 if b"\x80" <= third <= b"\xbf" else 2)


def text_bytes(text: str) -> bytes:
    """Encode a human-readable text in UTF-8. A text that is too long is shortened, between two characters."""
    return shortened(text).encode()


codecs.register_error(JAVA_REPLACE, _replace_as_java)


def uuid_text(uuid: bytes) -> str:
    """Format a UUID as Kafka does: 22 characters of URL-safe Base64 without padding."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    """Parse Kafka's text for a UUID, with or without padding. Raises ValueError."""
    # `validate`, because Python would pass over any other character.
    uuid = base64.b64decode(text.encode("ascii").rstrip(b"=") + b"==", altchars=b"-_", validate=True)
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"{text!r} has not the length of a UUID")
    return uuid
