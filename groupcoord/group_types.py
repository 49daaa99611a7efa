"""The group types that a shard has. Another type enters here, and nowhere else in this folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.groupcoord.classic.manager import CLASSIC
from ottla.groupcoord.consumer.manager import CONSUMER
from ottla.groupcoord.manager import GroupType
from ottla.groupcoord.offsets.manager import OFFSETS
from ottla.groupcoord.records import RecordFormats
from ottla.groupcoord.share.manager import SHARE
from ottla.groupcoord.streams.manager import STREAMS

GROUP_TYPES: Final = (OFFSETS, CLASSIC, CONSUMER, SHARE, STREAMS)


class GroupTypes:
    """Record formats and properties of requests of all group types of a coordinator."""

    def __init__(self, types: Sequence[GroupType] = GROUP_TYPES) -> None:
        self.types = types
        self.formats = RecordFormats(record_format for each in types for record_format in each.formats)
        self.overlapping = frozenset(request for each in types for request in each.overlapping)
        self.gathered = frozenset(request for each in types for request in each.gathered)
