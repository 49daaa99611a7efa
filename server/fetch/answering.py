"""Makes the answer of a fetch from its reads. A session leaves out partitions without news."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.server.fetch.idling import let_idle
from ottla.server.fetch.partition_answers import CURRENT_LEADER_SINCE, Answer, add_answers, leaders_of
from ottla.server.net.sliced_work import PARTITIONS_PER_SLICE
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse

if TYPE_CHECKING:
    from ottla.server.fetch.reading import Reading


def response_to(reading: Reading) -> FetchResponse:
    """The answer to what was read last."""
    if (refused := _refused_by_quota(reading)) is not None:
        return refused
    # `select` notes in the session what the client is told, so `begin` has to make the session first.
    opened, answers = reading.opened, _answers(reading)
    selected = opened.select(answers) if opened.begin(answers) else []
    return _response_of(reading, add_answers([], selected))


async def response_in_slices(reading: Reading) -> FetchResponse:
    """The same for a great many partitions."""
    if (refused := _refused_by_quota(reading)) is not None:
        return refused
    opened, answers = reading.opened, _answers(reading)
    topics: list[FetchableTopicResponse] = []
    for start in range(0, len(answers) if opened.begin(answers) else 0, PARTITIONS_PER_SLICE):
        # While this gave way, the client may have sent the session's next request. Then this answer is an error, and
        # the session must not believe that the client was told anything.
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
    """The empty answer to a client that has to pause first; None: it may have what was read.

    No session begins with it, and one that goes on remembers nothing of it, so the client asks for the same once more.
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
        # Kafka sorts out ids that it does not know before it looks for partitions.
        reading.refused.sort(key=lambda answer: answer[0].topic is not None)
    return [(read.target, read.data) for read in reading.reads] + reading.refused


def _response_of(reading: Reading, topics: list[FetchableTopicResponse]) -> FetchResponse:
    opened, reader = reading.opened, reading.reader
    # After `select`, because it compares partitions with what the client was told.
    if opened.may_let_idle:
        let_idle(reading)
    # Counted here and not at each read: what is read again during a wait goes out only once.
    if reader.is_follower:
        reader.count_throttled(reading.reads)
    _count(reading)
    response = FetchResponse(error_code=opened.error, session_id=opened.session_id, responses=topics)
    if reader.version >= CURRENT_LEADER_SINCE and not reader.is_follower:
        found = [read.data for read in reading.reads]
        response.node_endpoints = leaders_of(reader.broker, reader.listener_name, found)
    return response
