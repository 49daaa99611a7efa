"""Metadata: the brokers, the controller, and who leads the partitions of topics.

Behaviour
* Topics null (in v0 an empty list) mean all topics; an empty list means none. A topic asked for twice comes once.
* A missing topic is UNKNOWN_TOPIC_OR_PARTITION, also in the answer that has it created: clients ask again. It is created
  if the request allows that (always below v4) and auto.create.topics.enable does; never in an answer about all topics.
* From v12 on topics may be asked for by id; if any is, names are not looked at. An unknown id is UNKNOWN_TOPIC_ID.
* A partition without a live leader gets LEADER_NOT_AVAILABLE. If its leader lacks the client's listener it gets
  LISTENER_NOT_FOUND, below v6 LEADER_NOT_AVAILABLE. v0 leaves out replicas that clients cannot reach.
* Partitions that the controller has not named yet are left out.
* Topics that the client may not describe are left out of an answer about all topics. Asked for by name or id they are
  TOPIC_AUTHORIZATION_FAILED, and the answer does not tell whether one of that name exists; ids are no secret. So is a
  missing topic that would be created if the client may create neither topics of the cluster nor that one.
* A long answer is put together in slices and encoded in a thread, so that others are served in between. An answer about all
  topics is made once for concurrent requests, and kept for equal requests until something changes.
* If the peer leaves during a long answer, what topics that request would have created may not be created.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import trio

from ottla.replication.cluster.metadata_cache import (
    NO_LEADER,
    PartitionState,
    TopicState,
    is_internal_topic,
    topic_name_problem,
)
from ottla.server.broker import Broker
from ottla.server.dispatch.access import (
    CLUSTER_NAME,
    OPERATIONS_NOT_ASKED,
    AclOperation,
    ResourceType,
    allowed_names,
    authorized_operations,
    denied_names,
    may_on_cluster,
)
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
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


@handles(MetadataRequest)
def metadata(request: MetadataRequest, context: RequestContext[Broker]) -> Answer[MetadataResponse]:
    view = TopicView(context, with_operations=request.include_topic_authorized_operations)
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return _about_all_topics(view, request, context)
    asked = RequestedTopics()
    if len(request.topics) > NAMES_PER_SLICE:
        return _look_up_in_slices(view, request, asked, context)
    asked.add(request.topics)
    if (code := asked.refusal(context.api_version)) is not None:
        return _refused(code, request.topics)
    topics = Topics()
    if asked.ids:
        topics.look_up_ids(view, asked.ids)
    else:
        topics.look_up_names(view, asked.names, may_create=request.allow_auto_topic_creation)
    return _answer(view, request, topics)


class RequestedTopics:
    """Names and ids of topics in a request, each once."""

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
        """Return the error for topics with neither name nor id, or with ids or null names before v12; None if valid."""
        if api_version < ASK_BY_ID_SINCE:
            return ErrorCode.INVALID_REQUEST if self.ids or self._has_nameless else None
        return ErrorCode.UNKNOWN_SERVER_ERROR if self._has_nameless and not self.ids else None  # Kafka fails over it


def _about_all_topics(
    view: TopicView, request: MetadataRequest, context: RequestContext[Broker]
) -> Answer[MetadataResponse]:
    broker, authorizer = context.broker, context.broker.authorizer
    key = (
        context.listener_name,
        context.api_version,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
        # Who asks, and by which rules: two clients may see different topics.
        None if authorizer is None else (context.principal, context.client_host, authorizer.version),
    )
    made = broker.long_answers.get(broker.cluster.version, key)
    if made is not None:
        return made
    if not _are_many(view.cluster.topics.values()):
        topics = Topics()
        topics.take_allowed(view, view.cluster.topics)
        return _answer(view, request, topics)
    put_together = partial(_encoded, view, request, context.api_version)
    return broker.long_answers.make(key, put_together, lambda: broker.cluster.version)


async def _encoded(view: TopicView, request: MetadataRequest, version: int) -> bytes:
    view.see_brokers()
    topics = Topics()
    for names in _slices(list(view.cluster.topics)):
        topics.take_allowed(view, names)
        # Only whoever has to decide about each topic takes long over this.
        if view.context.broker.authorizer is not None:
            await trio.lowlevel.checkpoint()
    answer = _answer(view, request, topics)
    response = answer if isinstance(answer, MetadataResponse) else await answer
    return await trio.to_thread.run_sync(response.encode, version, limiter=_encoders)


async def _look_up_in_slices(
    view: TopicView, request: MetadataRequest, asked: RequestedTopics, context: RequestContext[Broker]
) -> MetadataResponse:
    assert request.topics is not None
    for piece in _slices(request.topics):
        asked.add(piece)
        await trio.lowlevel.checkpoint()
    if (code := asked.refusal(context.api_version)) is not None:
        return await _refused_in_slices(code, request.topics)
    topics = Topics()
    for wanted in _slices(list(asked.ids or asked.names)):
        if asked.ids:
            topics.look_up_ids(view, wanted)
        else:
            topics.look_up_names(view, wanted, may_create=request.allow_auto_topic_creation)
        await trio.lowlevel.checkpoint()
    answer = _answer(view, request, topics)
    return answer if isinstance(answer, MetadataResponse) else await answer


def _slices(names: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(names), NAMES_PER_SLICE):
        yield names[start : start + NAMES_PER_SLICE]


class TopicView:
    """Topics as one client sees them, by its listener, request version and rights."""

    def __init__(self, context: RequestContext[Broker], *, with_operations: bool) -> None:
        self.context = context
        self.cluster = context.broker.cluster
        self._listener, version = context.listener_name, context.api_version
        self._with_operations = with_operations
        self.see_brokers()
        self._without_unreachable = version == 0
        self._no_listener = (
            ErrorCode.LISTENER_NOT_FOUND if version >= LISTENER_NOT_FOUND_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
        )

    def see_brokers(self) -> None:
        """Update the brokers that are alive at this listener."""
        self.endpoints = list(self.cluster.endpoints(self._listener))
        self._reachable = {endpoint.node_id for endpoint in self.endpoints}

    def _operations(self, name: str) -> int:
        if not self._with_operations:
            return OPERATIONS_NOT_ASKED
        return authorized_operations(self.context, ResourceType.TOPIC, name)

    def cluster_operations(self) -> int:
        """Return the client's authorized operations on the cluster as bits; 0 if it may not describe the cluster."""
        if not may_on_cluster(self.context, AclOperation.DESCRIBE):
            return 0
        return authorized_operations(self.context, ResourceType.CLUSTER, CLUSTER_NAME)

    def topic(self, topic: TopicState) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[self.partition(index, state) for index, state in enumerate(topic.partitions) if state.replicas],
            topic_authorized_operations=self._operations(topic.name),
        )

    def missing(self, error: ErrorCode, name: str) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=error,
            name=name,
            is_internal=is_internal_topic(name),
            partitions=[],
            topic_authorized_operations=self._operations(name),
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
        """Return the metadata of a partition that has offline replicas, or brokers not alive at this listener."""
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


class Topics:
    """Topics of a response, grouped in Kafka's order."""

    def __init__(self) -> None:
        self.unknown_ids: list[MetadataResponseTopic] = []
        self.found: list[TopicState] = []
        self.missing: list[MetadataResponseTopic] = []
        self.not_created: list[MetadataResponseTopic] = []
        self.not_described: list[MetadataResponseTopic] = []

    @property
    def after_found(self) -> list[MetadataResponseTopic]:
        return self.missing + self.not_created + self.not_described

    def take_allowed(self, view: TopicView, names: Collection[str]) -> None:
        """Add the existing topics that the client may describe; omit the others."""
        topics = view.cluster.topics
        allowed = allowed_names(view.context, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
        self.found += [topics[name] for name in allowed if name in topics]

    def look_up_ids(self, view: TopicView, ids: Iterable[bytes]) -> None:
        found = []
        for topic_id in ids:
            topic = view.cluster.topic_by_id.get(topic_id)
            if topic is not None:
                found.append(topic)
            else:
                self.unknown_ids.append(_without_name(ErrorCode.UNKNOWN_TOPIC_ID, topic_id))
        denied = _denied(view, AclOperation.DESCRIBE, [topic.name for topic in found])
        for topic in found:
            if topic.name in denied:
                self.not_described.append(_without_name(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic.topic_id))
            else:
                self.found.append(topic)

    def look_up_names(self, view: TopicView, names: Collection[str], *, may_create: bool) -> None:
        """Look up topics; create missing ones if `may_create`, the settings and the client's rights allow it."""
        unknown = []
        denied = _denied(view, AclOperation.DESCRIBE, names)
        for name in names:
            topic = view.cluster.topics.get(name)
            if name in denied:
                self.not_described.append(_refused_topic(name, is_internal=False))
            elif topic is not None:
                self.found.append(topic)
            else:
                unknown.append(name)
        broker = view.context.broker
        is_created = bool(unknown) and may_create and broker.config.replication.auto_create_topics_enable
        if is_created and not may_on_cluster(view.context, AclOperation.CREATE, quietly=True):
            denied = _denied(view, AclOperation.CREATE, unknown)
            self.not_created += [
                _refused_topic(name, is_internal=is_internal_topic(name)) for name in unknown if name in denied
            ]
            unknown = [name for name in unknown if name not in denied]
        is_good = [topic_name_problem(name) is None for name in unknown]
        self.missing += [
            view.missing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if good else ErrorCode.INVALID_TOPIC_EXCEPTION, name)
            for name, good in zip(unknown, is_good, strict=True)
        ]
        if is_created and any(is_good):
            broker.administration.request_creation([name for name, good in zip(unknown, is_good, strict=True) if good])


def _denied(view: TopicView, operation: AclOperation, names: Collection[str]) -> Collection[str]:
    return denied_names(view.context, operation, ResourceType.TOPIC, names)


def _without_name(error: ErrorCode, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id, is_internal=False, partitions=[])


def _refused_topic(name: str, *, is_internal: bool) -> MetadataResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal, partitions=[])


def _answer(view: TopicView, request: MetadataRequest, topics: Topics) -> Worked[MetadataResponse]:
    with_cluster_operations = request.include_cluster_authorized_operations
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in view.endpoints
        ],
        cluster_id=view.cluster.cluster_id,
        controller_id=view.cluster.controller_id,
        topics=list(topics.unknown_ids),
        cluster_authorized_operations=view.cluster_operations() if with_cluster_operations else OPERATIONS_NOT_ASKED,
    )
    if not _are_many(topics.found):
        response.topics += map(view.topic, topics.found)
        response.topics += topics.after_found
        return response
    return _in_slices(view, topics, response)


def _are_many(topics: Collection[TopicState]) -> bool:
    return len(topics) > PARTITIONS_PER_SLICE or sum(len(each.partitions) for each in topics) > PARTITIONS_PER_SLICE


async def _in_slices(view: TopicView, topics: Topics, response: MetadataResponse) -> MetadataResponse:
    """Add the topics to the response and return it; yield after every PARTITIONS_PER_SLICE partitions."""
    told = 0
    for topic in topics.found:
        response.topics.append(view.topic(topic))
        told += len(topic.partitions)
        if told >= PARTITIONS_PER_SLICE:
            await trio.lowlevel.checkpoint()
            told = 0
    response.topics += topics.after_found
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
