"""Dead-letter queues: which records go there, what a letter says, and that a queue that does not work holds up nobody."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from ottla.groupcoord.config import DeadLetterConfig
from ottla.groupcoord.share.partition.acknowledging import REJECT, RELEASE
from ottla.replication.cluster.metadata_cache import PartitionState, TopicState
from ottla.replication.config import LogConfig
from ottla.replication.log.tests.logs import NOW_MS, batch, new_log
from ottla.replication.log.validator import ONE_BY_ONE_INLINE_MAX
from ottla.replication.partition.partition import Partition
from ottla.server.api.share.dead_letters import DELIVERED_TOO_OFTEN, REJECTED, _decoded
from ottla.server.tests.share_market import EPOCH, Market, Member, acquired
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, iter_batches

QUEUE = "dlq.t"


class Post(Market):
    """A market whose group g has a dead-letter queue, in two partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.config.dead_letters = DeadLetterConfig()
        self.log_config = LogConfig(errors_deadletterqueue_group_enable=True)
        self.configs.log_config = lambda topic: self.log_config
        self.queue: list[Partition] = []
        self.created: list[Any] = []
        self.features = self.member.features
        self.member = self  # type: ignore[assignment]
        self.replicas.wait_committed = self.wait_committed
        self.set(dead_letter_topic=QUEUE, delivery_count_limit=2)

    def make_queue(self) -> None:
        self.queue = [self.led_queue(index) for index in range(2)]
        state = PartitionState(replicas=(1,), isr=(1,), leader=1, leader_epoch=EPOCH)
        self.cluster.put_topic(TopicState(QUEUE, b"q" * 16, (state, state)))

    def led_queue(self, index: int) -> Partition:
        partition = Partition(QUEUE, index, new_log(), local_id=1)
        partition.make_leader(leader_epoch=EPOCH, partition_epoch=0, replicas=(1,), isr=(1,), now_ms=NOW_MS)
        return partition

    def partition(self, topic: str, index: int) -> Partition:
        return self.queue[index] if topic == QUEUE else self.partitions[index]

    async def wait_committed(self, partition: Partition, next_offset: int, *, timeout_s: float) -> ErrorCode:
        assert partition.high_watermark >= next_offset
        return ErrorCode.NONE

    async def ask_controller(self, request: Any, version: int, *, timeout_s: float) -> Any:
        self.created.append(request.topics[0])
        self.make_queue()
        result = CreatableTopicResult(name=QUEUE, error_code=ErrorCode.NONE, error_message=None)
        return CreateTopicsResponse(topics=[result])

    def letters(self, index: int = 0) -> list[Record]:
        records: Any = self.queue[index].read(0, 1 << 20, at_least_one_batch=True).records
        data = records.read() if len(records) else b""
        return [record for _, start, end in iter_batches(data) for record in decode_records(data[start:end])]

    async def until_done(self) -> None:
        while self.share() is not None and self.share().machine.in_flight:
            await trio.testing.wait_all_tasks_blocked(0.001)


@pytest.fixture
async def post() -> AsyncIterator[Post]:
    post = Post()
    async with trio.open_nursery() as nursery:
        await nursery.start(post.run)
        yield post
        nursery.cancel_scope.cancel()


def said(letter: Record) -> tuple[bytes, ...]:
    names = [b"topic", b"partition", b"offset", b"group", b"delivery.count", b"message"]
    assert [name for name, _ in letter.headers] == [b"__dlq.errors." + name for name in names]
    return tuple(value or b"" for _, value in letter.headers)


async def test_letters_say_which_records_could_not_be_processed_and_why(post: Post) -> None:
    post.make_queue()
    post.produce(4)
    member = Member(post)
    member.fetch(0)
    member.say((0, 0, REJECT), (1, 3, RELEASE))
    assert acquired(member.fetch()) == [(1, 3, 2)]
    member.say((1, 3, RELEASE))
    await post.until_done()
    assert [said(letter) for letter in post.letters()] == [
        (b"t", b"0", b"0", b"g", b"1", REJECTED),
        *((b"t", b"0", b"%d" % offset, b"g", b"2", DELIVERED_TOO_OFTEN) for offset in (1, 2, 3)),
    ]
    assert all(letter.key is None and letter.value is None for letter in post.letters())
    assert post.share().machine.start_offset == 4


async def test_there_are_no_letters_before_the_feature_has_them(post: Post) -> None:
    post.share_version = 1
    post.make_queue()
    post.produce(1)
    member = Member(post)
    member.fetch(0)
    member.say((0, 0, REJECT))
    await post.until_done()
    assert post.letters() == []
    assert post.share().machine.start_offset == 1


async def test_letters_may_have_the_records_themselves(post: Post) -> None:
    post.make_queue()
    post.set(copies_dead_letters=True)
    post.partitions[0].append_as_leader(batch(1, 1, value=b"payload"), required_acks=1, now_ms=NOW_MS)
    member = Member(post)
    member.fetch(0)
    member.say((0, 1, REJECT))
    await post.until_done()
    assert [(letter.key, letter.value) for letter in post.letters()] == [(b"key", b"payload")] * 2


async def test_many_letters_go_in_batches_that_the_queue_takes(post: Post) -> None:
    post.make_queue()
    post.log_config = LogConfig(errors_deadletterqueue_group_enable=True, max_message_bytes=1_000)
    post.produce(50)
    member = Member(post)
    member.fetch(0)
    member.say((0, 49, REJECT))
    await post.until_done()
    assert [said(letter)[2] for letter in post.letters()] == [b"%d" % offset for offset in range(50)]
    records: Any = post.queue[0].read(0, 1 << 20, at_least_one_batch=True).records
    assert all(end - start <= 1_000 for _, start, end in iter_batches(records.read()))


async def test_very_many_letters_that_the_queue_refuses_are_looked_at_in_a_thread(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """A compacted topic wants keys, and each record is looked at to say which has none."""
    post.make_queue()
    post.log_config = LogConfig(errors_deadletterqueue_group_enable=True, cleanup_policy=("compact",))
    post.queue[0].set_config(post.log_config)
    post.produce(ONE_BY_ONE_INLINE_MAX + 1)
    member = Member(post)
    member.fetch(0, max_records=ONE_BY_ONE_INLINE_MAX + 1)
    member.say((0, ONE_BY_ONE_INLINE_MAX, REJECT))
    await post.until_done()
    assert post.share().machine.start_offset == ONE_BY_ONE_INLINE_MAX + 1
    assert post.letters() == []
    assert "bug" not in caplog.text


async def test_a_queue_is_made_where_the_broker_allows_it(post: Post) -> None:
    post.config.dead_letters = DeadLetterConfig(errors_deadletterqueue_auto_create_topics_enable=True)
    post.produce(1)
    member = Member(post)
    member.fetch(0)
    member.say((0, 0, REJECT))
    await post.until_done()
    assert len(post.letters()) == 1
    (created,) = post.created
    assert (created.name, created.num_partitions) == (QUEUE, -1)
    assert {each.name: each.value for each in created.configs}["errors.deadletterqueue.group.enable"] == "true"


@pytest.mark.parametrize("fault", ["no topic", "not enabled", "wrong prefix", "internal"])
async def test_a_queue_that_cannot_be_used_holds_up_nobody(post: Post, fault: str) -> None:
    if fault != "no topic":
        post.make_queue()
    if fault == "not enabled":
        post.log_config = LogConfig()
    if fault in ("wrong prefix", "internal"):
        post.set(dead_letter_topic="letters" if fault == "wrong prefix" else "__letters")
        post.config.dead_letters = DeadLetterConfig(
            errors_deadletterqueue_topic_name_prefix="dlq." if fault == "wrong prefix" else ""
        )
    post.produce(2)
    member = Member(post)
    member.fetch(0)
    member.say((0, 1, REJECT))
    await post.until_done()
    assert post.share().machine.start_offset == 2
    assert not post.created


async def test_a_bug_on_the_way_of_a_letter_does_not_hold_up_the_records_behind_it(
    post: Post, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    post.make_queue()
    post.produce(2)
    member = Member(post)
    member.fetch(0)
    with monkeypatch.context() as patch:
        patch.setattr(post.replicas, "wait_committed", lambda *_, **__: 1 / 0)
        member.say((0, 0, REJECT))
        while post.share() is not None:
            await trio.testing.wait_all_tasks_blocked(0.001)
    assert "bug: dead letters of" in caplog.text
    assert acquired(member.fetch()) == [(1, 1, 1)], "the new leader does not know of the delivery that nobody spoke of"
    while post.share().machine.start_offset == 0:
        await trio.testing.wait_all_tasks_blocked(0.001)
    assert said(post.letters()[-1])[2] == b"0"


def test_millions_of_headers_of_a_bad_record_take_no_memory() -> None:
    records = encode_batch([Record(0, 1, b"k", b"v", ((b"", None),) * 300_000)])
    tracemalloc.start()
    try:
        assert _decoded(records, 0, 0) == {0: (b"k", b"v")}
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
