"""StreamsGroupHeartbeat: join, stay in or leave a streams group, whose tasks the broker assigns.

Behaviour
* What the group makes of a heartbeat: `ottla.groupcoord.groups.streams.heartbeat`.
* A topology that names Kafka's own topics, or names that no topic can have, is STREAMS_INVALID_TOPOLOGY.
* Internal topics that are missing are created after the answer (`ottla.server.cluster.streams_topics`). If one cannot be,
  later answers say why in the detail of MISSING_INTERNAL_TOPICS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from ottla.groupcoord.groups.kinds import STREAMS
from ottla.groupcoord.groups.streams.heartbeat import Answered
from ottla.groupcoord.groups.streams.requests import check_size, refused_heartbeat
from ottla.groupcoord.groups.streams.status import Status
from ottla.groupcoord.runtime.answers import then
from ottla.replication.cluster.state import is_internal_topic, topic_name_problem
from ottla.server.cluster.features import STREAMS_VERSION
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups, HasStreamsTopics
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Topology,
)

FAILURES_TOLD_MAX = 3


class Port(HasGroups, HasStreamsTopics, Protocol):
    """What this handler needs of a broker."""


@handles(StreamsGroupHeartbeatRequest, feature=STREAMS_VERSION, prepare=STREAMS.load)
def streams_group_heartbeat(
    request: StreamsGroupHeartbeatRequest, context: RequestContext[Port]
) -> Answer[StreamsGroupHeartbeatResponse]:
    try:
        check_size(request)
    except KafkaError as error:
        return refused_heartbeat(error.code, error.message)
    problem = None if request.topology is None else _problem(request.topology)
    if problem is not None:
        return refused_heartbeat(ErrorCode.STREAMS_INVALID_TOPOLOGY, problem)
    answer = context.broker.groups.streams.heartbeat(
        request,
        api_version=context.api_version,
        client_id=context.client_id,
        client_host=context.client_host,
    )
    return then(answer, lambda answered: _with_topics(answered, context.broker))


def _problem(topology: Topology) -> str | None:
    """What is wrong with the names of a topology."""
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


def _with_topics(answered: Answered, broker: Port) -> StreamsGroupHeartbeatResponse:
    """Have missing topics created; the answer then tells what kept them from being created before."""
    response, missing = answered.response, answered.missing_topics
    if missing:
        topics = [topic.creation() for topic in missing]
        failures = broker.streams_topics.create(topics, pause_ms=2 * response.heartbeat_interval_ms)
        if failures:
            _tell(response, failures.items())
    return response


def _tell(response: StreamsGroupHeartbeatResponse, failures: Iterable[tuple[str, str]]) -> None:
    listed = list(failures)
    told = ", ".join(f"{name} ({reason})" for name, reason in islice(listed, FAILURES_TOLD_MAX))
    if len(listed) > FAILURES_TOLD_MAX:
        told += f" and {len(listed) - FAILURES_TOLD_MAX} more"
    for status in response.status or ():
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; Creation failed: {told}."
