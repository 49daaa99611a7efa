"""Members of groups against a coordinator that answers by a script."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.server.cli.client import membership
from ottla.server.cli.client.assignment import assigned, encoded, subscription
from ottla.server.cli.client.cluster import TemporaryFailure
from ottla.server.cli.client.membership import LEAVE_S, ClassicMember, ConsumerMember
from ottla.server.cli.client.output import ConnectionLost, RequestFailed
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.wire.messages.consumer_group import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_ID = bytes(range(16))


class Scripted:
    """Cluster and coordinator in one. Each answer is a message, an error code, or an exception."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: list[Any] = []
        self.is_closed = False
        self.patience_s = 0.0
        self.found = 0
        self.timeout_s = 0.0
        """Time in which the coordinator had to be found the last time."""

    def ask(self, request: Any, *, at_most: int = 1000, timeout_s: float = 0.0) -> Any:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    # --- of the cluster

    def coordinator(self, group: str, *, timeout_s: float) -> "Scripted":
        self.found += 1
        self.timeout_s = timeout_s
        return self

    def drop(self, connection: "Scripted") -> None:
        pass

    def patiently(self, question: Callable[[], Any], timeout_s: float = 30.0) -> Any:
        for _ in range(5):
            try:
                return question()
            except TemporaryFailure as error:
                failure = error
        raise RequestFailed(str(failure))

    def metadata(self, topics: Any) -> MetadataResponse:
        part = MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1], offline_replicas=[]
        )
        topic = MetadataResponseTopic(
            error_code=0, name="topic", topic_id=TOPIC_ID, is_internal=False, partitions=[part, part]
        )
        return MetadataResponse(brokers=[], cluster_id=None, controller_id=1, topics=[topic])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(membership, "RETRY_S", 0.0)
    return Scripted()


def kinds(asked: list[Any]) -> list[type]:
    return [type(each) for each in asked]


def joined(code: int = 0, member_id: str = "me") -> JoinGroupResponse:
    members = [JoinGroupResponseMember(member_id=each, metadata=subscription(["topic"])) for each in ("me", "other")]
    return JoinGroupResponse(
        error_code=code, generation_id=7, protocol_name="range", leader="me", member_id=member_id, members=members
    )


def synced(code: int = 0) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, assignment=encoded([("topic", 0)]) if not code else b"")


def committed(code: int) -> OffsetCommitResponse:
    parts = [OffsetCommitResponsePartition(partition_index=0, error_code=code)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="topic", partitions=parts)])


def test_a_classic_member_joins_leads_and_leaves(cluster: Scripted) -> None:
    member: Any = ClassicMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    cluster.answers = [joined(ErrorCode.MEMBER_ID_REQUIRED), joined(), synced()]
    assert member.join() == (("topic", 0),)
    assert kinds(cluster.asked) == [JoinGroupRequest, JoinGroupRequest, SyncGroupRequest]
    shared = {each.member_id: assigned(each.assignment) for each in cluster.asked[-1].assignments}
    assert shared == {"me": (("topic", 0),), "other": (("topic", 1),)}
    cluster.answers = [LeaveGroupResponse(error_code=0)]
    member.leave()
    assert type(cluster.asked[-1]) is LeaveGroupRequest and cluster.asked[-1].members[0].member_id == "me"
    assert cluster.timeout_s == LEAVE_S  # whoever presses Ctrl-C does not wait longer for a coordinator that is gone
    member.leave()  # once is enough
    assert cluster.answers == []


def test_a_classic_member_joins_until_it_is_let_in(cluster: Scripted) -> None:
    """Meanwhile the generation, the coordinator, the connection and the member's own id change."""
    member: Any = ClassicMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    cluster.answers = [
        joined(),
        synced(ErrorCode.REBALANCE_IN_PROGRESS),
        joined(ErrorCode.NOT_COORDINATOR),
        ConnectionLost("it is gone"),
        joined(ErrorCode.UNKNOWN_MEMBER_ID),
        joined(),
        synced(ErrorCode.ILLEGAL_GENERATION),
        joined(),
        synced(),
    ]
    for _ in range(3):
        # Others may have had its partitions in the generation that it has missed: its positions are old.
        assert member.join() == () and (member.must_join, member.is_lost) == (True, True)
    assert member.join() == (("topic", 0),)
    assert not member.must_join and not member.is_lost
    assert cluster.found == 3  # at first, where the coordinator moved, and where the connection was lost
    ids = [each.member_id for each in cluster.asked if isinstance(each, JoinGroupRequest)]
    assert ids == ["", "me", "me", "me", "", "me"]


def test_a_classic_member_is_refused(cluster: Scripted) -> None:
    member: Any = ClassicMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    cluster.answers = [joined(ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    with pytest.raises(RequestFailed, match="GROUP_AUTHORIZATION_FAILED"):
        member.join()
    assert member.must_join and member.is_lost


def test_a_classic_member_that_cannot_share_out_partitions_joins_again(
    cluster: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def metadata(topics: Any) -> MetadataResponse:
        raise ConnectionLost("it is gone")

    member: Any = ClassicMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    monkeypatch.setattr(cluster, "metadata", metadata)
    cluster.answers = [joined()]
    with pytest.raises(ConnectionLost):
        member.join()
    assert member.must_join and member.is_lost


@pytest.mark.parametrize(
    ("code", "must_join", "is_lost"),
    [
        (0, False, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, True, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, True, True),
        (ErrorCode.ILLEGAL_GENERATION, True, True),
    ],
)
def test_heartbeats_of_a_classic_member(cluster: Scripted, code: int, must_join: bool, is_lost: bool) -> None:
    member: Any = ClassicMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    cluster.answers = [joined(), synced(), HeartbeatResponse(error_code=code)]
    member.join()
    member.beat()  # none is due
    member._next_beat_s = 0.0
    member.beat()
    assert type(cluster.asked[-1]) is HeartbeatRequest and cluster.answers == []
    assert (member.must_join, member.is_lost) == (must_join, is_lost)


@pytest.mark.parametrize(
    ("code", "taken", "is_lost"),
    [
        (0, [("topic", 0)], False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [], False),
        (ErrorCode.ILLEGAL_GENERATION, [], True),
        (ErrorCode.REBALANCE_IN_PROGRESS, [], True),
    ],
)
def test_commits_of_a_classic_member(cluster: Scripted, code: int, taken: list[Any], is_lost: bool) -> None:
    member: Any = ClassicMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    cluster.answers = [joined(), synced(), committed(code)]
    member.join()
    assert list(member.commit({("topic", 0): 5})) == taken
    assert member.is_lost == is_lost == member.must_join
    request = cluster.asked[-1]
    assert type(request) is OffsetCommitRequest
    assert (request.member_id, request.generation_id_or_member_epoch) == ("me", 7)


def beaten(epoch: int, *numbers: int, code: int = 0, is_same: bool = False) -> ConsumerGroupHeartbeatResponse:
    parts = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(numbers))] if numbers else []
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=0,
        assignment=None if is_same else Assignment(topic_partitions=parts),
    )


def test_a_consumer_member_acknowledges_what_it_owns(cluster: Scripted) -> None:
    member: Any = ConsumerMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    cluster.answers = [beaten(1, 0, 1), beaten(1, is_same=True)]
    assert member.join() == (("topic", 0), ("topic", 1))
    first, second = cluster.asked
    assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["topic"], [])
    assert [each.partitions for each in second.topic_partitions] == [[0, 1]]
    # One is taken away: it is given up after the caller has committed, and before the group is told.
    cluster.answers = [beaten(2, 0)]
    member.beat()
    assert member.must_join and not member.is_lost
    cluster.answers = [committed(0), beaten(2, is_same=True)]
    assert list(member.commit({("topic", 0): 5})) == [("topic", 0)]
    assert member.join() == (("topic", 0),)
    assert [each.partitions for each in cluster.asked[-1].topic_partitions] == [[0]]
    cluster.answers = [beaten(-1, is_same=True)]
    member.leave()
    assert cluster.asked[-1].member_epoch == -1


def test_a_consumer_member_learns_a_newer_epoch_for_its_commit(cluster: Scripted) -> None:
    member: Any = ConsumerMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    cluster.answers = [beaten(1, 0), beaten(1, is_same=True)]
    member.join()
    cluster.answers = [committed(ErrorCode.STALE_MEMBER_EPOCH), beaten(4, is_same=True), committed(0)]
    assert list(member.commit({("topic", 0): 5})) == [("topic", 0)]
    assert cluster.asked[-1].generation_id_or_member_epoch == 4
    stale = [committed(ErrorCode.STALE_MEMBER_EPOCH), beaten(4, is_same=True)]
    cluster.answers = stale * 3
    assert list(member.commit({("topic", 0): 6})) == []
    assert member.is_lost and member.must_join


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_consumer_member_that_was_fenced_begins_anew(cluster: Scripted, code: int) -> None:
    member: Any = ConsumerMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    cluster.answers = [beaten(1, 0), beaten(1, is_same=True), beaten(0, code=code)]
    member.join()
    member.beat()
    assert member.is_lost and member.must_join
    cluster.answers = [beaten(2, 1), beaten(2, is_same=True)]
    assert member.join() == (("topic", 1),)
    assert [each.member_epoch for each in cluster.asked[-2:]] == [0, 2]
    assert all(isinstance(each, ConsumerGroupHeartbeatRequest) for each in cluster.asked)


def test_a_cluster_without_the_protocol_is_an_error_that_names_the_other_one(cluster: Scripted) -> None:
    member: Any = ConsumerMember(cluster, "group", ["topic"])  # type: ignore[arg-type]
    cluster.answers = [beaten(0, code=ErrorCode.UNSUPPORTED_VERSION)]
    with pytest.raises(RequestFailed, match="try --group-protocol classic"):
        member.join()
