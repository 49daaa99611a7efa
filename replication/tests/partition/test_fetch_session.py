"""Incremental fetch sessions: what a request opens, and what its answer tells."""

import itertools

import pytest

from ottla.replication.cluster.metadata_cache import MetadataCache, PartitionState, TopicState
from ottla.replication.partition.fetch_session import (
    EVICTION_MS,
    NAMED_PER_STEP,
    FetchContext,
    FetchSessionCache,
    NamedPartitions,
    random_session_id,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from ottla.wire.schema import ZERO_UUID

ID = b"i" * 16
BOB, EVE = "User:bob", "User:eve"


@pytest.fixture
def cluster() -> MetadataCache:
    state = MetadataCache()
    partition = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    state.put_topic(TopicState("t", ID, (partition,) * 4))
    return state


def cache_of(slots: int) -> FetchSessionCache:
    return FetchSessionCache(slots, itertools.count(10).__next__)


def request(session_id: int, epoch: int, partitions=(), forgotten=(), *, offset: int = 0) -> FetchRequest:
    wanted = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100) for index in partitions]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", topic_id=ID, partitions=wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", topic_id=ID, partitions=list(forgotten))],
    )


def answer(context: FetchContext, *, records: bytes = b"", high_watermark: int = 5, error: int = 0) -> list[int]:
    """Answer all targets alike; the partitions that the response would mention."""
    answers = [
        (
            target,
            PartitionData(
                partition_index=target.asked.partition,
                error_code=error,
                high_watermark=high_watermark,
                log_start_offset=0,
                records=records,
            ),
        )
        for target in context.targets
    ]
    return [target.asked.partition for target, _ in context.select(answers)] if context.begin(answers) else []


def asked(context: FetchContext) -> list[int]:
    return [target.asked.partition for target in context.targets]


def begin(cache: FetchSessionCache, cluster: MetadataCache, partitions: list[int], *, now_ms: int = 0) -> FetchContext:
    """A full fetch that was answered."""
    context = cache.open(request(0, 0, partitions), 13, cluster, now_ms, BOB)
    answer(context)
    return context


def test_a_sessionless_fetch_is_answered_in_full_every_time(cluster):
    context = cache_of(5).open(request(0, -1, [0, 1]), 13, cluster, 0, BOB)
    assert (context.session_id, answer(context), answer(context)) == (0, [0, 1], [0, 1])


def test_an_incremental_answer_tells_only_what_is_new(cluster):
    cache = cache_of(5)
    first = cache.open(request(0, 0, [0, 1]), 13, cluster, 0, BOB)
    assert (first.session_id, answer(first), first.session_id) == (0, [0, 1], 10)
    second = cache.open(request(10, 1), 13, cluster, 1, BOB)
    assert (asked(second), answer(second)) == ([0, 1], [])
    third = cache.open(request(10, 2), 13, cluster, 2, BOB)
    assert answer(third, high_watermark=6) == [0, 1]
    fourth = cache.open(request(10, 3), 13, cluster, 3, BOB)
    assert answer(fourth, high_watermark=6, records=b"r") == [0, 1]


def test_an_error_is_told_each_time_and_so_is_its_end(cluster):
    cache = cache_of(5)
    answer(cache.open(request(0, 0, [0]), 13, cluster, 0, BOB))
    assert answer(cache.open(request(10, 1), 13, cluster, 0, BOB), error=3, high_watermark=-1) == [0]
    assert answer(cache.open(request(10, 2), 13, cluster, 0, BOB), error=3, high_watermark=-1) == [0]
    assert answer(cache.open(request(10, 3), 13, cluster, 0, BOB)) == [0]
    assert answer(cache.open(request(10, 4), 13, cluster, 0, BOB)) == []


def test_partitions_are_added_changed_and_forgotten(cluster):
    cache = cache_of(5)
    answer(cache.open(request(0, 0, [0, 1]), 13, cluster, 0, BOB))
    context = cache.open(request(10, 1, [1, 2], forgotten=[0], offset=7), 13, cluster, 0, BOB)
    assert [(target.asked.partition, target.asked.fetch_offset) for target in context.targets] == [(1, 7), (2, 7)]


def test_partitions_that_returned_records_go_to_the_end(cluster):
    cache = cache_of(5)
    answer(cache.open(request(0, 0, [0, 1, 2]), 13, cluster, 0, BOB))
    context = cache.open(request(10, 1), 13, cluster, 0, BOB)
    data = PartitionData(partition_index=0, error_code=0, high_watermark=5, log_start_offset=0, records=b"r")
    answers = [(context.targets[0], data)]
    assert context.begin(answers)
    context.select(answers)
    assert asked(cache.open(request(10, 2), 13, cluster, 0, BOB)) == [1, 2, 0]


@pytest.mark.parametrize(
    ("session_id", "epoch", "version", "error"),
    [
        (99, 1, 13, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (10, 2, 13, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (10, 1, 12, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_wrong_incremental_request_is_refused(cluster, session_id, epoch, version, error):
    cache = cache_of(5)
    begin(cache, cluster, [0])
    context = cache.open(request(session_id, epoch), version, cluster, 0, BOB)
    assert (context.error, context.session_id, context.targets) == (error, 0, [])


def test_a_session_ends_when_asked_or_when_nothing_is_left_in_it(cluster):
    cache = cache_of(5)
    begin(cache, cluster, [0])
    assert cache.open(request(10, -1), 13, cluster, 0, BOB).session_id == 0
    assert len(cache) == 0
    begin(cache, cluster, [0])
    assert cache.open(request(11, 1, forgotten=[0]), 13, cluster, 0, BOB).session_id == 0
    assert len(cache) == 0


def test_epochs_wrap_around(cluster):
    cache = cache_of(5)
    context = begin(cache, cluster, [0])
    context.session.epoch = 2**31 - 1
    assert cache.open(request(10, 2**31 - 1), 13, cluster, 0, BOB).error == ErrorCode.NONE
    assert cache.open(request(10, 1), 13, cluster, 0, BOB).error == ErrorCode.NONE


def test_a_full_cache_gives_no_session_until_one_is_stale_or_smaller_and_old(cluster):
    cache = cache_of(1)
    begin(cache, cluster, [0])
    assert begin(cache, cluster, [0, 1], now_ms=5).session_id == 0
    assert begin(cache, cluster, [0], now_ms=EVICTION_MS + 1).session_id == 11
    cache.open(request(11, 1), 13, cluster, 2 * EVICTION_MS + 2, BOB)
    assert begin(cache, cluster, [0], now_ms=2 * EVICTION_MS + 3).session_id == 0
    assert begin(cache, cluster, [0, 1], now_ms=2 * EVICTION_MS + 3).session_id == 12


def test_a_topic_id_that_becomes_known_later_is_resolved(cluster):
    cache = cache_of(5)
    empty = MetadataCache()
    context = begin(cache, empty, [0])
    assert context.targets[0].topic is None
    assert cache.open(request(10, 1), 13, cluster, 0, BOB).targets[0].topic == "t"


def test_a_long_answer_leaves_a_session_whole_that_others_change_meanwhile(cluster):
    """The answer is told piece by piece. A partition that was forgotten and added again in between is another one."""
    cache = cache_of(5)
    begin(cache, cluster, [0, 1, 2])
    slow = cache.open(request(10, 1), 13, cluster, 0, BOB)
    data = PartitionData(partition_index=0, error_code=0, high_watermark=5, log_start_offset=0, records=b"r")
    answers = [(target, data) for target in slow.targets]
    assert slow.begin(answers)
    slow.select(answers[:1])
    cache.open(request(10, 2, forgotten=[2]), 13, cluster, 0, BOB)
    cache.open(request(10, 3, [2]), 13, cluster, 0, BOB)
    slow.select(answers[1:])
    assert not slow.goes_on()
    assert slow.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert slow.session.awake() == list(slow.session.targets.values())
    cache.open(request(10, 4, forgotten=[2]), 13, cluster, 0, BOB)
    assert len(slow.session.targets) == 2


def test_the_next_request_of_a_session_invalidates_an_answer_still_waited_for(cluster):
    cache = cache_of(5)
    begin(cache, cluster, [0])
    waiting = cache.open(request(10, 1), 13, cluster, 0, BOB)
    assert answer(cache.open(request(10, 2), 13, cluster, 0, BOB), high_watermark=6) == [0]
    assert answer(waiting, high_watermark=7) == []
    assert (waiting.error, waiting.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 10)


@pytest.mark.parametrize("version", [12, 13])
def test_a_partition_named_twice_counts_once_with_its_last_wishes(cluster, version):
    twice = request(0, -1, [0, 1])
    twice.topics += request(0, -1, [0], offset=7).topics
    targets = cache_of(5).open(twice, version, cluster, 0, BOB).targets
    assert [(each.asked.partition, each.asked.fetch_offset) for each in targets] == [(0, 7), (1, 0)]


def test_a_session_may_hold_the_zero_id(cluster):
    wanted = request(0, 0, [0])
    wanted.topics[0].topic_id = ZERO_UUID
    cache = cache_of(5)
    context = cache.open(wanted, 13, cluster, 0, BOB)
    assert answer(context, error=100) == [0]
    assert cache.open(request(10, 1), 13, cluster, 0, BOB).targets[0].topic is None


def test_a_session_that_is_too_large_does_not_begin_and_one_that_grows_too_large_ends(cluster):
    cache = FetchSessionCache(9, itertools.count(10).__next__, session_partitions_max=5)
    large = cache.open(request(0, 0, range(6)), 12, cluster, 0, BOB)
    assert answer(large) == list(range(6))
    assert (large.session_id, len(cache)) == (0, 0)
    first = cache.open(request(0, 0, range(5)), 12, cluster, 0, BOB)
    answer(first)
    assert (first.session_id, len(cache)) == (10, 1)
    assert cache.open(request(10, 1, range(5)), 12, cluster, 0, BOB).error == ErrorCode.NONE
    assert cache.open(request(10, 2, [5]), 12, cluster, 0, BOB).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_all_sessions_together_hold_a_limited_number_of_partitions(cluster):
    cache = FetchSessionCache(9, itertools.count(10).__next__, partitions_max=7)
    for session_id in (10, 11, 0):
        context = cache.open(request(0, 0, range(3)), 12, cluster, 0, BOB)
        answer(context)
        assert context.session_id == session_id
    assert cache.open(request(10, 1, [7]), 12, cluster, 0, BOB).error == ErrorCode.NONE
    assert cache.open(request(11, 1, [7]), 12, cluster, 0, BOB).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    again = cache.open(request(0, 0, range(3)), 12, cluster, 0, BOB)
    answer(again)
    assert again.session_id == 12


@pytest.mark.parametrize("version", [12, 13])
def test_what_is_named_in_steps_is_what_is_named_at_once(cluster: MetadataCache, version: int) -> None:
    count = 3 * NAMED_PER_STEP + 1
    long = request(1, 1, [*range(count), *range(5)], range(count))
    named = NamedPartitions(long, version, cluster)
    assert len(list(named.steps())) == 8
    at_once = cache_of(5).open(request(0, -1, [*range(count), *range(5)]), version, cluster, 0, BOB).targets
    assert [(each.key, each.topic) for each in named.targets] == [(each.key, each.topic) for each in at_once]
    assert len(at_once) == count
    assert named.forgotten == [("t" if version == 12 else ID, index) for index in range(count)]


@pytest.mark.parametrize("epoch", [1, 2, -1, 0])
def test_a_session_is_its_principals_alone(cluster, epoch):
    """To others its id is one that nobody has, whatever they ask, and its owner does not notice."""
    cache = cache_of(5)
    begin(cache, cluster, [0])
    context = cache.open(request(10, epoch), 13, cluster, 0, EVE)
    unknown = cache.open(request(99, epoch), 13, cluster, 0, EVE)
    assert (context.error, context.session_id, context.targets) == (unknown.error, 0, [])
    assert context.error == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND if epoch > 0 else ErrorCode.NONE)
    assert cache.open(request(10, 1), 13, cluster, 0, BOB).error == ErrorCode.NONE


def test_session_ids_are_positive_and_never_the_one_that_means_none():
    given = iter([bytes(4), b"\x80\0\0\0", b"\xff" * 4])
    assert random_session_id(lambda count: next(given)) == 2**31 - 1
