"""ListOffsets v0: first offsets of segments by the times of files, bounded in work and in size."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from ottla.replication.log.segment import Segment
from ottla.replication.log.segment_files import LOG_SUFFIX
from ottla.replication.log.tests.logs import append, batch, new_log
from ottla.replication.partition.partition import Partition
from ottla.server.api import older_offsets
from ottla.server.api.handlers.list_offsets import list_offsets
from ottla.server.dispatch.context import RequestContext
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

NOW_MS = 10_000
LATEST, EARLIEST = -1, -2


class Led:
    """A broker that leads one partition with segments at 0, 1, 2, whose files are of 1000, 2000 and 3000."""

    authorizer = None

    def __init__(self) -> None:
        self.partition_ = Partition("topic", 0, new_log(), local_id=1)
        self.partition_.make_leader(leader_epoch=3, partition_epoch=0, replicas=(1,), isr=(1,))
        log = self.log = self.partition_.log
        for _ in range(3):
            log.roll(NOW_MS)
            append(log, batch(100), epoch=3)
        self.partition_.reconsider()
        for number, segment in enumerate(log.segments, 1):
            log.log_directory.storage.set_modified_ms(segment.path(LOG_SUFFIX), 1000 * number)

    def now_ms(self) -> int:
        return NOW_MS

    def partition(self, topic: str, index: int) -> Partition:
        if index:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partition_

    async def ask(self, *asked: tuple[int, int], index: int = 0, replica: int = -1) -> Sequence[tuple[int, list[int]]]:
        """`asked`: pairs of timestamp and number of offsets."""
        wishes = [
            ListOffsetsPartition(partition_index=index, timestamp=time, max_num_offsets=count) for time, count in asked
        ]
        topic = ListOffsetsTopic(name="topic", partitions=wishes)
        request = ListOffsetsRequest(replica_id=replica, topics=[topic])
        answer: Any = await list_offsets(request, RequestContext(cast(Any, self), api_version=0))
        answer.encode(0)
        return [(each.error_code, each.old_style_offsets) for each in answer.topics[0].partitions]


@pytest.mark.parametrize(
    ("timestamp", "offsets"),
    [
        (LATEST, [3, 2, 1, 0]),
        (EARLIEST, [0]),
        (0, []),
        (999, []),
        (1000, [0]),
        (2500, [1, 0]),
        (NOW_MS - 1, [2, 1, 0]),
        (NOW_MS, [3, 2, 1, 0]),
    ],
)
async def test_segments_are_told_by_the_times_of_their_files(timestamp: int, offsets: list[int]) -> None:
    led = Led()
    for count in (0, 1, 2, 100):
        assert await led.ask((timestamp, count)) == [(ErrorCode.NONE, offsets[:count])]


async def test_an_empty_last_segment_has_no_end_beside_it() -> None:
    led = Led()
    led.log.roll(NOW_MS)
    assert await led.ask((LATEST, 2)) == [(ErrorCode.NONE, [3, 2])]


async def test_a_consumer_does_not_hear_what_is_not_committed() -> None:
    led = Led()
    led.partition_.high_watermark = 1
    assert await led.ask((LATEST, 9)) == [(ErrorCode.NONE, [1, 1, 0])]
    assert await led.ask((LATEST, 9), replica=-2) == [(ErrorCode.NONE, [3, 2, 1, 0])]


async def test_errors_are_each_partitions_own() -> None:
    led = Led()
    unknown, negative, missing = (
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    asked = (-3, 1), (LATEST, -1), (LATEST, 1)
    assert await led.ask(*asked) == [(unknown, []), (negative, []), (ErrorCode.NONE, [3])]
    assert await led.ask((LATEST, 1), (1500, 1), index=1) == [(missing, [])] * 2


async def test_a_file_that_is_deleted_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led()
    times = {0: 1000, 1: OSError("gone"), 2: 5000}

    def modified_ms(segment: Segment) -> int:
        found = times[segment.base_offset]
        if isinstance(found, OSError):
            raise found
        return found

    monkeypatch.setattr(Segment, "modified_ms", modified_ms)
    assert await led.ask((4000, 9)) == [(ErrorCode.NONE, [0])]


async def test_files_are_looked_at_once_and_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    led, looks = Led(), []
    original = Segment.modified_ms

    def modified_ms(segment: Segment) -> int:
        looks.append(threading.get_ident())
        return original(segment)

    monkeypatch.setattr(Segment, "modified_ms", modified_ms)
    assert await led.ask(*[(500 + number, 1) for number in range(50)]) == [(ErrorCode.NONE, [])] * 50
    assert len(looks) == 3 and threading.get_ident() not in looks


async def test_an_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(older_offsets, "OFFSETS_MAX", 10)
    answers = await Led().ask(*[(LATEST, 1 << 30)] * 100)
    assert [len(offsets) for _, offsets in answers] == [4, 4, 2, *[1] * 97]
