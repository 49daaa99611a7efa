"""Metadata: the brokers, the controller, and who leads the partitions of topics.

Behaviour
* Topics null (in v0 an empty list) mean all topics; an empty list means none. A topic asked for twice comes once.
* A missing topic is UNKNOWN_TOPIC_OR_PARTITION, also in the answer that has it created: clients ask again. It is created
  if the request allows that (always below v4) and auto.create.topics.enable does; never in an answer about all topics.
* From v12 on topics may be asked for by id; if any is, names are not looked at. An unknown id is UNKNOWN_TOPIC_ID.
* A partition whose leader is gone is LEADER_NOT_AVAILABLE; one whose leader does not have the listener that was asked is
  LISTENER_NOT_FOUND, below v6 LEADER_NOT_AVAILABLE. v0 leaves out replicas that clients cannot reach.
* Partitions that the controller has not named yet are left out.
* A long answer is put together in slices and encoded in a thread, so that others are served in between. One about all
  topics is made for all who ask at once, and kept for whoever asks the same before anything changes.
* If the peer leaves during a long answer, what topics that request would have created may not be created.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import trio

from ottla.replication.cluster.state import (
    NO_LEADER,
    ClusterState,
    PartitionState,
    TopicState,
    is_internal_topic,
    topic_name_problem,
)
from ottla.server.gate.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasAdministration, HasCluster, HasLongAnswers, HasSettings
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema import ZERO_UUID

PARTITIONS_PER_SLICE = 2_000
NAMES_PER_SLICE = 500
_encoders = trio.CapacityLimiter(1)
ASK_BY_ID_SINCE = 12
LISTENER_NOT_FOUND_SINCE = 6


class Port(HasAdministration, HasCluster, HasLongAnswers, HasSettings, Protocol):
    """What is needed of the broker here."""


@handles(MetadataRequest, answers_at_length=True, few_at_once=True, reads_only=True)
def metadata(request: MetadataRequest, context: RequestContext[Port]) -> Answer[MetadataResponse]:
    view = TopicView(context.broker.cluster, context.listener_name, context.api_version)
    view.with_operations = request.include_topic_authorized_operations
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return _about_all_topics(view, request, context)
    asked = Asked()
    if len(request.topics) > NAMES_PER_SLICE:
        return _look_up_in_slices(view, request, asked, context)
    asked.add(request.topics)
    if (code := asked.refusal(context.api_version)) is not None:
        return _refused(code, request.topics)
    if asked.ids:
        found, unknown = _by_id(view, asked.ids)
        return _answer(view, request, found, before=unknown)
    found, missing = _by_name(view, asked.names, context.broker, request.allow_auto_topic_creation)
    return _answer(view, request, found, after=missing)


class Asked:
    """What a request asks for, each name and each id once."""

    def __init__(self) -> None:
        self.ids: dict[bytes, None] = {}
        self.names: dict[str, None] = {}
        self._has_nameless = False

    def add(self, topics: Iterable[MetadataRequestTopic]) -> None:
        for topic in topics:
            name = topic.name
            if name is None:
                self._has_nameless = True
                name = ""
            self.names[name] = None
            if topic.topic_id != ZERO_UUID:
                self.ids[topic.topic_id] = None

    def refusal(self, api_version: int) -> ErrorCode | None:
        """Why the request is refused: for ids or null names before they were introduced, later for neither id nor name."""
        if api_version < ASK_BY_ID_SINCE:
            return ErrorCode.INVALID_REQUEST if self.ids or self._has_nameless else None
        return ErrorCode.UNKNOWN_SERVER_ERROR if self._has_nameless and not self.ids else None  # Kafka fails over it


def _about_all_topics(view: TopicView, request: MetadataRequest, context: RequestContext[Port]) -> Answer[MetadataResponse]:
    key = (
        context.listener_name,
        context.api_version,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
    )
    broker = context.broker
    made = broker.long_answers.get(broker.cluster.version, key)
    if made is not None:
        return made
    if not _are_many(view.cluster.topics.values()):
        return _answer(view, request, list(view.cluster.topics.values()))
    put_together = partial(_encoded, broker, context.listener_name, context.api_version, request)
    return broker.long_answers.make(key, put_together, lambda: broker.cluster.version)


async def _encoded(broker: Port, listener_name: str, version: int, request: MetadataRequest) -> bytes:
    view = TopicView(broker.cluster, listener_name, version)
    view.with_operations = request.include_topic_authorized_operations
    answer = _answer(view, request, list(view.cluster.topics.values()))
    response = answer if isinstance(answer, MetadataResponse) else await answer
    return await trio.to_thread.run_sync(response.encode, version, limiter=_encoders)


async def _look_up_in_slices(
    view: TopicView, request: MetadataRequest, asked: Asked, context: RequestContext[Port]
) -> MetadataResponse:
    """The same for very many ids or names."""
    assert request.topics is not None
    for piece in _slices(request.topics):
        asked.add(piece)
        await trio.lowlevel.checkpoint()
    if (code := asked.refusal(context.api_version)) is not None:
        return await _refused_in_slices(code, request.topics)
    found: list[TopicState] = []
    missing: list[MetadataResponseTopic] = []
    for wanted in _slices(list(asked.ids or asked.names)):
        if asked.ids:
            more, absent = _by_id(view, wanted)
        else:
            more, absent = _by_name(view, wanted, context.broker, request.allow_auto_topic_creation)
        found += more
        missing += absent
        await trio.lowlevel.checkpoint()
    answer = _answer(view, request, found, before=missing if asked.ids else (), after=() if asked.ids else missing)
    return answer if isinstance(answer, MetadataResponse) else await answer


def _slices(names: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(names), NAMES_PER_SLICE):
        yield names[start : start + NAMES_PER_SLICE]


class TopicView:
    """How topics look to the clients of one listener at one version."""

    def __init__(self, cluster: ClusterState, listener: str, version: int) -> None:
        self.cluster = cluster
        self.endpoints = list(cluster.endpoints(listener))
        self.with_operations = False
        self._reachable = {endpoint.node_id for endpoint in self.endpoints}
        self._without_unreachable = version == 0
        self._no_listener = (
            ErrorCode.LISTENER_NOT_FOUND if version >= LISTENER_NOT_FOUND_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def topic(self, topic: TopicState) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[self.partition(index, state) for index, state in enumerate(topic.partitions) if state.replicas],
            topic_authorized_operations=TOPIC_OPERATIONS if self.with_operations else OPERATIONS_NOT_ASKED,
        )

    def missing(self, error: ErrorCode, *, name: str | None, topic_id: bytes = ZERO_UUID) -> MetadataResponseTopic:
        is_named = name is not None
        return MetadataResponseTopic(
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=name is not None and is_internal_topic(name),
            partitions=[],
            topic_authorized_operations=TOPIC_OPERATIONS if self.with_operations and is_named else OPERATIONS_NOT_ASKED,
        )

    def partition(self, index: int, state: PartitionState) -> MetadataResponsePartition:
        reachable = self._reachable
        if reachable.issuperset(state.replicas) and state.leader in reachable and not state.offline_replicas:
            return MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
            )
        return self._impaired_partition(index, state)

    def _impaired_partition(self, index: int, state: PartitionState) -> MetadataResponsePartition:
        """A partition some of whose brokers cannot be reached through this listener, or have lost their replica."""
        replicas, isr = list(state.replicas), list(state.isr)
        offline = [each for each in replicas if each not in self._reachable or each in state.offline_replicas]
        if self._without_unreachable:
            replicas = [broker for broker in replicas if broker in self._reachable]
            isr = [broker for broker in isr if broker in self._reachable]
        error = ErrorCode.NONE
        leader = state.leader
        if leader not in self._reachable:
            error = self._no_listener if leader in self.cluster.brokers else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        elif len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline,
        )


def _by_id(view: TopicView, ids: Iterable[bytes]) -> tuple[list[TopicState], list[MetadataResponseTopic]]:
    found, missing = [], []
    for topic_id in ids:
        topic = view.cluster.topic_by_id.get(topic_id)
        if topic is not None:
            found.append(topic)
        else:
            missing.append(view.missing(ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id))
    return found, missing


def _by_name(
    view: TopicView, names: Iterable[str], broker: Port, may_create: bool
) -> tuple[list[TopicState], list[MetadataResponseTopic]]:
    found, missing, unknown = [], [], []
    for name in names:
        topic = view.cluster.topics.get(name)
        if topic is not None:
            found.append(topic)
        elif topic_name_problem(name) is not None:
            missing.append(view.missing(ErrorCode.INVALID_TOPIC_EXCEPTION, name=name))
        else:
            unknown.append(name)
            missing.append(view.missing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name))
    if unknown and may_create and broker.config.replication.auto_create_topics_enable:
        broker.administration.request_creation(unknown)
    return found, missing


def _answer(
    view: TopicView,
    request: MetadataRequest,
    topics: Sequence[TopicState],
    *,
    before: Sequence[MetadataResponseTopic] = (),
    after: Sequence[MetadataResponseTopic] = (),
) -> Worked[MetadataResponse]:
    with_cluster_operations = request.include_cluster_authorized_operations
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in view.endpoints
        ],
        cluster_id=view.cluster.cluster_id,
        controller_id=view.cluster.controller_id,
        topics=list(before),
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_cluster_operations else OPERATIONS_NOT_ASKED,
    )
    if not _are_many(topics):
        response.topics += map(view.topic, topics)
        response.topics += after
        return response
    return _in_slices(view, topics, after, response)


def _are_many(topics: Collection[TopicState]) -> bool:
    return len(topics) > PARTITIONS_PER_SLICE or sum(len(each.partitions) for each in topics) > PARTITIONS_PER_SLICE


async def _in_slices(
    view: TopicView,
    topics: Sequence[TopicState],
    after: Sequence[MetadataResponseTopic],
    response: MetadataResponse,
) -> MetadataResponse:
    """Add the topics a slice at a time. A topic's own partitions may be more than a slice, so they count too."""
    told = 0
    for topic in topics:
        response.topics.append(view.topic(topic))
        told += len(topic.partitions)
        if told >= PARTITIONS_PER_SLICE:
            await trio.lowlevel.checkpoint()
            told = 0
    response.topics += after
    return response


def _refused(code: ErrorCode, topics: Iterable[MetadataRequestTopic]) -> MetadataResponse:
    refused = [
        MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
        for topic in topics
    ]
    return MetadataResponse(brokers=[], topics=refused, error_code=code)


async def _refused_in_slices(code: ErrorCode, topics: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    response = _refused(code, ())
    for piece in _slices(topics):
        response.topics += _refused(code, piece).topics
        await trio.lowlevel.checkpoint()
    return response
