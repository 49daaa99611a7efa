"""Groups that this broker coordinates, and how far behind they are, under the names of kafka_exporter.

The lag is told where this broker has a replica of the partition. Elsewhere the committed offset is told alone, and a query
takes the end from the leader: `max by (topic, partition) (kafka_log_log_logendoffset)`. Clients make groups and commit what they
like, so there is an end: OFFSETS_MAX offsets, BYTES_MAX of their labels. `ottla_group_offsets_left_out` says how many groups are
not told whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from ottla.server.http.metrics.exposition import GAUGE, Exposition, Family, escaped

if TYPE_CHECKING:
    from ottla.groupcoord.groups.offsets.committed import TopicOffsets
    from ottla.groupcoord.service import GroupCoordinator
    from ottla.replication.hosting.manager import ReplicaManager

    class Port(Protocol):
        """What is needed of the broker here."""

        groups: GroupCoordinator
        replicas: ReplicaManager


OFFSETS_MAX, BYTES_MAX = 20_000, 4 * 1024 * 1024
AT_ONCE = 100

_OFFSET = Family("kafka_consumergroup_current_offset", GAUGE, "Offset that a group has committed.")
_LAG = Family("kafka_consumergroup_lag", GAUGE, "Committed records that a group has not read, where there is a replica here.")


class _Told:
    """The lines about committed offsets, within the limits."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self.offsets: list[str] = []
        self.lags: list[str] = []
        self.left_out = 0
        self._bytes = 0

    def add(self, group_id: str, topics: TopicOffsets) -> Iterator[None]:
        group = escaped(group_id)
        for topic, partitions in list(topics.items()):
            for number, (index, committed) in enumerate(list(partitions.items()), 1):
                labels = f'{{consumergroup="{group}",topic="{escaped(topic)}",partition="{index}"}}'
                if len(self.offsets) >= OFFSETS_MAX or self._bytes + len(labels) > BYTES_MAX:
                    self.left_out += 1
                    return
                self._bytes += len(labels)
                self.offsets.append(f"{_OFFSET.name}{labels} {committed.offset}\n")
                partition = self._replicas.partition(topic, index)
                if partition is not None:
                    lag = max(0, partition.high_watermark - committed.offset)
                    self.lags.append(f"{_LAG.name}{labels} {lag}\n")
                if number % AT_ONCE == 0:
                    yield


def groups(broker: Port, exposition: Exposition) -> Iterator[str]:
    """All of it, in pieces."""
    administration, told = broker.groups.administration, _Told(broker.replicas)
    name = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    yield exposition.single(name, GAUGE, "Groups that this broker coordinates.", administration.group_count)
    for group_id, topics in administration.all_committed():
        for _ in told.add(group_id, topics):
            yield ""
        yield ""
    for family, lines in ((_OFFSET, told.offsets), (_LAG, told.lags)):
        yield exposition.head(family)
        for start in range(0, len(lines), AT_ONCE):
            yield "".join(lines[start : start + AT_ONCE])
    explained = "Groups whose offsets are not all told, because there are too many."
    yield exposition.single("ottla_group_offsets_left_out", GAUGE, explained, told.left_out)
