"""Names of subjects with their contexts, and a sorted set of names.

    orders-value            a subject of the default context, whose name is "."
    :.staging:orders-value  a subject of the context ".staging"
    :.staging:              that context itself, in paths of settings
    :*:                     all contexts, in prefixes

Each context has ids of its own.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
ALL_CONTEXTS = ":*:"
_RESERVED = ("__GLOBAL", "__EMPTY")
_PLAIN = re.compile("[^\x00-\x1f\x7f-\x9f]*")


class Subject(NamedTuple):
    """Name of a subject, with its context. An empty name stands for the context itself."""

    context: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Subject:
        """Parse a qualified name; every text is valid."""
        if text.startswith(":."):
            context, _, name = text[1:].partition(":")
            return cls(context, name)
        if text.startswith(ALL_CONTEXTS):
            return cls("*", text[len(ALL_CONTEXTS) :])
        return cls(DEFAULT_CONTEXT, text)

    @property
    def qualified(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"

    @property
    def is_default_context(self) -> bool:
        return self.context == DEFAULT_CONTEXT and not self.name

    def is_valid(self, *, for_settings: bool = False) -> bool:
        """Tell whether this name may get schemas; with `for_settings`, whether it may get settings."""
        if not (_PLAIN.fullmatch(self.context) and _PLAIN.fullmatch(self.name)) or self.name in _RESERVED:
            return False
        return for_settings or (self.name not in ("", "*") and self.context != GLOBAL_CONTEXT)


def normalized(text: str) -> str:
    """Return a qualified name without the prefix of the default context."""
    return Subject.parse(text).qualified


def context_of(qualified: str) -> str:
    """Return the context of a qualified name."""
    return Subject.parse(qualified).context


def resolved(reference: str, parent: str) -> str:
    """Return the qualified subject of a reference. If `reference` names no context, it means that of `parent`."""
    subject = Subject.parse(reference)
    if subject.context == DEFAULT_CONTEXT:
        context = context_of(parent)
        if context != DEFAULT_CONTEXT:
            return Subject(context, reference).qualified
    return subject.qualified


_PIECE = 512


class SortedNames:
    """Sorted set of names. It is split into pieces, so that changes are fast even with a million names."""

    def __init__(self) -> None:
        self._pieces: list[list[str]] = [[]]
        self._lasts: list[str] = [""]  # the highest name of each piece, and of the last piece anything

    def add(self, name: str) -> None:
        """Add a name; no-op if it is present."""
        index = self._index(name)
        piece = self._pieces[index]
        at = bisect_left(piece, name)
        if at < len(piece) and piece[at] == name:
            return
        insort(piece, name)
        self._lasts[index] = piece[-1]
        if len(piece) > 2 * _PIECE:
            right = piece[_PIECE:]
            del piece[_PIECE:]
            self._lasts[index] = piece[-1]
            self._pieces.insert(index + 1, right)
            self._lasts.insert(index + 1, right[-1])

    def discard(self, name: str) -> None:
        """Remove a name; no-op if it is absent."""
        index = self._index(name)
        piece = self._pieces[index]
        at = bisect_left(piece, name)
        if at == len(piece) or piece[at] != name:
            return
        del piece[at]
        if piece:
            self._lasts[index] = piece[-1]
        elif len(self._pieces) > 1:
            del self._pieces[index], self._lasts[index]
        else:
            self._lasts[index] = ""

    def after(self, name: str, prefix: str, count: int) -> list[str]:
        """Return up to `count` names from `name` on that begin with `prefix`, in order."""
        found: list[str] = []
        for each in self._from(max(name, prefix)):
            if not each.startswith(prefix) or len(found) == count:
                break
            found.append(each)
        return found

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def _from(self, name: str) -> Iterator[str]:
        index = self._index(name)
        at = bisect_left(self._pieces[index], name)
        while index < len(self._pieces):
            yield from self._pieces[index][at:]
            index, at = index + 1, 0

    def _index(self, name: str) -> int:
        return min(bisect_left(self._lasts, name), len(self._pieces) - 1)
