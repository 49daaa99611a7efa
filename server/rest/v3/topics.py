"""Topics, their partitions and replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.server.rest import admin
from ottla.server.rest.api import NO_CONTENT, Answer
from ottla.server.rest.bodies import member, number
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.errors import KafkaFailure, bad_request, check
from ottla.server.rest.v3.clusters import replica_json
from ottla.server.rest.v3.configs import Owner, add_configs, config_json
from ottla.server.rest.v3.resources import Json, Scope, Scoped, not_found
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.messages.partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.wire.schema import ZERO_UUID

CHANGE_TIMEOUT_MS = 25_000
_DEFAULT = -1
_ONE = "/topics/{}/partitions/{}"


class Topics:
    """Handlers of /topics within a cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def add_to(self, scoped: Scoped) -> None:
        scoped.add("GET", "/topics", self._list)
        scoped.add("POST", "/topics", self._create)
        scoped.add("GET", "/topics/-/configs", self._all_configs)
        scoped.add("GET", "/topics/-/partitions/-/reassignment", self._reassignments)
        scoped.add("GET", "/topics/{}", self._topic)
        scoped.add("PATCH", "/topics/{}", self._extend)
        scoped.add("DELETE", "/topics/{}", self._delete)
        add_configs(scoped, self._cluster, "/topics/{}/configs", self._owner)
        scoped.add("GET", "/topics/{}/partitions", self._partitions)
        scoped.add("GET", "/topics/{}/partitions/-/reassignment", self._reassignments)
        scoped.add("GET", _ONE, self._partition)
        scoped.add("GET", f"{_ONE}/offset", self._offset)
        scoped.add("GET", f"{_ONE}/reassignment", self._reassignment)
        scoped.add("GET", f"{_ONE}/replicas", self._replicas)
        scoped.add("GET", _ONE + "/replicas/{}", self._replica)

    async def _list(self, scope: Scope) -> Any:
        found = (await self._cluster.refreshed(None)).topics
        data = [_topic_json(scope, each) for each in sorted(found, key=_name) if not each.error_code]
        return scope.listed("KafkaTopicList", ("topics",), data)

    async def _found(self, name: str) -> MetadataResponseTopic:
        [found] = (await self._cluster.refreshed([name])).topics
        check(found.error_code)
        return found

    async def _topic(self, scope: Scope) -> Any:
        return _topic_json(scope, await self._found(scope.parts[0]))

    # --- changes

    async def _create(self, scope: Scope) -> Any:
        body = scope.body()
        topic = _creatable(body)
        only_checks = bool(member(body, "validate_only", bool))
        request = CreateTopicsRequest(topics=[topic], timeout_ms=CHANGE_TIMEOUT_MS, validate_only=only_checks)

        def take(answer: Any) -> Any:
            [told] = answer.topics
            check(told.error_code, told.error_message)
            return told

        told = await self._cluster.ask_controller(request, take)
        count, replicas = topic.num_partitions, topic.replication_factor
        if topic.assignments:
            count, replicas = len(topic.assignments), len(topic.assignments[0].broker_ids)
        count = told.num_partitions if told.num_partitions >= 0 else count
        replicas = told.replication_factor if told.replication_factor >= 0 else replicas
        content = _topic_content(scope, topic.name, count, replicas, is_internal=False)
        return Answer(content, 200 if only_checks else 201)

    async def _extend(self, scope: Scope) -> Any:
        [name] = scope.parts
        count = number(scope.body(), "partitions_count", 32, is_needed=True)
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=CHANGE_TIMEOUT_MS, validate_only=False)
        await self._cluster.ask_controller(request, lambda answer: _check_all(answer.results))
        self._cluster.forget_topic(name)
        return _topic_json(scope, await self._found(name))

    async def _delete(self, scope: Scope) -> Any:
        [name] = scope.parts
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], topic_names=[name], timeout_ms=CHANGE_TIMEOUT_MS
        )
        await self._cluster.ask_controller(request, lambda answer: _check_all(answer.responses))
        self._cluster.forget_topic(name)
        return NO_CONTENT

    # --- settings

    async def _owner(self, scope: Scope) -> Owner:
        return _owner_of(scope.parts[0])

    async def _all_configs(self, scope: Scope) -> Any:
        data: list[Json] = []
        for each in sorted((await self._cluster.refreshed(None)).topics, key=_name):
            name = each.name or ""
            found = await admin.describe_configs(self._cluster, admin.TOPIC, name)
            data += [config_json(scope, _owner_of(name), config) for config in found]
        return scope.listed("KafkaTopicConfigList", ("topics", "-", "configs"), data)

    # --- partitions

    async def _partitions(self, scope: Scope) -> Any:
        [name] = scope.parts
        found = (await self._found(name)).partitions
        data = [_partition_json(scope, name, each) for each in sorted(found, key=lambda part: part.partition_index)]
        return scope.listed("KafkaPartitionList", ("topics", name, "partitions"), data)

    async def _found_partition(self, scope: Scope) -> tuple[str, MetadataResponsePartition]:
        name, text = scope.parts[:2]
        for each in (await self._found(name)).partitions:
            if str(each.partition_index) == text:
                return name, each
        raise not_found(f"Partition {text[:50]} of topic {name[:250]} cannot be found.")

    async def _partition(self, scope: Scope) -> Any:
        return _partition_json(scope, *await self._found_partition(scope))

    async def _offset(self, scope: Scope) -> Any:
        name, part = await self._found_partition(scope)
        place = name, part.partition_index
        earliest = await admin.offsets_at(self._cluster, [place], admin.EARLIEST)
        latest = await admin.offsets_at(self._cluster, [place], admin.LATEST)
        content = {
            "topic_name": name,
            "partition_id": part.partition_index,
            "earliest_offset": earliest[place],
            "latest_offset": latest[place],
        }
        segments = ("topics", name, "partitions", part.partition_index, "offset")
        return scope.resource(
            "KafkaPartitionWithOffsets", segments, f"/topic={name}/partition={part.partition_index}/offset", content
        )

    async def _replicas(self, scope: Scope) -> Any:
        name, part = await self._found_partition(scope)
        data = [replica_json(scope, name, part, each) for each in part.replica_nodes]
        segments = ("topics", name, "partitions", part.partition_index, "replicas")
        return scope.listed("KafkaReplicaList", segments, data)

    async def _replica(self, scope: Scope) -> Any:
        name, part = await self._found_partition(scope)
        for each in part.replica_nodes:
            if str(each) == scope.parts[2]:
                return replica_json(scope, name, part, each)
        raise not_found(f"Replica {scope.parts[2][:50]} cannot be found.")

    # --- reassignments

    async def _reassignments(self, scope: Scope) -> Any:
        topics = None
        if scope.parts:
            numbers = [each.partition_index for each in (await self._found(scope.parts[0])).partitions]
            topics = [ListPartitionReassignmentsTopics(name=scope.parts[0], partition_indexes=numbers)]
        data = await self._moving(scope, topics)
        segments = ("topics", scope.parts[0] if scope.parts else "-", "partitions", "-", "reassignment")
        return scope.listed("KafkaReassignmentList", segments, data)

    async def _reassignment(self, scope: Scope) -> Any:
        name, part = await self._found_partition(scope)
        wanted = ListPartitionReassignmentsTopics(name=name, partition_indexes=[part.partition_index])
        found = await self._moving(scope, [wanted])
        if not found:
            raise not_found()
        return found[0]

    async def _moving(self, scope: Scope, topics: Sequence[ListPartitionReassignmentsTopics] | None) -> list[Json]:
        request = ListPartitionReassignmentsRequest(
            timeout_ms=CHANGE_TIMEOUT_MS, topics=None if topics is None else list(topics)
        )

        def take(answer: Any) -> list[Json]:
            check(answer.error_code, answer.error_message)
            return [_moving_json(scope, topic.name, each) for topic in answer.topics for each in topic.partitions]

        return await self._cluster.ask_controller(request, take)


def _name(topic: MetadataResponseTopic) -> str:
    return topic.name or ""


def _owner_of(name: str) -> Owner:
    return Owner(
        admin.TOPIC, name, "KafkaTopicConfig", ("topics", name, "configs"), f"/topic={name}", {"topic_name": name}, 1
    )


def _creatable(body: Json) -> CreatableTopic:
    """Parse the topic that a request wants to create. Raises RestError."""
    name = member(body, "topic_name", str, is_needed=True)
    count = number(body, "partitions_count", 32)
    replicas = number(body, "replication_factor", 16)
    assignments = [
        CreatableReplicaAssignment(partition_index=_index(each), broker_ids=_ids(ids))
        for each, ids in (member(body, "replicas_assignments", dict) or {}).items()
    ]
    configs = []
    for each in member(body, "configs", list) or []:
        if not isinstance(each, dict):
            raise bad_request("configs: a list of objects")
        configs.append(
            CreatableTopicConfig(name=member(each, "name", str, is_needed=True), value=member(each, "value", str))
        )
    return CreatableTopic(
        name=name,
        num_partitions=_DEFAULT if count is None or assignments else count,
        replication_factor=_DEFAULT if replicas is None or assignments else replicas,
        assignments=assignments,
        configs=configs,
    )


def _index(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise bad_request(f"replicas_assignments: {text[:50]!r} is no number of a partition")
    return int(text)


def _ids(value: Any) -> list[int]:
    is_right = isinstance(value, list) and all(isinstance(each, int) and 0 <= each < 1 << 31 for each in value)
    if not is_right:
        raise bad_request("replicas_assignments: lists of broker ids by partition")
    return [int(each) for each in value]


def _check_all(results: Sequence[Any]) -> None:
    for each in results:
        check(each.error_code, each.error_message)
    if not results:
        raise KafkaFailure(-1)


def _topic_json(scope: Scope, topic: MetadataResponseTopic) -> Json:
    parts = topic.partitions
    replicas = len(parts[0].replica_nodes) if parts else 0
    return _topic_content(scope, topic.name or "", len(parts), replicas, is_internal=topic.is_internal)


def _topic_content(scope: Scope, name: str, count: int, replicas: int, *, is_internal: bool) -> Json:
    content = {
        "topic_name": name,
        "is_internal": is_internal,
        "replication_factor": replicas,
        "partitions_count": count,
        "partitions": scope.related("topics", name, "partitions"),
        "configs": scope.related("topics", name, "configs"),
        "partition_reassignments": scope.related("topics", name, "partitions", "-", "reassignment"),
        "authorized_operations": [],
    }
    return scope.resource("KafkaTopic", ("topics", name), f"/topic={name}", content)


def _partition_json(scope: Scope, topic: str, part: MetadataResponsePartition) -> Json:
    index, leader = part.partition_index, part.leader_id
    place = ("topics", topic, "partitions", index)
    content = {
        "topic_name": topic,
        "partition_id": index,
        "leader": scope.related(*place, "replicas", leader) if leader >= 0 else None,
        "replicas": scope.related(*place, "replicas"),
        "reassignment": scope.related(*place, "reassignment"),
    }
    return scope.resource("KafkaPartition", place, f"/topic={topic}/partition={index}", content)


def _moving_json(scope: Scope, topic: str, part: Any) -> Json:
    place = ("topics", topic, "partitions", part.partition_index)
    content = {
        "topic_name": topic,
        "partition_id": part.partition_index,
        "adding_replicas": list(part.adding_replicas),
        "removing_replicas": list(part.removing_replicas),
        "replicas": scope.related(*place, "replicas"),
    }
    crn = f"/topic={topic}/partition={part.partition_index}/reassignment"
    return scope.resource("KafkaReassignment", (*place, "reassignment"), crn, content)
