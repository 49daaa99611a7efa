"""Streams groups (KIP-1071): StreamsGroupHeartbeat, StreamsGroupDescribe and StreamsGroupTopologyDescriptionUpdate."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from ottla.groupcoord.runtime.answers import then
from ottla.groupcoord.streams.describing import undescribed
from ottla.groupcoord.streams.heartbeat import HeartbeatResult
from ottla.groupcoord.streams.heartbeat_checks import check_size, refused_heartbeat
from ottla.groupcoord.streams.topology import Status
from ottla.replication.cluster.metadata_cache import is_internal_topic, topic_name_problem
from ottla.server.api.visible_groups import Kind, describe_groups, describe_turned_off
from ottla.server.broker import Broker
from ottla.server.cluster.features import STREAMS_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import AclOperation, ResourceType, decided, denied_names, may_on_cluster, require
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import streams_group as wire
from ottla.wire.messages.streams_group import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    Topology,
)

FAILURES_TOLD_MAX = 3


@handles(StreamsGroupHeartbeatRequest, feature=STREAMS_VERSION)
def streams_group_heartbeat(
    request: StreamsGroupHeartbeatRequest, context: RequestContext[Broker]
) -> Answer[StreamsGroupHeartbeatResponse]:
    """StreamsGroupHeartbeat: join, stay in or leave a streams group whose tasks the broker assigns.

    Behaviour
    * `ottla.groupcoord.streams.heartbeat` describes how the group handles a heartbeat.
    * A topology with Kafka's own topics, or with invalid topic names, gets STREAMS_INVALID_TOPOLOGY.
    * The client needs the rights to read the group and to describe all topics of the topology.
    * Missing internal topics are created after the response (`ottla.server.cluster.streams_topics`). If the creation
      fails, later responses report why in the detail of MISSING_INTERNAL_TOPICS. If the client may create neither
      topics in the cluster nor all of these topics, none is created, and the detail reports this.
    """
    try:
        check_size(request)
    except KafkaError as error:
        return refused_heartbeat(error.code, error.message)
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    problem = None if request.topology is None else _problem(request.topology)
    if problem is not None:
        return refused_heartbeat(ErrorCode.STREAMS_INVALID_TOPOLOGY, problem)
    names = () if request.topology is None else _topic_names(request.topology)

    def go_on(denied: Collection[str]) -> Answer[StreamsGroupHeartbeatResponse]:
        if denied:
            return refused_heartbeat(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        answer = groups_of(context.broker).streams.heartbeat(
            request, api_version=context.api_version, client_id=context.client_id, client_host=context.client_host
        )
        return then(answer, lambda answered: _with_topics(answered, context))

    return decided(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, go_on)


def _problem(topology: Topology) -> str | None:
    """Return the error of invalid topic names in a topology; None if they are valid."""
    names = list(dict.fromkeys(_topic_names(topology)))
    internal = [name for name in names if is_internal_topic(name)]
    if internal:
        return f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
    invalid = [name for name in names if topic_name_problem(name) is not None]
    if invalid:
        return f"Topic names {','.join(invalid)} are not valid topic names."
    return None


def _topic_names(topology: Topology) -> Iterator[str]:
    for subtopology in topology.subtopologies:
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name


def _with_topics(answered: HeartbeatResult, context: RequestContext[Broker]) -> StreamsGroupHeartbeatResponse:
    """Request the creation of missing internal topics; add earlier failures to the response, and return it."""
    response, missing = answered.response, answered.missing_topics
    if not missing:
        return response
    topics = [topic.creation() for topic in missing]
    if forbidden := _forbidden(context, [topic.name for topic in topics]):
        _tell(response, f"Unauthorized to CREATE on topics {', '.join(forbidden)}.")
        return response
    failures = context.broker.streams_topics.create(topics, pause_ms=2 * response.heartbeat_interval_ms)
    if failures and _missing_topics(response) is not None:
        _tell(response, f"Creation failed: {_listed(failures.items())}.")
    return response


def _forbidden(context: RequestContext[Broker], names: Collection[str]) -> Collection[str]:
    if may_on_cluster(context, AclOperation.CREATE, quietly=True):
        return ()
    return denied_names(context, AclOperation.CREATE, ResourceType.TOPIC, names)


def _listed(failures: Iterable[tuple[str, str]]) -> str:
    listed = list(failures)
    told = ", ".join(f"{name} ({reason})" for name, reason in islice(listed, FAILURES_TOLD_MAX))
    if len(listed) > FAILURES_TOLD_MAX:
        told += f" and {len(listed) - FAILURES_TOLD_MAX} more"
    return told


def _missing_topics(response: StreamsGroupHeartbeatResponse) -> wire.Status | None:
    code = Status.MISSING_INTERNAL_TOPICS
    return next((each for each in response.status or () if each.status_code == code), None)


def _tell(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    """Append a detail about missing internal topics to the response's status."""
    status = _missing_topics(response)
    if status is not None:
        status.status_detail += f"; {detail}"
        return
    status = wire.Status(status_code=Status.MISSING_INTERNAL_TOPICS, status_detail=detail)
    response.status = [*(response.status or ()), status]


@handles(
    StreamsGroupDescribeRequest,
    feature=STREAMS_VERSION,
    turned_off=describe_turned_off(undescribed, StreamsGroupDescribeResponse),
)
def streams_group_describe(
    request: StreamsGroupDescribeRequest, context: RequestContext[Broker]
) -> Answer[StreamsGroupDescribeResponse]:
    """StreamsGroupDescribe: describe topology, members and assignments of streams groups.

    Behaviour
    * A group that does not exist, or has another type, gets GROUP_ID_NOT_FOUND; the message says which.
    * Topology descriptions are not stored, as in a Kafka broker without the plug-in for them: requests for them get
      NOT_STORED.
    * `server/api/visible_groups.py` describes the errors for groups and topics that the client may not describe.
    * While the feature for such groups is at level 0, each group gets UNSUPPORTED_VERSION.
    """
    kind = Kind(
        groups_of(context.broker).streams.describe,
        undescribed,
        _topics_of,
        "The described group uses topics that the client is not authorized to describe.",
    )
    return describe_groups(kind, request, context)


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for subtopology in (group.topology and group.topology.subtopologies) or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            yield topic.name


@handles(StreamsGroupTopologyDescriptionUpdateRequest, feature=STREAMS_VERSION)
def streams_group_topology_description_update(
    request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext[Broker]
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """StreamsGroupTopologyDescriptionUpdate: refused, because descriptions of topologies are not stored.

    The response is UNSUPPORTED_VERSION, as from a Kafka broker without a plug-in that stores the descriptions. Such
    brokers never request descriptions (`topology_description_required` in the heartbeat's response), so clients do not
    send them.
    """
    try:
        require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    except KafkaError as error:
        return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error.code, error_message=None)
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="The broker has no streams group topology description plugin configured.",
    )
