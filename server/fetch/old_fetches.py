"""Fetches of clients that know no record batches: what was read is converted down (`down_conversion.py`)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.log.storage import FileRegion, NotCached, only_cached
from ottla.server.fetch.answers import PartitionRead, failed_read
from ottla.server.fetch.down_conversion import Conversion, DownConversion
from ottla.server.net.turns import PARTITIONS_PER_TURN
from ottla.wire.errors import KafkaError
from ottla.wire.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from ottla.replication.partition.fetch_session import FetchContext
    from ottla.server.produce.leader_hints import Port as HintsPort

MAGIC_1_SINCE = 2

_conversions_in_threads = trio.CapacityLimiter(1)
"""One, because the records of a batch may take hundreds of megabytes."""


class ConvertsDown:
    """A base class of `Reading`, as `KeepsFewFilesOpen` is."""

    _broker: HintsPort
    _version: int
    _bytes_max: int
    _opened: FetchContext
    _reads: list[PartitionRead]

    if TYPE_CHECKING:

        @property
        def _is_final(self) -> bool: ...

        def read_all(self) -> None: ...

        async def _read_in_turns(self) -> None: ...

        async def _wait_in_turns(self) -> None: ...

        def _response(self) -> FetchResponse: ...

        async def _response_in_turns(self) -> FetchResponse: ...

    def converted(self) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
        """Answer a client that knows no batches: at once where that is little work, else the connection waits."""
        if len(self._opened.targets) > PARTITIONS_PER_TURN:
            return self._convert_later(is_read=False)
        try:
            with only_cached:
                self.read_all()
                if self._is_final:
                    conversion, places = self._conversion()
                    if conversion.is_little():
                        conversion.run()
                        self._take_converted(places)
                        return self._response()
        except NotCached:
            return self._convert_later(is_read=False)
        return self._convert_later(is_read=True)

    async def _convert_later(self, *, is_read: bool) -> FetchResponse:
        if not is_read:
            await self._read_in_turns()
        await self._wait_in_turns()
        conversion, places = self._conversion()
        await trio.to_thread.run_sync(conversion.run, limiter=_conversions_in_threads)
        self._take_converted(places)
        return await self._response_in_turns()

    def _conversion(self) -> tuple[DownConversion, dict[int, Conversion]]:
        """What is to be converted, also by place in `_reads`."""
        conversion = DownConversion(0 if self._version < MAGIC_1_SINCE else 1, self._bytes_max)
        places: dict[int, Conversion] = {}
        for place, read in enumerate(self._reads):
            region: Any = read.data.records
            if isinstance(region, FileRegion) and read.partition is not None:
                asked, log = read.target.asked, read.partition.log
                each = Conversion(log, read.layout, region, asked.fetch_offset, asked.partition_max_bytes)
                conversion.add(each)
                places[place] = each
        return conversion, places

    def _take_converted(self, places: dict[int, Conversion]) -> None:
        for place, conversion in places.items():
            read = self._reads[place]
            try:
                read.data.records = conversion.finish()
            except KafkaError as error:
                refused = failed_read(self._broker, self._version, read.target, error.code)
                refused.records = None
                self._reads[place] = read._replace(data=refused)
