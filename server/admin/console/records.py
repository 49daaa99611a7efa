"""Records of a partition: a page from an offset or a time on, the newest records, a text search, or a live view.

Work: the index says where to read, and no more batches are read than the page needs: READ_BYTES at a time, or one batch
that is longer. The event loop only looks up the batches' positions; a thread reads, decompresses, searches and formats
them. A request looks at SCANNED_BYTES_MAX at most (DECODED_IN_ALL_MAX after decompression), and then answers with the
records found so far and `next`, the offset to go on from.

All records below the high watermark are shown, including markers and records of open and aborted transactions. A follower
shows its own copy.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.log.storage import FileRegion
from ottla.replication.log.time_search import TimestampSearch
from ottla.server.admin.console import requests
from ottla.server.admin.console.batches import EVERYTHING, Filters, Page
from ottla.server.admin.http.routes import EVENT_STREAM, Refused, Request, Response
from ottla.server.api.fetch.reading import each_warmed
from ottla.server.serving_state import NotServing
from ottla.wire.errors import KafkaError
from ottla.wire.records import RECORDS_OFFSET, read_header
from ottla.wire.time_slice import paced

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.replication.partition.reading import ReadInfo
    from ottla.server.admin.console.avro.registry import Framed, Registry
    from ottla.server.broker import Broker
    from ottla.wire.records import BatchHeader

READ_BYTES = 256 * 1024
BATCH_BYTES_MAX = 16 * 1024 * 1024  # a longer one is shown as a whole, without its records
SCANNED_BYTES_MAX = 8 * 1024 * 1024
LIMIT_DEFAULT, LIMIT_MAX = 50, 200
CUT_DEFAULT, CUT_MAX, CUT_IN_ALL = 2 * 1024, 256 * 1024, 1024 * 1024

PAGES_AT_ONCE = 8

LIVE_PARTITIONS_MAX, LIVE_READERS_MAX, LIVE_RECORDS_MAX, LIVE_SEARCHED_MAX = 64, 16, 40, 2_000
LIVE_PERIOD_S, LIVE_SIGN_S = 0.25, 15.0

_threads = trio.CapacityLimiter(2)


class Records:
    """Handlers of the console's requests for records."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.registry = _registry(broker)
        self._live_readers = 0
        self._pages = trio.CapacityLimiter(PAGES_AT_ONCE)  # each is some megabytes until it is sent

    # ------------------------------------------------------------------ pages

    async def page(self, request: Request) -> bytes:
        """Return a page of records. `from`: earliest, latest, an offset, or `time:` with ms. `until`: offset to stop at.

        `contains`, `key`, `value` and `header` (NAME, or NAME=TEXT) are texts that records have to contain. `since` and
        `before` are times in ms.
        """
        topic, index = requests.text(request, "topic"), requests.number(request, "partition", 0, 0, (1 << 31) - 1)
        limit = requests.number(request, "limit", LIMIT_DEFAULT, 1, LIMIT_MAX)
        cut = requests.number(request, "cut", CUT_DEFAULT, 1, CUT_MAX)
        if limit * cut > CUT_IN_ALL:
            raise Refused(400, f"limit times cut may be {CUT_IN_ALL} at most.")
        form = requests.text(request, "form", "auto")
        filters = _filters(request)
        async with self._pages:
            start = await self._start(request, topic, index, limit)
            partition = self._broker.partition(topic, index)
            until = min(requests.number(request, "until", partition.high_watermark), partition.high_watermark)
            page = Page(start, until, limit, cut, form, self._framed(cut), filters)
            bytes_read = await self._shown(topic, index, page)
            result = self._result(topic, index, page, start, bytes_read)
            return await trio.to_thread.run_sync(_encoded, result, limiter=_threads)

    def _result(self, topic: str, index: int, page: Page, start: int, bytes_read: int) -> dict[str, Any]:
        partition = self._broker.partition(topic, index)
        return {
            "from": start,
            "records": page.records,
            "next": page.position,
            "isAtEnd": page.position >= page.until,
            "scanned": {"records": page.scanned, "bytes": bytes_read},
            "start": partition.log_start_offset,
            "end": partition.high_watermark,
        }

    async def _start(self, request: Request, topic: str, index: int, limit: int) -> int:
        """Convert the request's parameter `from` to an offset that exists in the log."""
        begin = requests.text(request, "from", "latest")
        partition = self._broker.partition(topic, index)
        if begin == "earliest":
            wanted = partition.log_start_offset
        elif begin == "latest":
            wanted = partition.high_watermark - limit
        elif begin.startswith("time:"):
            given = Request(method="GET", path="", query={"from": begin[len("time:") :]})
            wanted = await self.at_time(topic, index, requests.number(given, "from", None))
            partition = self._broker.partition(topic, index)
        else:
            wanted = requests.number(request, "from", None)
        return min(max(wanted, partition.log_start_offset), partition.high_watermark)

    async def at_time(self, topic: str, index: int, timestamp: int) -> int:
        """Return the offset of the first record at or after `timestamp`; the high watermark if there is none."""
        search: TimestampSearch | None = None
        while True:
            # After each run in a thread the partition is looked up again, because it may have moved.
            partition = self._broker.partition(topic, index)
            found = partition.list_offset(timestamp, only_from_leader=False, search=search)
            if not isinstance(found, TimestampSearch):
                return found.offset if found.offset >= 0 else partition.high_watermark
            search = found
            await trio.to_thread.run_sync(search.run, limiter=_threads)

    def _framed(self, cut: int) -> Framed | None:
        if self.registry is None:
            return None
        from ottla.server.admin.console.avro.registry import Framed

        return Framed(cut)

    async def _shown(self, topic: str, index: int, page: Page) -> int:
        """Fill the page, and decode values whose schemas are known; return the number of bytes read."""
        bytes_read = await self.fill(topic, index, page)
        if page.framed is not None and self.registry is not None:
            await page.framed.decode(self.registry)
        return bytes_read

    async def fill(self, topic: str, index: int, page: Page) -> int:
        """Read until the page is full or SCANNED_BYTES_MAX bytes are read; return the number of bytes read."""
        bytes_read = 0
        while not page.is_done and bytes_read < SCANNED_BYTES_MAX:
            partition, read = await self._read(topic, index, page.position)
            # Retention may have gone on meanwhile.
            page.position = max(page.position, partition.log_start_offset)
            if not len(read.records):
                # Compaction left nothing before the end of what can be read.
                page.position = page.until
                break
            bytes_read += min(len(read.records), BATCH_BYTES_MAX)
            before = page.position
            try:
                await trio.to_thread.run_sync(_take, page, read.records, limiter=_threads)
            except OSError as error:
                raise partition.log.storage_error(error) from error
            # What was read ends before the page does: a gap that compaction left.
            if page.position == before and not page.is_done:
                page.position = page.until
        return bytes_read

    async def _read(self, topic: str, index: int, position: int) -> tuple[Partition, ReadInfo]:
        """Read batches from the offset `position` on. May load the log's index in a thread. Raises KafkaError."""
        found: list[tuple[Partition, ReadInfo]] = []

        def read(_: None) -> None:
            partition = self._broker.partition(topic, index)
            start = min(max(position, partition.log_start_offset), partition.high_watermark)
            found.append(
                (partition, partition.read(start, READ_BYTES, at_least_one_batch=True, only_from_leader=False))
            )

        await each_warmed([None], read)
        return found[-1]

    # ------------------------------------------------------------------ live

    async def live(self, request: Request) -> Response:
        """Stream new records of one partition, or of a topic's first partitions on this broker. Filters: as in `page`."""
        topic = requests.text(request, "topic")
        wanted = requests.number(request, "partition", -1, 0, (1 << 31) - 1)
        indexes = [wanted] if wanted >= 0 else [each.index for each in self._broker.replicas.partitions_of(topic)]
        if self._live_readers >= LIVE_READERS_MAX:
            raise Refused(429, f"There are {LIVE_READERS_MAX} live views already.")
        positions = {}
        for index in sorted(indexes)[:LIVE_PARTITIONS_MAX]:
            positions[index] = self._broker.partition(topic, index).high_watermark
        if not positions:
            raise Refused(404, "This broker holds no partition of that topic.")
        return Response(self._events(topic, positions, _filters(request)), content_type=EVENT_STREAM, is_lasting=True)

    async def _events(self, topic: str, positions: dict[int, int], filters: Filters) -> AsyncGenerator[bytes, None]:
        """Yield new records, polled four times a second so that producers pay nothing. Excess records are skipped."""
        # Asked again: between the question and here the head was sent, which a slow reader may hold up.
        if self._live_readers >= LIVE_READERS_MAX:
            yield b"data: " + _encoded({"ended": "there are too many live views"}) + b"\n\n"
            return
        self._live_readers += 1
        try:
            yield b":\n\n"
            last_sign = trio.current_time()
            while True:
                for index, position in list(positions.items()):
                    if self._broker.partition(topic, index).high_watermark > position:
                        with self._broker.serving_state.work():
                            news = await self._news(topic, index, positions, filters)
                        yield news
                        last_sign = trio.current_time()
                if trio.current_time() - last_sign > LIVE_SIGN_S:
                    yield b":\n\n"
                    last_sign = trio.current_time()
                await trio.sleep(LIVE_PERIOD_S)
        except NotServing:
            yield b"data: " + _encoded({"ended": "the broker stops"}) + b"\n\n"
        except (Refused, KafkaError) as error:
            yield b"data: " + _encoded({"ended": str(error)}) + b"\n\n"
        finally:
            self._live_readers -= 1

    async def _news(self, topic: str, index: int, positions: dict[int, int], filters: Filters) -> bytes:
        end = self._broker.partition(topic, index).high_watermark
        start = max(positions[index], end - (LIVE_RECORDS_MAX if filters is EVERYTHING else LIVE_SEARCHED_MAX))
        page = Page(start, end, LIVE_RECORDS_MAX, CUT_DEFAULT, framed=self._framed(CUT_DEFAULT), filters=filters)
        await self._shown(topic, index, page)
        skipped, positions[index] = start - positions[index], max(page.position, start)
        result = {"partition": index, "records": page.records, "skipped": skipped}
        return b"data: " + await trio.to_thread.run_sync(_encoded, result, limiter=_threads) + b"\n\n"


def _filters(request: Request) -> Filters:
    contains, key, value, header = (
        requests.text(request, each, "").encode("utf-8", "replace") for each in ("contains", "key", "value", "header")
    )
    name, _, of = header.partition(b"=")
    since, before = (requests.number(request, each, -1) for each in ("since", "before"))
    found = Filters(contains, key, value, (name, of), since, before)
    return EVERYTHING if found == EVERYTHING else found


def _registry(broker: Broker) -> Registry | None:
    config = broker.config.http
    if config.http_console_schema_registry is None:
        return None
    from ottla.server.admin.console.avro.registry import Registry

    return Registry(config.http_console_schema_registry, config.http_console_schema_registry_user_info)


def _take(page: Page, records: FileRegion | bytes) -> None:
    """Read batches into the page; runs in a thread. If a batch is too long, only its header is shown."""
    if isinstance(records, FileRegion) and len(records) > BATCH_BYTES_MAX:
        header: BatchHeader = read_header(records.file.read_at(records.position, RECORDS_OFFSET))
        page.show_whole(header, f"it is longer than {BATCH_BYTES_MAX >> 20} MiB")
        return
    page.take(records.read() if isinstance(records, FileRegion) else records)


def _encoded(result: Mapping[str, Any]) -> bytes:
    """Encode as JSON, record by record: a page may reach 9 MB, and the json module blocks all other threads."""
    give_way, records = paced(), []
    for each in result.get("records", ()):
        records.append(_json(each))
        give_way()
    rest = _json({name: value for name, value in result.items() if name != "records"})
    return b"".join([rest[:-1], b',"records":[', b",".join(records), b"]}"]) if "records" in result else rest


def _json(result: Any) -> bytes:
    # A lone surrogate cannot come out of UTF-8, and everything beyond ASCII is escaped.
    return json.dumps(result, separators=(",", ":")).encode()
