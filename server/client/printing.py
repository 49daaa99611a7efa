"""Prints batches in the form that was chosen: whole ones in one go where that gives the same, else record by record."""

from __future__ import annotations

from ottla.server.client.batch_printers import PADDING, BatchPrinter
from ottla.server.client.fetching import Batch, corrupt
from ottla.server.client.formats import Place, PrintRecord
from ottla.wire.errors import KafkaError
from ottla.wire.records import MAGIC_V2, check_records, decode_records, records_area


class Printing:
    """What has been printed so far, of at most `count_max` records (None: of all)."""

    def __init__(self, print_record: PrintRecord, print_batch: BatchPrinter | None, count_max: int | None) -> None:
        self.count = 0
        self._print_record = print_record
        self._print_batch = print_batch
        self._count_max = count_max

    @property
    def is_done(self) -> bool:
        return self._count_max is not None and self.count >= self._count_max

    def printed(self, batch: Batch, before: int | None) -> bytes:
        """The records of a batch that were asked for and lie before this offset. AskingFailed if they cannot be read."""
        try:
            if self._print_batch is not None and self._is_wanted_whole(batch, before):
                return self._whole(batch, self._print_batch)
            return self._one_by_one(batch, before)
        except KafkaError as error:
            raise corrupt(batch.place, error) from None

    def _is_wanted_whole(self, batch: Batch, before: int | None) -> bool:
        header = batch.header
        return (
            header.magic == MAGIC_V2
            and header.base_offset >= batch.first_offset
            and (before is None or header.next_offset <= before)
            and (self._count_max is None or self.count + header.records_count <= self._count_max)
        )

    def _whole(self, batch: Batch, print_batch: BatchPrinter) -> bytes:
        header = batch.header
        area = b"".join((records_area(batch.buffer, header, batch.start), PADDING))
        if header.records_count == 0:  # compaction has left the batch alone
            return b""
        summary = check_records(area, header.records_count, 0, len(area) - len(PADDING))
        self.count += header.records_count
        topic, partition = batch.place
        append_time = header.max_timestamp if header.is_log_append_time else None
        return print_batch.of(summary, header.records_count)(
            area,
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            append_time,
            topic.encode(),
            b"%d" % partition,
        )

    def _one_by_one(self, batch: Batch, before: int | None) -> bytes:
        place = Place(*batch.place, batch.broker, batch.header.is_log_append_time)
        parts = []
        for record in decode_records(batch.buffer, batch.start, header=batch.header):
            if record.offset < batch.first_offset or (before is not None and record.offset >= before):
                continue
            if self.is_done:
                break
            parts.append(self._print_record(record, place))
            self.count += 1
        return b"".join(parts)
