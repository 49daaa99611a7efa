"""The list of what a shard is made of. Another kind of groups enters here, and nowhere else in this folder.

Classic groups are always there. The code of every other kind, a third of what a broker would load, is loaded when there is
such a group: when a member first asks for one, or when one of its records is found in the log. Shards take up the new part
when they first need it (`Shard`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from ottla.groupcoord.classic.part import CLASSIC
from ottla.groupcoord.offsets.part import OFFSETS
from ottla.groupcoord.part import PartKind
from ottla.groupcoord.records import RecordFormats
from ottla.groupcoord.runtime.ports import NotLoaded


@dataclass(frozen=True)
class LateKind:
    """A kind of groups whose code is loaded late: the folder of that name in groupcoord/, whose part is `KIND`."""

    folder: str
    key_types: frozenset[int]
    """Of its records."""

    def kind(self) -> PartKind:
        """The registered constant of its module, which is loaded for that."""
        kind: PartKind = import_module(f"ottla.groupcoord.{self.folder}.part").KIND
        return kind

    def load(self) -> None:
        """Load all that its first group needs. Call it in a thread, before it is needed elsewhere: it may take long."""
        RecordFormats(self.kind().formats).load_codecs()


ALWAYS = (OFFSETS, CLASSIC)
CONSUMER = LateKind("consumer", frozenset({3, 4, 5, 6, 7, 8, 16}))
SHARE = LateKind("share", frozenset({10, 11, 12, 13, 14, 15}))
STREAMS = LateKind("streams", frozenset({17, 19, 20, 21, 22, 23}))
LATE = (CONSUMER, SHARE, STREAMS)


class Kinds:
    """The kinds that one coordinator has loaded, and what is put together from them."""

    def __init__(self, kinds: Iterable[PartKind] = ALWAYS) -> None:
        self.loaded: list[PartKind] = []
        """Only grows, and at its end."""
        self.formats = RecordFormats(on_unknown=self._look_for)
        self.overlapping: set[type] = set()
        self.gathered: set[type] = set()
        for kind in kinds:
            self._add(kind)

    def has(self, late: LateKind) -> bool:
        """True if a kind is loaded: if not, there is no group of this kind in any shard that is."""
        return not late.key_types.isdisjoint(self.formats.key_types)

    def need(self, late: LateKind) -> None:
        """Have a kind from now on."""
        if not self.has(late):
            kind = late.kind()
            assert RecordFormats(kind.formats).key_types == late.key_types, f"{late.folder} has other types of records"
            self._add(kind)

    def _add(self, kind: PartKind) -> None:
        self.formats.add(kind.formats)
        self.overlapping |= kind.overlapping
        self.gathered |= kind.gathered
        self.loaded.append(kind)

    def _look_for(self, key_type: int) -> None:
        """Whoever reads a record of a kind that is not loaded has it loaded first."""
        for late in LATE:
            if key_type in late.key_types:
                raise NotLoaded(late.load, partial(self.need, late))


def every_kind() -> list[PartKind]:
    """All kinds, loaded."""
    return [*ALWAYS, *(late.kind() for late in LATE)]
