"""Kafka's text for a UUID: 22 characters of URL-safe Base64 without padding."""

from __future__ import annotations

import base64
from typing import Final

UUID_BYTES: Final = 16


def uuid_text(uuid: bytes) -> str:
    """Format a UUID as Kafka does."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def parse_uuid(text: str) -> bytes:
    """Parse Kafka's text for a UUID, with or without padding. Raises ValueError."""
    # `validate`, because Python would pass over any other character.
    uuid = base64.b64decode(text.encode("ascii").rstrip(b"=") + b"==", altchars=b"-_", validate=True)
    if len(uuid) != UUID_BYTES:
        raise ValueError(f"{text!r} has not the length of a UUID")
    return uuid
