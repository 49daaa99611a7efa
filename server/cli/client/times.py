"""Times as people type and read them, such as 2026-11-28T10:30 or 2026-11-28T10:30+01:00 (ISO 8601)."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo


def parse_time(text: str, zone: tzinfo | None = None) -> int:
    """Parse a time to ms since 1970. `zone` is that of a text that names none; None: the local one. Raises ValueError."""
    found = datetime.fromisoformat(text)
    try:
        if found.tzinfo is None:
            # astimezone() takes a time without a zone as local.
            found = found.astimezone() if zone is None else found.replace(tzinfo=zone)
        return int(found.timestamp() * 1000)
    except (OverflowError, OSError):
        raise ValueError(f"{text} is too early or too late") from None


def time_text(ms: int) -> str:
    """Format ms since 1970 as a time in UTC; a number beyond the year 9999 as it is."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(ms)
