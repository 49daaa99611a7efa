"""What a client may see of committed offsets, as services ask for it. None in its place: everything."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class OffsetRights(Protocol):
    """The rights of whoever sent a request."""

    def may_describe(self, group_id: str) -> bool:
        """Whether the client may see a group at all."""

    def denied(self, topics: Collection[str]) -> Collection[str]:
        """Those of the topics that it may not see. Called for some hundred names at a time."""
