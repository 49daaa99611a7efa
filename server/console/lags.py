"""How far groups are behind, for the list of groups: counted in time_slice, kept for some seconds, and only so far.

Clients make groups and commit what they like. So of one group OFFSETS_PER_GROUP_MAX offsets are counted, of one page
OFFSETS_PER_PAGE_MAX, and what was counted is kept for whoever asks next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import trio

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.http.pace import PacedTimeSlice

KEPT_S, GROUPS_KEPT = 5.0, 1_000
OFFSETS_PER_GROUP_MAX, OFFSETS_PER_PAGE_MAX = 2_000, 20_000
AT_ONCE = 100


class Lag(NamedTuple):
    """Records that a group is behind."""

    records: int | None
    """None: the group has committed nothing in partitions that are here."""
    is_whole: bool
    """Whether all of its offsets were counted."""


class Lags:
    """See the module's docstring."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: OrderedDict[str, tuple[float, Lag]] = OrderedDict()

    async def of(self, group_ids: Iterable[str], time_slice: PacedTimeSlice) -> list[Lag]:
        """One for each group, in their order."""
        found, left = [], OFFSETS_PER_PAGE_MAX
        for group_id in group_ids:
            kept = self._kept.get(group_id)
            if kept is None or trio.current_time() - kept[0] > KEPT_S:
                limit = min(left, OFFSETS_PER_GROUP_MAX)
                lag, counted = await self._counted(group_id, limit, time_slice)
                left -= counted
                self._keep(group_id, lag)
            else:
                lag = kept[1]
            found.append(lag)
        return found

    def _keep(self, group_id: str, lag: Lag) -> None:
        self._kept[group_id] = trio.current_time(), lag
        self._kept.move_to_end(group_id)
        while len(self._kept) > GROUPS_KEPT:
            self._kept.popitem(last=False)

    async def _counted(self, group_id: str, limit: int, time_slice: PacedTimeSlice) -> tuple[Lag, int]:
        """The lag, and how many offsets were looked at."""
        lag, count = None, 0
        for topic, index, offset in islice(self._committed(group_id), limit + 1):
            if count == limit:
                return Lag(lag, is_whole=False), count
            count += 1
            partition = self._broker.replicas.partition(topic, index)
            if partition is not None:
                lag = (lag or 0) + max(0, partition.high_watermark - offset)
            if count % AT_ONCE == 0:
                await time_slice.yield_if_over()
        await time_slice.yield_if_over()
        return Lag(lag, is_whole=True), count

    def _committed(self, group_id: str) -> Iterator[tuple[str, int, int]]:
        """Topic, partition, offset. Copies, because others have turns meanwhile, and of no more than may be counted."""
        topics = self._broker.groups.administration.committed(group_id)
        for topic, partitions in list(islice(topics.items(), OFFSETS_PER_GROUP_MAX + 1)):
            for index, committed in list(islice(partitions.items(), OFFSETS_PER_GROUP_MAX + 1)):
                yield topic, index, committed.offset
