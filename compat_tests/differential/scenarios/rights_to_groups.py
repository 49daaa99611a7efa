"""Who may join groups, commit offsets, and see what there is of both: each request with and without each right."""

from compat_tests.differential.asking_consumer_groups import ConsumerMember, in_order_of_members
from compat_tests.differential.asking_offsets import commit, commit_topic, fetch, fetch_group
from compat_tests.differential.asking_rights import Right, everybody_asks, only_ours
from compat_tests.differential.asking_share import known
from compat_tests.differential.asking_stages import EMPTY, STABLE, stage
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.logins import SECURED
from compat_tests.differential.scenarios.rights_to_records import CLUSTER, DELETE, DESCRIBE, READ, TOPIC, two_topics

from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
)

GROUP = ResourceType.GROUP


def a_consumer(talk: Talk, group: str, topic: Topic) -> ConsumerMember:
    """The only member of a group of consumers (KIP-848), of which nothing is written down."""
    member = ConsumerMember(talk, group, "the member", known(talk, topic))
    written = len(talk.steps)
    member.come()
    del talk.steps[written:]
    return member


@scenario(JoinGroupRequest, "2+", settings=SECURED)
def joining(talk: Talk) -> None:
    group = talk.group()
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="nobody we know",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    everybody_asks(talk, request, Right(READ, GROUP, group))


@scenario(SyncGroupRequest, "5", settings=SECURED)
def syncing(talk: Talk) -> None:
    found = stage(talk, STABLE)
    everybody_asks(talk, found.follower.sync_request(), Right(READ, GROUP, found.group))
    absent = SyncGroupRequest(group_id=found.group, generation_id=1, member_id="", assignments=[])
    everybody_asks(talk, absent, Right(READ, GROUP, found.group))


@scenario(HeartbeatRequest, "3+", settings=SECURED)
def heartbeats(talk: Talk) -> None:
    found = stage(talk, STABLE)
    everybody_asks(talk, found.follower.heartbeat_request(), Right(READ, GROUP, found.group))


@scenario(LeaveGroupRequest, "2+", settings=SECURED)
def leaving(talk: Talk) -> None:
    found = stage(talk, STABLE)
    members = [MemberIdentity(member_id=found.follower.member_id, group_instance_id=None)]
    request = LeaveGroupRequest(group_id=found.group, member_id=found.follower.member_id, members=members)
    everybody_asks(talk, request, Right(READ, GROUP, found.group))


@scenario(DescribeGroupsRequest, "3+", settings=SECURED)
def describing_groups(talk: Talk) -> None:
    seen, hidden = stage(talk, STABLE).group, stage(talk, EMPTY).group
    for operations in (False, True):
        request = DescribeGroupsRequest(groups=[seen, hidden], include_authorized_operations=operations)
        everybody_asks(talk, request, Right(DESCRIBE, GROUP, seen))
    everybody_asks(talk, request, Right(DESCRIBE, GROUP, seen), Right(AclOperation.ALTER_CONFIGS, GROUP, seen))


@scenario(ListGroupsRequest, "5", settings=SECURED)
def listing_groups(talk: Talk) -> None:
    group = stage(talk, EMPTY).group
    stage(talk, EMPTY, kind="hidden")
    everybody_asks(
        talk,
        ListGroupsRequest(),
        Right(DESCRIBE, GROUP, group),
        Right(DESCRIBE, CLUSTER),
        arrange=only_ours(talk),
    )


@scenario(DeleteGroupsRequest, "3", settings=SECURED)
def deleting_groups(talk: Talk) -> None:
    group, hidden = stage(talk, EMPTY).group, stage(talk, EMPTY, kind="hidden").group
    request = DeleteGroupsRequest(groups_names=[group, hidden, talk.name("nowhere")])
    everybody_asks(talk, request, Right(DELETE, GROUP, group))


@scenario(FindCoordinatorRequest, "3+", settings=SECURED)
def finding_coordinators(talk: Talk) -> None:
    group, hidden = talk.group(), talk.group("hidden")
    request = FindCoordinatorRequest(key=group, coordinator_keys=[group, hidden])
    everybody_asks(talk, request, Right(DESCRIBE, GROUP, group))
    transactions = FindCoordinatorRequest(key=group, key_type=1, coordinator_keys=[group, hidden])
    talk.until(transactions, lambda answer: not any(each.error_code for each in answer.coordinators))
    everybody_asks(talk, transactions, Right(DESCRIBE, ResourceType.TRANSACTIONAL_ID, group))
    if talk.version >= 6:
        share = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"{group}:AAAAAAAAAAAAAAAAAAAAAQ:0"])
        talk.until(share, lambda answer: not any(each.error_code for each in answer.coordinators))
        everybody_asks(talk, share, Right(DESCRIBE, GROUP, group), Right(AclOperation.CLUSTER_ACTION, CLUSTER))


# ------------------------------------------------------------------ offsets


@scenario(OffsetCommitRequest, "8+", settings=SECURED)
def committing_offsets(talk: Talk) -> None:
    group, topics = talk.group(), two_topics(talk)
    request = commit(group, topics[0], {0: 5}, topics=[commit_topic(each, {0: 5}) for each in topics])
    everybody_asks(talk, request, Right(READ, GROUP, group), Right(READ, TOPIC, topics[0].name))


@scenario(OffsetFetchRequest, "7+", settings=SECURED)
def fetching_offsets(talk: Talk) -> None:
    group, topics = talk.group(), two_topics(talk)
    for each in topics:
        talk.do(commit(group, each, {0: 5}))
    rights = Right(DESCRIBE, GROUP, group), Right(DESCRIBE, TOPIC, topics[0].name)
    hidden = fetch_group(talk.name("hidden"), (topics[0], [0]))
    asked = [(each, [0]) for each in topics]
    everybody_asks(talk, fetch(fetch_group(group, *asked), hidden), *rights)
    everybody_asks(talk, fetch(fetch_group(group, everything=True), hidden), *rights)


@scenario(OffsetDeleteRequest, settings=SECURED)
def deleting_offsets(talk: Talk) -> None:
    group, topics = talk.group(), two_topics(talk)
    for each in topics:
        talk.do(commit(group, each, {0: 5}))
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    asked = [OffsetDeleteRequestTopic(name=each.name, partitions=partitions) for each in topics]
    request = OffsetDeleteRequest(group_id=group, topics=asked)
    everybody_asks(talk, request, Right(DELETE, GROUP, group), Right(READ, TOPIC, topics[0].name))


# ------------------------------------------------------------------ groups of consumers


@scenario(ConsumerGroupHeartbeatRequest, settings=SECURED)
def joining_as_a_consumer(talk: Talk) -> None:
    group, topics = talk.group(), two_topics(talk)
    known(talk, topics[0])
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="the member",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[topics[0].name],
        topic_partitions=[],
    )
    everybody_asks(talk, request, Right(READ, GROUP, group), Right(DESCRIBE, TOPIC, topics[0].name))
    request.subscribed_topic_names = [each.name for each in topics]
    everybody_asks(talk, request, Right(READ, GROUP, group), Right(DESCRIBE, TOPIC, topics[0].name))


@scenario(ConsumerGroupDescribeRequest, settings=SECURED)
def describing_groups_of_consumers(talk: Talk) -> None:
    """Of a group whose members have topics that are hidden nothing is told."""
    group, topic = talk.group(), talk.topic()
    a_consumer(talk, group, topic)
    for operations in (False, True):
        request = ConsumerGroupDescribeRequest(
            group_ids=[group, talk.name("hidden")], include_authorized_operations=operations
        )
        rights = Right(DESCRIBE, GROUP, group), Right(DESCRIBE, TOPIC, topic.name)
        everybody_asks(talk, request, *rights, arrange=in_order_of_members)
