"""Groups that this broker coordinates, and how far behind they are, under the names of kafka_exporter.

The lag is told where this broker has a replica of the partition. Elsewhere the committed offset is told alone, and a query
takes the end from the leader: `max by (topic, partition) (kafka_log_log_logendoffset)`. Clients make groups and commit what they
like, so there is an end: OFFSETS_MAX offsets, BYTES_MAX of their labels. `ottla_group_offsets_left_out` says how many groups are
not told whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from ottla.server.http.metrics.exposition import GAUGE, Exposition, Family, escaped

if TYPE_CHECKING:
    from ottla.groupcoord.offsets.committed import TopicOffsets
    from ottla.groupcoord.service import GroupCoordinator
    from ottla.replication.replica_manager.manager import ReplicaManager

    class Port(Protocol):
        """What is needed of the broker here."""

        replicas: ReplicaManager

        @property
        def begun_groups(self) -> GroupCoordinator | None: ...


OFFSETS_MAX, BYTES_MAX = 20_000, 4 * 1024 * 1024
AT_ONCE = 100

_OFFSET = Family("kafka_consumergroup_current_offset", GAUGE, "Offset that a group has committed.")
_LAG = Family(
    "kafka_consumergroup_lag", GAUGE, "Committed records that a group has not read, where there is a replica here."
)


class _Told:
    """The lines of one family, within the limits. None is kept: a reader may be slow, and many may ask at once."""

    def __init__(self, replicas: ReplicaManager, family: Family) -> None:
        self._replicas, self._family = replicas, family
        self.left_out = 0
        self._offsets = self._bytes = 0

    def lines(self, group_id: str, topics: TopicOffsets) -> Iterator[str]:
        """Those of one group, in pieces."""
        group = escaped(group_id)
        lines: list[str] = []
        # Copies, because others have turns meanwhile, and of no more than may be told.
        left = OFFSETS_MAX + 1 - self._offsets
        for topic, partitions in list(islice(topics.items(), left)):
            prefix = f'{{consumergroup="{group}",topic="{escaped(topic)}",partition="'
            for index, committed in list(islice(partitions.items(), left)):
                size = len(prefix) + len(f'{index}"}}')
                if self._offsets >= OFFSETS_MAX or self._bytes + size > BYTES_MAX:
                    self.left_out += 1
                    yield "".join(lines)
                    return
                self._offsets += 1
                self._bytes += size
                value = self._value(topic, index, committed.offset)
                if value is not None:
                    lines.append(f'{self._family.name}{prefix}{index}"}} {value}\n')
                if self._offsets % AT_ONCE == 0:
                    yield "".join(lines)
                    lines = []
        yield "".join(lines)

    def _value(self, topic: str, index: int, offset: int) -> int | None:
        if self._family is _OFFSET:
            return offset
        partition = self._replicas.partition(topic, index)
        return None if partition is None else max(0, partition.high_watermark - offset)


def groups(broker: Port, exposition: Exposition) -> Iterator[str]:
    """All of it, in pieces."""
    administration, left_out = None if broker.begun_groups is None else broker.begun_groups.administration, 0
    name = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    count = 0 if administration is None else administration.group_count
    yield exposition.single(name, GAUGE, "Groups that this broker coordinates.", count)
    for family in (_OFFSET, _LAG):
        told = _Told(broker.replicas, family)
        yield exposition.head(family)
        for group_id, topics in () if administration is None else administration.all_committed():
            yield from told.lines(group_id, topics)
        left_out = told.left_out
    explained = "Groups whose offsets are not all told, because there are too many."
    yield exposition.single("ottla_group_offsets_left_out", GAUGE, explained, left_out)
