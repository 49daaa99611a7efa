"""Times in requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ottla.server.rest.errors import bad_request

CHARACTERS_MAX = 50


def parse_time(value: Any) -> int:
    """Convert ISO 8601, or seconds since 1970, to ms, as Jackson parses an Instant. Raises RestError."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 43:
        return value * 1000
    if isinstance(value, str) and len(value) < CHARACTERS_MAX:
        try:
            found = datetime.fromisoformat(value)
            aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
            return int(aware.timestamp() * 1000)
        except (ValueError, OverflowError):
            pass
    raise bad_request(f"timestamp: {str(value)[:100]!r} is no time such as 2026-01-31T12:00:00Z")
