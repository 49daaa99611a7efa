"""What members of classic groups have written about themselves, and what brokers say of the offsets of a group."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.cli.client.assignment import assigned
from ottla.server.cli.client.cluster import Cluster
from ottla.server.cli.client.groups import Member, Members, Task, commit, committed_of
from ottla.server.cli.client.output import RequestFailed
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol import TopicPartition as Assigned
from ottla.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.wire.tests.effort import examples


class Answering(Cluster):
    """A cluster whose coordinators give this answer."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def coordinator(self, group: str) -> SimpleNamespace:
        return SimpleNamespace(ask=lambda request, at_most: self.answer)


def committed(*codes: ErrorCode) -> Answering:
    parts = [
        OffsetCommitResponsePartition(partition_index=number, error_code=code) for number, code in enumerate(codes)
    ]
    return Answering(OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=parts)]))


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        ((ErrorCode.NONE,), "t-1 of group g: the broker does not say what became of its offset"),
        ((ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID), "has members"),
        ((ErrorCode.NONE, ErrorCode.GROUP_AUTHORIZATION_FAILED), "t-1 of group g: .*GROUP_AUTHORIZATION_FAILED"),
    ],
)
def test_an_offset_that_is_not_set_is_told(codes, words):
    offsets = {("t", 0): 5, ("t", 1): 6}
    commit(committed(ErrorCode.NONE, ErrorCode.NONE), "g", offsets)
    with pytest.raises(RequestFailed, match=words):
        commit(committed(*codes), "g", offsets)


def test_an_offset_that_is_not_told_is_no_missing_one():
    parts = [
        OffsetFetchResponsePartition(partition_index=number, committed_offset=offset, metadata="", error_code=code)
        for number, offset, code in ((0, 7, 0), (1, -1, 0), (2, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    ]
    answer = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=parts[:2])], groups=[])
    assert committed_of(Answering(answer), "g") == {("t", 0): 7}
    answer.topics[0].partitions.append(parts[2])
    with pytest.raises(RequestFailed, match="the offset of group g for t-2: .*TOPIC_AUTHORIZATION_FAILED"):
        committed_of(Answering(answer), "g")


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=60))
def test_any_assignment_is_read_or_passed_over(blob):
    assert len(assigned(blob)) <= len(blob)


def test_an_assignment_of_a_later_version_is_read():
    parts = [Assigned(topic="t", partitions=[0, 2])]
    body = ConsumerProtocolAssignment(assigned_partitions=parts).encode(3)
    assert assigned(b"\0\x09" + body + b"more") == (("t", 0), ("t", 2))


def test_who_reads_a_partition_of_a_shared_and_of_a_streams_group():
    shared = Members([Member("a", "", "", (("t", 0), ("t", 1))), Member("b", "", "", (("t", 1),))], {})
    assert shared.readers([]) == {("t", 0): ["a"], ("t", 1): ["a", "b"]}
    tasks = Members(
        [Member("a", "", "", tasks=(Task("0", 1),)), Member("b", "", "", tasks=(Task("1", 1),))], {"t": "0", "u": "1"}
    )
    assert tasks.readers([("t", 0), ("t", 1), ("u", 1), ("gone", 1)]) == {("t", 1): ["a"], ("u", 1): ["b"]}
