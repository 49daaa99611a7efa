"""The list of what a shard is made of. Another kind of groups enters here, and nowhere else in this folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.groupcoord.classic.part import CLASSIC
from ottla.groupcoord.consumer.part import CONSUMER
from ottla.groupcoord.offsets.part import OFFSETS
from ottla.groupcoord.part import PartKind
from ottla.groupcoord.records import RecordFormats
from ottla.groupcoord.share.part import SHARE
from ottla.groupcoord.streams.part import STREAMS

KINDS: Final = (OFFSETS, CLASSIC, CONSUMER, SHARE, STREAMS)


class Kinds:
    """Record formats and properties of requests, put together from the parts of a shard."""

    def __init__(self, parts: Sequence[PartKind] = KINDS) -> None:
        self.parts = parts
        self.formats = RecordFormats(each for part in parts for each in part.formats)
        self.overlapping = frozenset(request for part in parts for request in part.overlapping)
        self.gathered = frozenset(request for part in parts for request in part.gathered)
