"""Times as people type and read them.

2026-11-28, 2026-11-28T10:30, 2026-11-28T10:30+01:00    ISO 8601
-1h, -2d12h                                             a while ago
now                                                     now
1700000000000                                           ms since 1970; eight digits are a date
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, tzinfo

from ottla.server.config.quantities import DURATIONS_MS

FORMS = "2026-11-28, 2026-11-28T10:30, 2026-11-28T10:30+01:00, -1h or 1700000000000 (ms since 1970)"
"""Examples of times, for error messages."""

_WHILE = re.compile(r"-(?:[0-9]{1,12}(?:ms|min|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|min|[smhdw])")
_DATE_DIGITS, _MS_DIGITS_MAX = 8, 15


def parse_time(text: str, zone: tzinfo | None = None) -> int:
    """Parse a time to ms since 1970. `zone` is that of a text that names none; None: the local one. Raises ValueError."""
    found = _parsed(text, zone)
    if found < 0:
        raise ValueError(f"{text} is before 1970")
    return found


def _parsed(text: str, zone: tzinfo | None) -> int:
    if text == "now" or _WHILE.fullmatch(text):
        return time.time_ns() // 1_000_000 - sum(int(count) * DURATIONS_MS[unit] for count, unit in _PART.findall(text))
    if text.isascii() and text.isdecimal() and _DATE_DIGITS < len(text) <= _MS_DIGITS_MAX:
        return int(text)
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            # astimezone() takes a time without a zone as local.
            found = found.astimezone() if zone is None else found.replace(tzinfo=zone)
        return int(found.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no time such as {FORMS}") from None


def time_text(ms: int) -> str:
    """Format ms since 1970 as a time in UTC; a number beyond the year 9999 as it is."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(ms)
