"""Fetches of clients that know no record batches: what was read is converted down (`down_conversion.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.log.storage import FileRegion, NotCached, only_cached
from ottla.server.fetch.answering import response_in_slices, response_to
from ottla.server.fetch.down_conversion import Conversion, DownConversion
from ottla.server.fetch.partition_answers import failed_read
from ottla.server.fetch.waiting import wait_in_slices
from ottla.server.net.sliced_work import PARTITIONS_PER_SLICE
from ottla.wire.answers import Worked
from ottla.wire.errors import KafkaError
from ottla.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from ottla.server.fetch.reading import Reading

MAGIC_1_SINCE = 2

_conversions_in_threads = trio.CapacityLimiter(1)
"""One, because the records of a batch may take hundreds of megabytes."""


def converted(reading: Reading) -> Worked[FetchResponse]:
    """Answer a client that knows no batches: at once where that is little work, else the connection waits."""
    if len(reading.opened.targets) > PARTITIONS_PER_SLICE:
        return _convert_later(reading, is_read=False)
    try:
        with only_cached:
            reading.read_all()
            if reading.is_final:
                conversion, places = _conversion(reading)
                # A hop to a thread would cost more than to convert a few small records.
                if conversion.is_little():
                    conversion.run()
                    _take_converted(reading, places)
                    return response_to(reading)
    except NotCached:
        return _convert_later(reading, is_read=False)
    # All was read, so nothing is read again: the fetch waits, or there is only too much to convert here.
    return _convert_later(reading, is_read=True)


async def _convert_later(reading: Reading, *, is_read: bool) -> FetchResponse:
    if not is_read:
        await reading.read_in_slices()
    await wait_in_slices(reading)
    conversion, places = _conversion(reading)
    await trio.to_thread.run_sync(conversion.run, limiter=_conversions_in_threads)
    _take_converted(reading, places)
    return await response_in_slices(reading)


def _conversion(reading: Reading) -> tuple[DownConversion, dict[int, Conversion]]:
    """What is to be converted, also by place among the reads."""
    conversion = DownConversion(0 if reading.reader.version < MAGIC_1_SINCE else 1, reading.bytes_max)
    places: dict[int, Conversion] = {}
    for place, read in enumerate(reading.reads):
        region: Any = read.data.records
        if isinstance(region, FileRegion) and read.partition is not None:
            asked, log = read.target.asked, read.partition.log
            each = Conversion(log, read.layout, region, asked.fetch_offset, asked.partition_max_bytes)
            conversion.add(each)
            places[place] = each
    return conversion, places


def _take_converted(reading: Reading, places: dict[int, Conversion]) -> None:
    for place, conversion in places.items():
        read = reading.reads[place]
        try:
            read.data.records = conversion.finish()
        except KafkaError as error:
            # A partition that cannot be converted fails alone. The others keep what they have.
            refused = failed_read(reading.reader.broker, reading.reader.version, read.target, error.code)
            refused.records = None
            reading.reads[place] = read._replace(data=refused)
