"""A partition as any Kafka shows it to clients: the view that `fate.py` asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.server.cli.client.cluster import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    Cluster,
    Partition,
    leader_of_each,
    offsets_at,
    only,
)
from ottla.server.cli.client.configs import TOPIC, Resource, settings_of
from ottla.server.cli.client.output import RequestFailed
from ottla.server.cli.client.transactions import list_transactions, open_in
from ottla.server.cli.inspection.fate import SETTINGS, Aborted, Offsets, OpenTransaction
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from ottla.server.cli.inspection.happenings import Told

READ_BYTES = 4 << 20
READ_UNCOMMITTED = 0
_NAMES_MAX_VERSION = 12  # of Fetch: later ones name topics by their ids


class ClusterView:
    """One partition of a cluster of any make. `told`: what Ottla's brokers tell over HTTP."""

    def __init__(self, cluster: Cluster, place: Partition, told: Told) -> None:
        self._cluster, self._told = cluster, told
        self.topic, self.partition = place

    def partition_count(self) -> int | None:
        topic = only(self._cluster.metadata([self.topic]).topics, f"topic {self.topic}")
        if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            return None
        self._cluster.check(f"topic {self.topic}", topic.error_code)
        return len(topic.partitions)

    def offsets(self) -> Offsets:
        return Offsets(self._offset(EARLIEST), self._offset(LATEST), self._offset(LATEST, READ_COMMITTED))

    def _offset(self, timestamp: int, isolation: int = READ_UNCOMMITTED) -> int:
        found = offsets_at(self._cluster, {self.topic: [self.partition]}, timestamp, isolation=isolation)
        return found[self.topic, self.partition]

    def log_end_offset(self) -> int | None:
        return self._told.log_end_offset

    def read(self, offset: int) -> bytes:
        records = self._fetched(offset, READ_UNCOMMITTED).records
        return b"" if records is None else bytes(records)

    def aborted(self, offset: int) -> Sequence[Aborted]:
        found = self._fetched(offset, READ_COMMITTED).aborted_transactions or ()
        return [Aborted(each.producer_id, each.first_offset) for each in found]

    def _fetched(self, offset: int, isolation: int) -> Any:
        wanted = FetchPartition(partition=self.partition, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=READ_BYTES,
            isolation_level=isolation,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        what = f"partition {self.topic}-{self.partition}"

        def ask() -> Any:
            [leader] = leader_of_each(self._cluster, [(self.topic, self.partition)]).values()
            answer = self._cluster.broker(leader).ask(request, at_most=_NAMES_MAX_VERSION)
            self._cluster.check(what, answer.error_code)
            found = only(only(answer.responses, what).partitions, what)
            self._cluster.check(what, found.error_code)
            return found

        return self._cluster.patiently(ask)

    def open_transactions(self) -> Sequence[OpenTransaction]:
        try:
            found = open_in(self._cluster, [(self.topic, self.partition)])
        except RequestFailed:  # a broker before Kafka 2.8 does not know the request, and a principal may lack the right
            return []
        return [OpenTransaction(each.producer_id, each.start_offset, each.last_ms) for each in found]

    def transactional_id(self, producer_id: int) -> str | None:
        try:
            found = list_transactions(self._cluster, producer_ids=[producer_id])
        except RequestFailed:
            return None
        return found[0].transactional_id if found else None

    def settings(self) -> Mapping[str, str | None]:
        return self._settings

    @cached_property
    def _settings(self) -> Mapping[str, str | None]:
        try:
            found = settings_of(self._cluster, Resource(TOPIC, self.topic), SETTINGS, with_origins=False)
        except RequestFailed:  # a principal may read records without DescribeConfigs
            return {}
        return {each.name: each.value for each in found}

    def happenings(self) -> Iterable[Any]:
        return self._told.happenings
