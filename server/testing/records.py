"""Records of a lab's Kafka, read as a consumer reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.testing.errors import LabError
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition

READ_BYTES = 1 << 20


class Record(NamedTuple):
    """A record of a topic. `timestamp` is in ms since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def json(self) -> Any:
        """Parse the value as JSON. Raises LabError if it is none."""
        try:
            return json.loads(self.value or b"")
        except ValueError as error:
            place = f"{self.topic}-{self.partition} at offset {self.offset}"
            raise LabError(f"The value of {place} is no JSON: {error}.") from None


def read(leading: Partition, topic: str, partition: int, read_committed: bool) -> Iterator[Record]:
    """Yield the records of a partition that its leader lets consumers read, from the first one on."""
    offset = leading.leading_log().log_start_offset
    while True:
        found = leading.read(offset, READ_BYTES, read_committed=read_committed, at_least_one_batch=True)
        data = found.records if isinstance(found.records, bytes) else found.records.read()
        aborted = sorted(found.aborted_transactions or (), key=attrgetter("first_offset"))
        left_out: set[int] = set()
        next_offset = offset
        for header, start, end in iter_batches(data):
            next_offset = header.next_offset
            while aborted and aborted[0].first_offset < next_offset:
                left_out.add(aborted.pop(0).producer_id)
            if header.is_control:
                left_out.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in left_out):
                for each in decode_records(data[start:end]):
                    if each.offset >= offset:
                        headers = tuple((name.decode("utf-8", "replace"), value) for name, value in each.headers)
                        yield Record(topic, partition, each.offset, each.timestamp, each.key, each.value, headers)
        if next_offset == offset:
            return
        offset = next_offset
