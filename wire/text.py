"""Text as Java reads it.

Bytes that are not UTF-8 become replacement characters, as many as Java's decoder makes of them. Python's "replace" makes
the same except of an encoded surrogate (ED A0..BF and one more byte): one there, up to three here. The error handler
registered below has the name `JAVA_REPLACE` and closes that gap, so that a name from a faulty client is the same name.
"""

from __future__ import annotations

import codecs

JAVA_REPLACE = "java_replace"


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    text, start = error.object, error.start
    if text[start] != 0xED or not b"\xa0" <= text[start + 1 : start + 2] <= b"\xbf":
        return "\ufffd", error.end
    third = text[start + 2 : start + 3]
    return "\ufffd", start + (3 if b"\x80" <= third <= b"\xbf" else 2)


codecs.register_error(JAVA_REPLACE, _replace_as_java)
