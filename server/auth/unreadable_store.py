"""What is wrong with a store of keys or certificates."""

from __future__ import annotations


class UnreadableStore(ValueError):
    """Bytes that are no such store, or another password; the message has neither in it."""
