"""How administrators see groups of the newer kinds. Each kind has messages of its own, with the same fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.groupcoord.metadata import TopicImages
from ottla.wire.errors import ErrorCode

T = TypeVar("T")
S = TypeVar("S")

MEMBERS_AT_ONCE = 200
"""A group of more members is described in turns: each member takes 10 microseconds, and more if it has many partitions."""


class Large(NamedTuple, Generic[T]):
    """The description of a large group, which lacks its members. They are as they were when it was asked for."""

    description: T
    members: Iterator[Any]
    """Makes one at each step."""

    def add_member(self) -> bool:
        """Whether there was one more."""
        description: Any = self.description
        for member in self.members:
            description.members.append(member)
            return True
        return False


def with_members(description: T, sources: Sequence[S], describe: Callable[[S], object]) -> T | Large[T]:
    """A description with its members, made from values that never change."""
    if len(sources) > MEMBERS_AT_ONCE:
        return Large(description, map(describe, sources))
    made: Any = description
    made.members = [describe(each) for each in sources]
    return description


def undescribed(make: Callable[..., T], group_id: str, error: ErrorCode, message: str | None, **more: Any) -> T:
    """The description of a group about which there is nothing to say."""
    return make(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
        **more,
    )


def described_partitions(
    make: Callable[..., T], partitions: Iterable[tuple[bytes, Iterable[int]]], topics: TopicImages
) -> list[T]:
    """Partitions by the names of their topics. Topics that are gone have no name any more, and are left out."""
    shown: dict[bytes, list[int]] = {}
    for topic_id, indexes in sorted(partitions, key=itemgetter(0)):
        shown[topic_id] = shown.get(topic_id, []) + sorted(indexes)
    images = [(topics.image_by_id(topic_id), indexes) for topic_id, indexes in shown.items()]
    return [
        make(topic_id=image.topic_id, topic_name=image.name, partitions=indexes)
        for image, indexes in images
        if image is not None
    ]
