"""What the Produce handler decides before a partition is asked, each as Apache Kafka 4 (before v3: 3.9) decides it."""

from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from ottla.server.api.handlers.produce import produce
from ottla.server.api.produce import appending
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_topic_handlers import creatable, create
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

GOOD = encode_batch([Record(0, 1, None, b"v")])


def with_magic(magic: int) -> bytes:
    return GOOD[:16] + bytes([magic]) + GOOD[17:]


def with_length(length: int) -> bytes:
    return GOOD[:8] + length.to_bytes(4, "big", signed=True) + GOOD[12:]


def transactional() -> bytes:
    return GOOD[:22] + bytes([0x10]) + GOOD[23:]


async def answers(
    broker: AdministeredBroker, *asked: tuple[str, int, bytes | bytearray | None], version: int = 12, **options: Any
) -> list[tuple[str, int, int, str | None]]:
    """`asked`: a topic entry of its own each, with one partition."""
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=index, records=None if data is None else memoryview(data))],
        )
        for name, index, data in asked
    ]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics, **options)
    response: Any = produce(request, broker.context(version))
    if isawaitable(response):  # a machine that was busy meanwhile: what is left is checked in threads
        response = await response
    return [
        (topic.name, each.index, each.error_code, each.error_message)
        for topic in response.responses
        for each in topic.partition_responses
    ]


@pytest.mark.parametrize(
    ("bad", "code", "message"),
    [
        (with_magic(3), ErrorCode.CORRUPT_MESSAGE, "Invalid magic found in record: 3"),
        (
            with_length(3),
            ErrorCode.CORRUPT_MESSAGE,
            "Record size 3 is less than the minimum record overhead (14)",
        ),
        (with_length(2**31 - 1), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (transactional(), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None),
    ],
)
async def test_one_front_that_cannot_be_refuses_all_partitions(
    tmp_path: Path, bad: bytes, code: ErrorCode, message: str | None
) -> None:
    told = await answers(await opened(tmp_path), ("t", 0, GOOD), ("u", 0, bad))
    assert told == [("t", 0, code, message), ("u", 0, code, message)]


async def test_a_partition_that_is_named_twice_is_answered_once(tmp_path: Path) -> None:
    told = await answers(await opened(tmp_path), ("t", 0, GOOD), ("u", 1, GOOD), ("t", 0, GOOD), ("t", 2, GOOD))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told == [("t", 0, unknown, None), ("t", 2, unknown, None), ("u", 1, unknown, None)]


async def test_topics_without_partitions_are_not_answered(tmp_path: Path) -> None:
    topics = [TopicProduceData(name="t", partition_data=[]), TopicProduceData(name="u", partition_data=[])]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    response: Any = produce(request, (await opened(tmp_path)).context(9))
    assert response.responses == []


@pytest.mark.parametrize(("version", "code"), [(0, ErrorCode.NONE), (2, ErrorCode.NONE), (3, ErrorCode.INVALID_RECORD)])
@pytest.mark.parametrize("records", [None, b"", GOOD[:30]])
async def test_no_batch_at_all_is_nothing_to_do_before_version_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, code: ErrorCode, records: bytes | None
) -> None:
    broker = await opened(tmp_path)
    await create(broker, creatable("t"))
    monkeypatch.setattr(broker, "partition", lambda name, index: None, raising=False)
    [(_, _, told, _)] = await answers(broker, ("t", 0, records), version=version)
    assert told == code


async def test_compressed_batches_of_several_partitions_are_checked_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has looked at them before. Step by step each costs half as much again."""
    monkeypatch.setattr(appending, "TURN_S", 1000.0)  # however busy the machine is
    checked: list[bool] = []
    check = appending.check_quickly

    def noted(*arguments: Any, **options: Any) -> Any:
        found = check(*arguments, **options)
        checked.append(found is not None)
        return found

    monkeypatch.setattr(appending, "check_quickly", noted)
    broker = await opened(tmp_path)
    await create(broker, creatable("t", 3))
    now_ms = broker.context(12).now_ms
    codecs = (Compression.SNAPPY, Compression.ZSTD, Compression.LZ4)
    batches = [bytearray(encode_batch([Record(0, now_ms, None, b"v" * 100)], compression=codec)) for codec in codecs]
    told = await answers(broker, *(("t", index, batch) for index, batch in enumerate(batches)))
    assert told == [("t", index, ErrorCode.NONE, None) for index in range(3)]
    assert checked == [True] * 3
