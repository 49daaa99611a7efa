"""The descriptions of groups of the newer kinds: each is asked of its shard, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import trio

from ottla.groupcoord.group_shards import GroupShards
from ottla.groupcoord.modern.describing import Large
from ottla.groupcoord.runtime.answers import finished, gathered
from ottla.groupcoord.runtime.callers import WaitingCaller
from ottla.wire.answers import Given, PendingAnswer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.time_slice import TimeSlice

GROUPS_PER_TURN = 4
"""Each may have some members, and its id may be very long."""

ResponseT = TypeVar("ResponseT")


class Descriptions:
    """How groups of one kind are described. `ask` makes the question about a group, `undescribed` what says only an error."""

    def __init__(
        self, shards: GroupShards, ask: Callable[[str], Any], undescribed: Callable[[str, ErrorCode], Any]
    ) -> None:
        self._shards = shards
        self._ask = ask
        self._undescribed = undescribed

    def of(
        self,
        group_ids: Sequence[str],
        response: Callable[[list[Any]], ResponseT],
        *,
        operations: Callable[[str], int] | None,
    ) -> Worked[Given[ResponseT]]:
        """The response made of all descriptions. `operations`: what may be done with a group, if that is asked."""

        def finish(groups: list[Any]) -> list[Any]:
            for group in groups:
                if operations is not None and not group.error_code:
                    group.authorized_operations = operations(group.group_id)
            return groups

        if len(group_ids) > GROUPS_PER_TURN:
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
        for start in range(0, len(group_ids), GROUPS_PER_TURN):
            answers = [self._describe(group_id) for group_id in group_ids[start : start + GROUPS_PER_TURN]]
            groups += finish(await _whole(await finished(gathered(answers, list))))
            await trio.lowlevel.checkpoint()
        return response(groups)

    def _describe(self, group_id: str) -> Given[Any]:
        if not group_id:
            return self._undescribed(group_id, ErrorCode.INVALID_GROUP_ID)
        caller = WaitingCaller(lambda error: self._undescribed(group_id, error))
        return self._shards.submit(group_id, self._ask(group_id), caller)


async def _whole(groups: list[Any]) -> list[Any]:
    """The descriptions with all members."""
    time_slice = TimeSlice()
    whole = []
    for group in groups:
        if isinstance(group, Large):
            while group.add_member():
                await time_slice.yield_if_over()
        whole.append(group.description if isinstance(group, Large) else group)
    return whole
