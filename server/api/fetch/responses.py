"""The response to a fetch, made from its reads. A session leaves out partitions without news.

A session may also leave partitions idle (`replication/partition/idle_partitions.py`): the next fetch does not read them unless
they have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.replication.partition.partition import NO_LEADER_EPOCH
from ottla.server.api.fetch.partition_answers import CURRENT_LEADER_SINCE, Answer, add_answers, leaders_of
from ottla.server.network.sliced_work import PARTITIONS_PER_SLICE
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse

if TYPE_CHECKING:
    from ottla.replication.partition.idle_partitions import FetchTarget
    from ottla.replication.partition.partition import Partition
    from ottla.server.api.fetch.partition_reader import PartitionReader
    from ottla.server.api.fetch.reading import Reading


def confirm_idle(reading: Reading) -> None:
    """Keep the session's idle partitions idle if the circumstances of its last request still hold; else wake them."""
    # A fenced broker refuses the partitions that it leads, which only a read finds out. So it leaves none unread.
    is_certain = not reading.reader.broker.member.is_fenced
    reading.opened.confirm(_circumstances(reading) if is_certain else None, reading.reader.now_ms)


def let_idle(reading: Reading) -> None:
    """Mark partitions without new records as idle, so that the session's next fetch need not read them."""
    circumstances, reader = _circumstances(reading), reading.reader
    if circumstances is None:
        return
    for target, _, size, _, is_settled, partition, _ in reading.reads:
        # There was news in this answer, or there is by now: the next fetch has to read the partition.
        if partition is None or size or is_settled or target.told_high_watermark != partition.high_watermark:
            continue
        follower = None
        if reader.is_follower:
            followers = partition.followers
            # A follower that rests counts as one that holds the whole log. So it has to be in sync, and the leader
            # must have noted this very offset (a fetch from before a restart of the follower is not noted).
            follower = None if followers is None else followers.in_sync(reader.replica_id)
            if follower is None or follower.log_end_offset != target.asked.fetch_offset:
                continue
        # A watcher gets only later changes, so changes since the read are checked here.
        if _has_all(reader, target, partition):
            reading.opened.let_idle(
                target, partition, role=role_of(partition), follower=follower, circumstances=circumstances
            )


def _circumstances(reading: Reading) -> object:
    """Return the facts about client and cluster that idle partitions depend on: if one changes, all must be read again.

    None: no partition may become idle.
    """
    reader = reading.reader
    # With a rack another replica may be preferred each time. With a limit below zero an answer may be an error.
    if reader.rack or reading.bytes_max < 0:
        return None
    # A request that differs in one of these may be owed another answer for the same partition.
    asks = (reader.version, reader.replica_id, reader.replica_epoch, reading.request.isolation_level)
    # By other rules a partition may have to be refused, although nothing has happened to it.
    rules = None if reader.rights is None else reader.rights.rules
    return *asks, reading.cluster_version, rules


def _has_all(reader: PartitionReader, target: FetchTarget, partition: Partition) -> bool:
    """True if the client knows all records and offsets that the partition has now, which may be more than were read."""
    asked = target.asked
    return (
        asked.fetch_offset == reader.end_of(partition)
        and target.told_log_start_offset == partition.log_start_offset
        and not partition.is_deleted
        and asked.current_leader_epoch in (NO_LEADER_EPOCH, partition.leader_epoch)
        and partition.log.log_directory.failure is None
        and (partition.is_leader or not reader.only_from_leader)
    )


def role_of(partition: Partition) -> tuple[object, ...]:
    """Return the partition's role: leader, leader epoch, deletion and disk failure; a change ends a fetch's wait."""
    # With a failed disk or a deleted topic the reader has to get an error, so it waits no longer.
    return partition.leader_id, partition.leader_epoch, partition.is_deleted, partition.log.log_directory.failure


def response_to(reading: Reading) -> FetchResponse:
    """Return the response made of the last reads."""
    if (refused := _refused_by_quota(reading)) is not None:
        return refused
    # `select` notes in the session what the client gets, so `begin` has to make the session first.
    opened, answers = reading.opened, _answers(reading)
    selected = opened.select(answers) if opened.begin(answers) else []
    return _response_of(reading, add_answers([], selected))


async def response_in_slices(reading: Reading) -> FetchResponse:
    """Return the response about very many partitions; yield to other tasks while it is made."""
    if (refused := _refused_by_quota(reading)) is not None:
        return refused
    opened, answers = reading.opened, _answers(reading)
    topics: list[FetchableTopicResponse] = []
    for start in range(0, len(answers) if opened.begin(answers) else 0, PARTITIONS_PER_SLICE):
        # While this yielded, the client may have sent the session's next request. Then this response is an error, and
        # the session must not note that the client got these partitions.
        if opened.goes_on():
            add_answers(topics, opened.select(answers[start : start + PARTITIONS_PER_SLICE]))
        await trio.lowlevel.checkpoint()
    return _response_of(reading, topics if opened.goes_on() else [])


def _count(reading: Reading) -> None:
    is_follower = reading.reader.is_follower
    for read in reading.reads:
        if read.partition is not None:
            traffic = read.partition.traffic
            if is_follower:
                traffic.replication_bytes_out += read.size
            else:
                traffic.fetch_requests += 1
                traffic.bytes_out += read.size


def _refused_by_quota(reading: Reading) -> FetchResponse | None:
    """Return the empty response to a client over its quota; None if the client is within its quota.

    The response neither begins nor updates a fetch session, so the client repeats the same request.
    """
    if reading.charge is None:
        return None
    pause_ms = reading.charge.settle_fetch(reading.answer_bytes)
    if not pause_ms:
        return None
    opened = reading.opened
    opened.goes_on()  # or else it has an error now
    return FetchResponse(throttle_time_ms=pause_ms, error_code=opened.error, session_id=opened.session_id, responses=[])


def _answers(reading: Reading) -> list[Answer]:
    if not reading.reader.is_follower:
        # Kafka answers unknown topic ids before it looks for partitions.
        reading.refused.sort(key=lambda answer: answer[0].topic is not None)
    return [(read.target, read.data) for read in reading.reads] + reading.refused


def _response_of(reading: Reading, topics: list[FetchableTopicResponse]) -> FetchResponse:
    opened, reader = reading.opened, reading.reader
    # After `select`, because it compares partitions with what the client has got.
    if opened.may_let_idle:
        let_idle(reading)
    # Counted here and not at each read, because records that are read again during a wait go out only once.
    if reader.is_follower:
        reader.count_throttled(reading.reads)
    _count(reading)
    response = FetchResponse(error_code=opened.error, session_id=opened.session_id, responses=topics)
    if reader.version >= CURRENT_LEADER_SINCE and not reader.is_follower:
        found = [read.data for read in reading.reads]
        response.node_endpoints = leaders_of(reader.broker, reader.listener_name, found)
    return response
