"""Descriptions of consumer, share and streams groups. Each type has messages of its own, with the same fields.

A service asks the shards of a few groups at a time. A large group is described in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from ottla.groupcoord.runtime.answers import Caller, finished, gathered
from ottla.groupcoord.shard import GroupRuntime
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.answers import Given, PendingAnswer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.time_slice import TimeSlice

T = TypeVar("T")
S = TypeVar("S")

MEMBERS_AT_ONCE = 200
"""A group of more members is described in slices: each member takes 10 microseconds, and more if it has many partitions."""


class Large(NamedTuple, Generic[T]):
    """Description of a large group. Its members, as they were at the time of the request, are added later."""

    description: T
    members: Iterator[Any]
    """Makes one at each step."""

    def add_member(self) -> bool:
        """Add the next member to the description. Return False if all members were added before."""
        description: Any = self.description
        for member in self.members:
            description.members.append(member)
            return True
        return False


def with_members(description: T, sources: Sequence[S], describe: Callable[[S], object]) -> T | Large[T]:
    """Return the description with a member for each of `sources`. If there are many, return a `Large`.

    `sources` must be immutable, because a `Large` adds the members later.
    """
    if len(sources) > MEMBERS_AT_ONCE:
        return Large(description, map(describe, sources))
    made: Any = description
    made.members = [describe(each) for each in sources]
    return description


def undescribed(make: Callable[..., T], group_id: str, error: ErrorCode, message: str | None, **more: Any) -> T:
    """Make a group description by `make` that carries only an error."""
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
    """Return partitions by topic name, each made by `make`. Deleted topics are left out."""
    shown: dict[bytes, list[int]] = {}
    for topic_id, indexes in sorted(partitions, key=itemgetter(0)):
        shown[topic_id] = shown.get(topic_id, []) + sorted(indexes)
    images = [(topics.image_by_id(topic_id), indexes) for topic_id, indexes in shown.items()]
    return [
        make(topic_id=image.topic_id, topic_name=image.name, partitions=indexes)
        for image, indexes in images
        if image is not None
    ]


GROUPS_PER_SLICE = 4
"""Each may have some members, and its id may be very long."""

ResponseT = TypeVar("ResponseT")


class Descriptions:
    """Describer of groups of one type. `ask` asks a group's shard; `undescribed` makes an error-only description."""

    def __init__(
        self, runtime: GroupRuntime, ask: Callable[[str], Any], undescribed: Callable[[str, ErrorCode], Any]
    ) -> None:
        self._runtime = runtime
        self._ask = ask
        self._undescribed = undescribed

    def of(
        self,
        group_ids: Sequence[str],
        response: Callable[[list[Any]], ResponseT],
        *,
        operations: Callable[[str], int] | None,
    ) -> Worked[Given[ResponseT]]:
        """Return the response, made by `response` from the descriptions of all groups.

        `operations` returns the client's authorized operations on a group; None: not requested.
        """

        def finish(groups: list[Any]) -> list[Any]:
            for group in groups:
                if operations is not None and not group.error_code:
                    group.authorized_operations = operations(group.group_id)
            return groups

        if len(group_ids) > GROUPS_PER_SLICE:
            return self._in_slices(group_ids, finish, response)
        answers = [self._describe(group_id) for group_id in group_ids]
        # One that is not there yet may be large as well.
        if any(isinstance(each, PendingAnswer | Large) for each in answers):
            return self._completed(gathered(answers, list), lambda groups: response(finish(groups)))
        return gathered(answers, lambda groups: response(finish(groups)))

    async def _completed(self, answer: Given[list[Any]], finish: Callable[[list[Any]], ResponseT]) -> ResponseT:
        return finish(await _whole(await finished(answer)))

    async def _in_slices(
        self,
        group_ids: Sequence[str],
        finish: Callable[[list[Any]], list[Any]],
        response: Callable[[list[Any]], ResponseT],
    ) -> ResponseT:
        groups: list[Any] = []
        for start in range(0, len(group_ids), GROUPS_PER_SLICE):
            answers = [self._describe(group_id) for group_id in group_ids[start : start + GROUPS_PER_SLICE]]
            groups += finish(await _whole(await finished(gathered(answers, list))))
            await trio.lowlevel.checkpoint()
        return response(groups)

    def _describe(self, group_id: str) -> Given[Any]:
        if not group_id:
            return self._undescribed(group_id, ErrorCode.INVALID_GROUP_ID)
        caller = Caller(lambda error: self._undescribed(group_id, error))
        return self._runtime.submit(group_id, self._ask(group_id), caller)


async def _whole(groups: list[Any]) -> list[Any]:
    """Return the descriptions, with all members added to the `Large` ones."""
    time_slice = TimeSlice()
    whole = []
    for group in groups:
        if isinstance(group, Large):
            while group.add_member():
                await time_slice.yield_if_over()
        whole.append(group.description if isinstance(group, Large) else group)
    return whole
