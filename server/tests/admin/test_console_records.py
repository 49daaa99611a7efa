"""Records in the console: pages by offset and time, searches in bounded steps, and whatever a record may hold."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.console import batches, records
from ottla.server.admin.console.batches import HEADERS_READ_MAX, Filters, Page
from ottla.server.admin.console.cells import HEADERS_SHOWN_MAX, cell, header_cells
from ottla.server.admin.http.routes import Request
from ottla.server.broker import Broker
from ottla.server.tests.console_client import ask, make_topic, request_bytes, running, write
from ottla.wire.checksum import crc32c
from ottla.wire.compression import Compression, compress
from ottla.wire.errors import KafkaError
from ottla.wire.record_encoding import encode_batch, encode_varint
from ottla.wire.records import Record


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


def numbered(first: int, count: int) -> list[Record]:
    return [Record(0, 1000 + each, b"key %d" % each, b"value %d" % each) for each in range(first, first + count)]


def offsets(page: Any) -> list[int]:
    return [each["offset"] for each in page["records"]]


async def test_pages_go_forward_and_back_by_offsets(broker: Broker) -> None:
    await make_topic(broker, "t")
    for first in range(0, 100, 10):
        write(broker, "t", numbered(first, 10), compression=Compression.ZSTD if first % 20 else Compression.NONE)
    newest = (await ask(broker, "/api/records?topic=t&limit=5")).json
    assert (offsets(newest), newest["isAtEnd"], newest["end"]) == ([95, 96, 97, 98, 99], True, 100)
    older = (await ask(broker, "/api/records?topic=t&from=88&until=95&limit=5")).json
    assert (offsets(older), older["next"], older["isAtEnd"]) == ([88, 89, 90, 91, 92], 93, False)
    oldest = (await ask(broker, "/api/records?topic=t&from=earliest&limit=3")).json
    assert offsets(oldest) == [0, 1, 2]
    assert oldest["records"][1]["value"] == {"form": "text", "text": "value 1", "size": 7, "isCut": False}
    beyond = (await ask(broker, "/api/records?topic=t&from=5000")).json
    assert (offsets(beyond), beyond["isAtEnd"]) == ([], True)
    all_of_them = (await ask(broker, "/api/records?topic=t&from=0&limit=200")).json
    assert offsets(all_of_them) == list(range(100))


async def test_a_time_leads_to_the_first_record_that_is_not_older(broker: Broker) -> None:
    await make_topic(broker, "t")
    write(broker, "t", numbered(0, 10))
    write(broker, "t", numbered(10, 10), compression=Compression.GZIP)
    assert offsets((await ask(broker, "/api/records?topic=t&from=time:1013&limit=2")).json) == [13, 14]
    assert offsets((await ask(broker, "/api/records?topic=t&from=time:99999")).json) == []


async def test_a_search_works_in_steps_and_says_where_to_go_on(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "READ_BYTES", 300)
    monkeypatch.setattr(records, "SCANNED_BYTES_MAX", 1000)
    await make_topic(broker, "t")
    for first in range(0, 200, 10):
        write(broker, "t", numbered(first, 10))
    write(broker, "t", [Record(0, 1, b"k", b"v", ((b"Trace", b"NEEDLE"),))])
    begin, steps, found = "earliest", 0, []
    while True:
        page = (await ask(broker, f"/api/records?topic=t&from={begin}&contains=needle")).json
        assert page["scanned"]["bytes"] <= 1000 + 400
        found += offsets(page)
        if page["isAtEnd"]:
            break
        assert page["next"] > page["from"]
        begin, steps = str(page["next"]), steps + 1
    assert found == [200]
    assert steps > 3
    exact = (await ask(broker, "/api/records?topic=t&from=195&contains=Needle")).json
    assert offsets(exact) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("key=key+3", [3]),
        ("value=VALUE", []),
        ("value=value&key=key+1", [1]),
        ("header=trace", [4, 5]),
        ("header=trace=a", [4]),
        ("header=tr=A", []),
        ("header==b", [5]),
        ("contains=trace&since=1005", [5]),
        ("since=1001&before=1003", [1, 2]),
        ("before=0", []),
        ("contains=value&header=none", []),
    ],
)
async def test_records_are_filtered_by_key_value_header_and_time(broker: Broker, query: str, found: list[int]) -> None:
    await make_topic(broker, "t")
    write(broker, "t", numbered(0, 4))
    headers = [((b"trace", b"a"),), ((b"Trace", b"b"), (b"empty", None))]
    write(broker, "t", [Record(0, 1004 + each, None, None, headers[each]) for each in range(2)])
    page = (await ask(broker, f"/api/records?topic=t&from=earliest&{query}")).json
    assert (offsets(page), page["isAtEnd"]) == (found, True)


async def test_only_the_batches_of_a_page_are_read(broker: Broker) -> None:
    await make_topic(broker, "t")
    for each in range(40):
        write(broker, "t", [Record(0, each, None, bytes(50_000))])
    page = (await ask(broker, "/api/records?topic=t&from=20&limit=1")).json
    assert page["scanned"] == {"records": 1, "bytes": pytest.approx(250_000, abs=60_000)}
    assert page["records"][0]["value"] == {"form": "hex", "text": bytes(2048).hex(" "), "size": 50_000, "isCut": True}


async def test_huge_values_and_bombs_are_cut_with_their_size(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "DECODED_BYTES_MAX", 1 << 20)
    await make_topic(broker, "t", max_message_bytes="4000000")
    write(broker, "t", [Record(0, 1, None, b"a" * 3_000_000)])
    write(broker, "t", [Record(0, 1, None, bytes(8_000_000))], compression=Compression.ZSTD)
    write(broker, "t", [Record(0, 1, None, "ä".encode() * 3000)])
    page = (await ask(broker, "/api/records?topic=t&from=0")).json
    assert page["records"][0]["value"] == {"form": "text", "text": "a" * 2048, "size": 3_000_000, "isCut": True}
    assert "more than 1 MiB" in page["records"][1]["batch"]["reason"]
    assert page["records"][2]["value"]["text"] == "ä" * 1024
    more = (await ask(broker, "/api/records?topic=t&from=2&limit=1&cut=6000")).json
    assert more["records"][0]["value"]["isCut"] is False
    monkeypatch.setattr(records, "BATCH_BYTES_MAX", 1 << 20)
    passed = (await ask(broker, "/api/records?topic=t&from=0")).json
    assert passed["records"][0]["batch"]["size"] > 3_000_000
    assert offsets(passed) == [0, 1, 2]
    assert (await ask(broker, "/api/records?topic=t&limit=200&cut=262144")).status == 400


async def test_what_cannot_be_answered_is_refused(broker: Broker) -> None:
    await make_topic(broker, "t")
    for query, status in {
        "topic=none": 404,
        "topic=t&partition=1": 404,
        "topic=t&partition=-1": 400,
        "topic=t&from=sometime": 400,
        "topic=t&from=time:x": 400,
        "topic=t&limit=1000": 400,
        "partition=0": 400,
    }.items():
        assert (await ask(broker, f"/api/records?{query}")).status == status, query
    assert (await ask(broker, "/api/live?topic=none")).status == 404


async def test_live_records_come_and_what_is_too_much_is_counted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LIVE_READERS_MAX", 1)
    await make_topic(broker, "t", 2)
    write(broker, "t", numbered(0, 3))
    assert broker.http_address is not None
    with trio.fail_after(60):
        async with await trio.open_tcp_stream(*broker.http_address) as stream:
            await stream.send_all(request_bytes("/api/live?topic=t"))
            received = bytearray()

            async def until(count: int) -> list[Any]:
                while received.count(b"data: ") < count or not received.endswith(b"\n\n\r\n"):
                    received.extend(await stream.receive_some())
                return [json.loads(line[6:]) for line in bytes(received).split(b"\n") if line.startswith(b"data: ")]

            while b":\n\n" not in received:
                received.extend(await stream.receive_some())
            assert (await ask(broker, "/api/live?topic=t")).status == 429
            write(broker, "t", numbered(3, 2), partition=1)
            [first] = await until(1)
            assert (first["partition"], offsets(first), first["skipped"]) == (1, [0, 1], 0)
            write(broker, "t", numbered(0, 100))
            news = (await until(2))[1]
            assert (offsets(news), news["skipped"]) == (list(range(63, 103)), 60)


async def test_live_records_are_filtered_beyond_those_that_would_be_shown(broker: Broker) -> None:
    await make_topic(broker, "t")
    request = Request(method="GET", path="/api/live", query={"topic": "t", "key": "key 7"})
    async with aclosing((await records.Records(broker).live(request)).body) as events:  # type: ignore[type-var]
        assert await anext(events) == b":\n\n"
        write(broker, "t", numbered(0, 100))
        with trio.fail_after(60):
            news = json.loads((await anext(events))[len(b"data: ") :])
    assert (offsets(news), news["skipped"]) == ([7, *range(70, 80)], 0)


def test_a_page_becomes_json_record_by_record(monkeypatch: pytest.MonkeyPatch) -> None:
    page = {"from": 1, "records": [{"text": "\x01" * 1000}, {"text": "\x02" * 1000}, {}], "next": None}
    whole, turns = json.dumps(page, separators=(",", ":")), []
    monkeypatch.setattr(records, "paced", lambda: lambda: turns.append(len(turns)))
    for told in (page, page | {"records": []}, {"ended": "x"}):
        assert json.loads(records._encoded(told)) == told
    assert len(records._encoded(page)) == len(whole)
    assert len(turns) == 2 * 3


async def test_live_views_that_begin_together_are_not_more_than_there_may_be(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LIVE_READERS_MAX", 1)
    await make_topic(broker, "t")
    views, request = records.Records(broker), Request(method="GET", path="/api/live", query={"topic": "t"})
    first, second = (await views.live(request)).body, (await views.live(request)).body
    assert not isinstance(first, bytes) and not isinstance(second, bytes)
    async with aclosing(first), aclosing(second):
        assert await anext(first) == b":\n\n"
        assert b"too many" in await anext(second)
        assert [each async for each in second] == []
    async with aclosing((await views.live(request)).body) as third:  # type: ignore[type-var]
        assert await anext(third) == b":\n\n"


# ---------------------------------------------------------------------- cells and batches


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (b'{"n": 12345678901234567890}', "json", '{"n": 12345678901234567890}'),
        (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
        (b"\x1b[31mred", "text", "\x1b[31mred"),
        (b"{not json", "text", "{not json"),
        (b"[" * 60_000, "text", None),
        (b"\xff\xfe", "hex", "ff fe"),
        (b"a\0b", "hex", "61 00 62"),
        (b"", "text", ""),
    ],
)
def test_a_value_is_shown_as_what_it_looks_like(value: bytes, form: str, text: str | None) -> None:
    shown = cell(value, 1 << 20)
    assert shown is not None
    assert shown["form"] == form
    assert text is None or shown["text"] == text
    assert cell(value, 10, "hex")["form"] == "hex"  # type: ignore[index]


@given(
    value=st.one_of(st.none(), st.binary(max_size=300), st.text(max_size=100).map(str.encode)), cut=st.integers(1, 200)
)
def test_any_value_can_be_shown_in_bounds(value: bytes | None, cut: int) -> None:
    shown = cell(value, cut)
    if value is None:
        assert shown is None
        return
    assert shown is not None
    assert (shown["size"], shown["isCut"]) == (len(value), len(value) > cut)
    assert len(shown["text"]) <= 3 * cut
    json.dumps(shown).encode()
    if not shown["isCut"] and shown["form"] != "hex":
        assert shown["text"].encode() == value


def test_of_many_headers_the_first_are_shown() -> None:
    assert len(header_cells(((b"k", None),) * 1000)) == HEADERS_SHOWN_MAX


def flipped(batch: bytes, place: int, bit: int) -> bytes:
    broken = bytearray(batch)
    broken[place % len(broken)] ^= 1 << bit
    return bytes(broken)


@given(
    codec=st.sampled_from([Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD, Compression.SNAPPY]),
    place=st.integers(0, 1 << 16),
    bit=st.integers(0, 7),
    count=st.integers(1, 20),
)
def test_damaged_batches_are_passed_over_or_refused(codec: Compression, place: int, bit: int, count: int) -> None:
    damaged = flipped(encode_batch(numbered(0, count), compression=codec), place, bit)
    after = encode_batch(numbered(count, 1), base_offset=count)
    page = Page(0, count + 1, 100, 100)
    with contextlib.suppress(KafkaError):
        page.take(damaged + after)
    assert page.position <= count + 1
    json.dumps(page.records).encode()


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    page = Page(0, 1 << 40, 10, 100)
    with contextlib.suppress(KafkaError):
        page.take(data)
    assert len(page.records) <= 10


def test_a_match_is_found_wherever_it_lies_in_a_long_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PIECE_BYTES", 7)
    value = os.urandom(5).hex().encode() + b"Needle" + b"x" * 9
    for shift in range(8):
        page = Page(0, 1, 1, 100, filters=Filters(b"needle"))
        page.take(encode_batch([Record(0, 1, None, b"-" * shift + value)]))
        assert len(page.records) == 1


def with_headers(count: int) -> bytes:
    """A batch of one record with very many headers of two bytes, compressed to nearly nothing."""
    body = b"\0\0\0\1\1" + encode_varint(count) + b"\0\1" * count
    area = bytes(compress(Compression.ZSTD, encode_varint(len(body)) + body))
    checked = struct.pack(">hiqqqhii", Compression.ZSTD, 0, 1, 1, -1, -1, -1, 1) + area
    return struct.pack(">qiibI", 0, len(checked) + 9, 0, 2, crc32c(checked)) + checked


def test_a_record_of_a_million_headers_takes_little_memory() -> None:
    plain = encode_batch([Record(0, 2, b"next", None)], base_offset=1)
    page, searched = Page(0, 2, 10, 100), Page(0, 2, 10, 100, filters=Filters(b"next"))
    batch = with_headers(500_000)
    assert len(batch) < 1000
    tracemalloc.start()
    try:
        page.take(batch + plain)
        searched.take(batch + plain)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A megabyte of records, in two copies while they are decompressed. All headers would be 40 MB.
    assert most < 6_000_000
    assert [each["offset"] for each in page.records] == [0, 1]
    assert page.records[0]["headerCount"] == HEADERS_READ_MAX
    assert [each["offset"] for each in searched.records] == [1]


def test_headers_count_as_work() -> None:
    page = Page(0, 1000, 1000, 10, filters=Filters(b"x"))
    batch = bytearray(with_headers(2_000))
    for offset in range(1000):
        batch[:8] = offset.to_bytes(8)
        page.take(bytes(batch))
    assert page.scanned == -(-batches.RECORDS_SCANNED_MAX // (HEADERS_READ_MAX + 1))


async def test_an_answer_decompresses_so_much_and_no_more(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "DECODED_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(batches, "DECODED_IN_ALL_MAX", 3 << 20)
    await make_topic(broker, "t")
    for _ in range(7):
        write(broker, "t", [Record(0, 1, None, bytes(1_000_000))] * 2, compression=Compression.ZSTD)
    for _ in range(7):
        write(broker, "t", [Record(0, 1, None, bytes(900_000))], compression=Compression.ZSTD)
    begin, scanned = 0, []
    while begin < 21:
        page = (await ask(broker, f"/api/records?topic=t&from={begin}&contains=needle")).json
        begin = page["next"]
        scanned.append(page["scanned"]["records"])
    # Those that would become too large cost as much as those that are looked at.
    assert scanned == [3, 3, 4, 4]
