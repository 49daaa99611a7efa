"""Puts the answers of ShareFetch and ShareAcknowledge together: what was found, what was acknowledged, where leaders are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.server.produce.leader_hints import Port, current_leader, endpoints
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import share_acknowledge as acknowledging
from ottla.wire.messages import share_fetch as fetching
from ottla.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from ottla.wire.messages.share_fetch import ShareFetchResponse

if TYPE_CHECKING:
    from ottla.groupcoord.share.partition.sessions import ShareSession, TopicPartition
    from ottla.server.share.acknowledging import Result
    from ottla.server.share.fetching import Found

MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Data = TypeVar("Data", fetching.PartitionData, acknowledging.PartitionData)


def fetch_response(
    broker: Port,
    listener_name: str,
    found: Mapping[TopicPartition, Found],
    results: Mapping[TopicPartition, Result],
    session: ShareSession | None,
    lock_ms: int,
) -> ShareFetchResponse:
    """The answer to a ShareFetch. `session` leaves out what its member need not hear again; None: everything is told."""
    answers: dict[TopicPartition, fetching.PartitionData] = {}
    for partition, each in found.items():
        is_told = session is None or session.must_tell(
            partition, has_records=bool(each.records), has_error=each.error is not ErrorCode.NONE
        )
        if is_told:
            answers[partition] = _found(broker, partition, each)
    leaders = {each.current_leader.leader_id for each in answers.values() if each.error_code in MOVED}
    for partition, (error, message) in results.items():
        data = answers.get(partition)
        if data is None:
            data = answers[partition] = _nothing(partition)
        data.acknowledge_error_code, data.acknowledge_error_message = error, message
    return ShareFetchResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            fetching.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in _by_topic(answers.items())
        ],
        node_endpoints=_endpoints(broker, leaders, listener_name, fetching.NodeEndpoint),
    )


def _found(broker: Port, partition: TopicPartition, found: Found) -> fetching.PartitionData:
    data = _nothing(partition)
    data.error_code = found.error
    data.records = found.records  # type: ignore[assignment]  # a region goes out by sendfile
    data.acquired_records = [
        fetching.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in found.acquired
    ]
    if found.error in MOVED and partition.topic is not None:
        leader, epoch = current_leader(broker, partition.topic, partition.partition)
        data.current_leader = fetching.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return data


def _nothing(partition: TopicPartition) -> fetching.PartitionData:
    return fetching.PartitionData(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE,
        acknowledge_error_code=ErrorCode.NONE,
        current_leader=fetching.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=b"",
        acquired_records=[],
    )


def acknowledge_response(
    broker: Port, listener_name: str, results: Mapping[TopicPartition, Result], lock_ms: int
) -> ShareAcknowledgeResponse:
    """The answer to a ShareAcknowledge."""
    answers: dict[TopicPartition, acknowledging.PartitionData] = {}
    leaders = set()
    for partition, (error, message) in results.items():
        leader = acknowledging.LeaderIdAndEpoch(leader_id=0, leader_epoch=0)
        if error in MOVED and partition.topic is not None:
            leader.leader_id, leader.leader_epoch = current_leader(broker, partition.topic, partition.partition)
            leaders.add(leader.leader_id)
        answers[partition] = acknowledging.PartitionData(
            partition_index=partition.partition, error_code=error, error_message=message, current_leader=leader
        )
    return ShareAcknowledgeResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            acknowledging.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in _by_topic(answers.items())
        ],
        node_endpoints=_endpoints(broker, leaders, listener_name, acknowledging.NodeEndpoint),
    )


def _by_topic(answers: Iterable[tuple[TopicPartition, Data]]) -> Iterable[tuple[bytes, list[Data]]]:
    topics: dict[bytes, list[Data]] = {}
    for partition, data in answers:
        topics.setdefault(partition.topic_id, []).append(data)
    return topics.items()


def _endpoints(broker: Port, leaders: Iterable[int], listener_name: str, kind: Any) -> list[Any]:
    """Where the leaders are that an answer names (KIP-951)."""
    return [
        kind(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in endpoints(broker, leaders, listener_name)
    ]
