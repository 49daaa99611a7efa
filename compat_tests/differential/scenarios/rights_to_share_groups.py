"""Who may share records, see and set where a share group is, and ask share coordinators: with and without each right."""

from compat_tests.differential.asking import fill
from compat_tests.differential.asking_rights import Right, everybody_asks
from compat_tests.differential.asking_share import (
    alteration,
    deletion,
    described,
    heartbeat,
    in_order_of_members,
    joined,
    known,
    offsets_of,
)
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.logins import SECURED
from compat_tests.differential.scenarios import share_state
from compat_tests.differential.scenarios.rights_to_groups import GROUP
from compat_tests.differential.scenarios.rights_to_records import (
    CLUSTER,
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    READ,
    TOPIC,
    two_topics,
)
from compat_tests.differential.scenarios.share_groups import Group
from compat_tests.differential.scenarios.share_state import share_partition

from ottla.wire.messages.share_fetch import (
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from ottla.wire.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)


@scenario(ShareGroupHeartbeatRequest, settings=SECURED)
def joining(talk: Talk) -> None:
    group, topics = talk.group(), two_topics(talk)
    known(talk, topics[0])
    rights = Right(READ, GROUP, group), Right(DESCRIBE, TOPIC, topics[0].name)
    everybody_asks(talk, heartbeat(group, 0, topics[0].name), *rights)
    everybody_asks(talk, heartbeat(group, 0, *(each.name for each in topics)), *rights)


@scenario(ShareGroupDescribeRequest, settings=SECURED)
def describing_groups(talk: Talk) -> None:
    group, topic = talk.group(), talk.topic()
    joined(talk, group, topic)
    for operations in (False, True):
        request = described(group, talk.name("hidden"), operations=operations)
        rights = Right(DESCRIBE, GROUP, group), Right(DESCRIBE, TOPIC, topic.name)
        everybody_asks(talk, request, *rights, arrange=in_order_of_members)


@scenario(ShareFetchRequest, settings=SECURED)
def fetching(talk: Talk) -> None:
    topic, hidden = two_topics(talk)
    fill(talk, topic, [1])
    group = Group(talk, topic)
    request = group.request("member", 0, max_wait_ms=10_000)  # Kafka looks for records after it has begun to wait
    wanted = FetchPartition(partition_index=0, acknowledgement_batches=[])
    request.topics.append(FetchTopic(topic_id=hidden.id, partitions=[wanted]))
    everybody_asks(talk, request, Right(READ, GROUP, group.id), Right(READ, TOPIC, topic.name))


@scenario(ShareAcknowledgeRequest, settings=SECURED)
def acknowledging(talk: Talk) -> None:
    """Whoever may do it has no session, which comes after the rights."""
    topic, _ = two_topics(talk)
    group = Group(talk, topic)
    partitions = [AcknowledgePartition(partition_index=0, acknowledgement_batches=[])]
    request = ShareAcknowledgeRequest(
        group_id=group.id,
        member_id="member",
        share_session_epoch=1,
        topics=[AcknowledgeTopic(topic_id=topic.id, partitions=partitions)],
    )
    everybody_asks(talk, request, Right(READ, GROUP, group.id), Right(READ, TOPIC, topic.name))


# ------------------------------------------------------------------ administrators of offsets


@scenario(DescribeShareGroupOffsetsRequest, settings=SECURED)
def describing_offsets(talk: Talk) -> None:
    group, topics = talk.group(), two_topics(talk)
    for each in topics:
        known(talk, each)
    talk.until(alteration(group, *((each.name, 0, 0) for each in topics)), lambda answer: not answer.error_code)
    rights = Right(DESCRIBE, GROUP, group), Right(DESCRIBE, TOPIC, topics[0].name)
    everybody_asks(talk, offsets_of(group, *((each.name, (0,)) for each in topics)), *rights)
    everybody_asks(talk, offsets_of(group), *rights)


@scenario(AlterShareGroupOffsetsRequest, settings=SECURED)
def altering_offsets(talk: Talk) -> None:
    group, topics = talk.group(), two_topics(talk)
    for each in topics:
        known(talk, each)
    talk.until(alteration(group, (topics[0].name, 0, 0)), lambda answer: not answer.error_code)
    request = alteration(group, *((each.name, 0, 0) for each in topics))
    everybody_asks(talk, request, Right(READ, GROUP, group), Right(READ, TOPIC, topics[0].name))


@scenario(DeleteShareGroupOffsetsRequest, settings=SECURED)
def deleting_offsets(talk: Talk) -> None:
    group, topics = talk.group(), two_topics(talk)
    for each in topics:
        known(talk, each)
    talk.until(alteration(group, *((each.name, 0, 0) for each in topics)), lambda answer: not answer.error_code)
    request = deletion(group, *(each.name for each in topics))
    everybody_asks(talk, request, Right(DELETE, GROUP, group), Right(READ, TOPIC, topics[0].name))


# ------------------------------------------------------------------ share coordinators, which only brokers ask


@scenario(InitializeShareGroupStateRequest, settings=SECURED)
def beginning_states(talk: Talk) -> None:
    group, topic = share_partition(talk)
    everybody_asks(talk, share_state.initialize(group, topic.id), Right(CLUSTER_ACTION, CLUSTER))


@scenario(ReadShareGroupStateRequest, settings=SECURED)
def reading_states(talk: Talk) -> None:
    group, topic = share_partition(talk)
    everybody_asks(talk, share_state.read(group, topic.id), Right(CLUSTER_ACTION, CLUSTER))


def begun(talk: Talk, group: str, topic: Topic) -> None:
    """Kafka's coordinator may hear of the topic a little later."""
    talk.until(share_state.initialize(group, topic.id), lambda answer: not answer.results[0].partitions[0].error_code)


@scenario(WriteShareGroupStateRequest, settings=SECURED)
def writing_states(talk: Talk) -> None:
    group, topic = share_partition(talk)
    begun(talk, group, topic)
    everybody_asks(talk, share_state.write(group, topic.id, (0, 9, 2, 1)), Right(CLUSTER_ACTION, CLUSTER))


@scenario(DeleteShareGroupStateRequest, settings=SECURED)
def deleting_states(talk: Talk) -> None:
    group, topic = share_partition(talk)
    begun(talk, group, topic)
    everybody_asks(talk, share_state.delete(group, topic.id), Right(CLUSTER_ACTION, CLUSTER))


@scenario(ReadShareGroupStateSummaryRequest, settings=SECURED)
def reading_summaries(talk: Talk) -> None:
    group, topic = share_partition(talk)
    everybody_asks(talk, share_state.summary(group, topic.id), Right(CLUSTER_ACTION, CLUSTER))
