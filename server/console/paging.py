"""The first page of a long list: what comes after a name, in the order of the names, found in slices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.server.console import questions

if TYPE_CHECKING:
    from ottla.server.http.pace import PacedTimeSlice
    from ottla.server.http.routes import Request

SORTED_AT_ONCE = 1_000
T = TypeVar("T")


class Wanted(NamedTuple):
    """Which page somebody asks for."""

    after: str
    """The name before it."""
    contains: str
    """What names have to contain, in lower case."""

    @classmethod
    def by(cls, request: Request) -> Wanted:
        """From the parameters of a request."""
        return cls(questions.text(request, "after", ""), questions.text(request, "contains", "").lower())


async def first_page(
    everything: Iterable[T], name_of: Callable[[T], str], wanted: Wanted, size: int, time_slice: PacedTimeSlice
) -> tuple[list[T], str | None]:
    """The page, and the name after which the next one begins, if there is one."""
    first: list[T] = []
    for each in everything:
        await time_slice.yield_if_over()
        name = name_of(each)
        # Those with very long names could not be asked for.
        if wanted.after < name and len(name) <= questions.TEXT_LENGTH_MAX and wanted.contains in name.lower():
            first.append(each)
        # There may be a million, which are not sorted in one step.
        if len(first) > max(size, SORTED_AT_ONCE):
            first = sorted(first, key=name_of)[: size + 1]
    first = sorted(first, key=name_of)[: size + 1]
    page = first[:size]
    return page, name_of(page[-1]) if len(first) > size else None
