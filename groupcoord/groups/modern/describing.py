"""How administrators see groups of the newer kinds. Each kind has messages of its own, with the same fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, TypeVar

from ottla.groupcoord.groups.metadata import TopicImages
from ottla.wire.errors import ErrorCode

T = TypeVar("T")


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
