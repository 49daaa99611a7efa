"""Clusters, brokers, and settings of brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.server.rest import admin
from ottla.server.rest.api import Call, RestApi
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.v3.configs import Owner, add_configs, config_json
from ottla.server.rest.v3.resources import Json, Scope, Scoped, known_id, not_found
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker


class Clusters:
    """Handlers of /v3/clusters, /brokers and /broker-configs."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def add_to(self, api: RestApi, scoped: Scoped) -> None:
        api.add("GET", "/v3/clusters", self._clusters)
        scoped.add("GET", "", self._one)
        scoped.add("GET", "/brokers", self._brokers)
        scoped.add("GET", "/brokers/{}", self._broker)
        scoped.add("GET", "/brokers/{}/partition-replicas", self._replicas)
        scoped.add("GET", "/brokers/-/configs", self._all_configs)
        add_configs(scoped, self._cluster, "/brokers/{}/configs", self._of_broker)
        add_configs(scoped, self._cluster, "/broker-configs", self._of_cluster)

    async def _clusters(self, call: Call) -> Any:
        scope = Scope(call, await known_id(self._cluster))
        answer = await self._cluster.refreshed(())
        metadata = {"self": f"{call.base_url}/v3/clusters", "next": None}
        return {"kind": "KafkaClusterList", "metadata": metadata, "data": [_cluster_json(scope, answer)]}

    async def _one(self, scope: Scope) -> Any:
        return _cluster_json(scope, await self._cluster.refreshed(()))

    async def _brokers(self, scope: Scope) -> Any:
        data = [_broker_json(scope, each) for each in await self._all_brokers()]
        return scope.listed("KafkaBrokerList", ("brokers",), data)

    async def _all_brokers(self) -> Sequence[MetadataResponseBroker]:
        return sorted((await self._cluster.refreshed(())).brokers, key=lambda each: each.node_id)

    async def _broker(self, scope: Scope) -> Any:
        return _broker_json(scope, await self._found(scope.parts[0]))

    async def _found(self, text: str) -> MetadataResponseBroker:
        found = [each for each in await self._all_brokers() if str(each.node_id) == text]
        if not found:
            raise not_found(f"Broker {text[:50]} cannot be found.")
        return found[0]

    async def _replicas(self, scope: Scope) -> Any:
        broker_id = (await self._found(scope.parts[0])).node_id
        answer = await self._cluster.refreshed(None)
        data = [
            replica_json(scope, topic.name or "", part, broker_id)
            for topic in sorted(answer.topics, key=lambda each: each.name or "")
            for part in sorted(topic.partitions, key=lambda each: each.partition_index)
            if broker_id in part.replica_nodes
        ]
        return scope.listed("KafkaReplicaList", ("brokers", broker_id, "partition-replicas"), data)

    # --- settings

    async def _all_configs(self, scope: Scope) -> Any:
        data: list[Json] = []
        for broker in await self._all_brokers():
            of = self._owner(broker.node_id)
            found = await admin.describe_configs(self._cluster, admin.BROKER, str(broker.node_id))
            data += [config_json(scope, of, each) for each in found]
        return scope.listed("KafkaBrokerConfigList", ("brokers", "-", "configs"), data)

    async def _of_broker(self, scope: Scope) -> Owner:
        return self._owner((await self._found(scope.parts[0])).node_id)

    def _owner(self, broker_id: int) -> Owner:
        return Owner(
            admin.BROKER, str(broker_id), "KafkaBrokerConfig", ("brokers", broker_id, "configs"),
            f"/broker={broker_id}", {"broker_id": broker_id}, 1,
        )  # fmt: skip

    async def _of_cluster(self, scope: Scope) -> Owner:
        return Owner(admin.BROKER, "", "KafkaClusterConfig", ("broker-configs",), "", {"config_type": "BROKER"}, 0)


def _cluster_json(scope: Scope, answer: MetadataResponse) -> Json:
    content = {
        "controller": scope.related("brokers", answer.controller_id) if answer.controller_id >= 0 else None,
        "acls": scope.related("acls"),
        "brokers": scope.related("brokers"),
        "broker_configs": scope.related("broker-configs"),
        "consumer_groups": scope.related("consumer-groups"),
        "topics": scope.related("topics"),
        "partition_reassignments": scope.related("topics", "-", "partitions", "-", "reassignment"),
    }
    return scope.resource("KafkaCluster", (), "", content)


def _broker_json(scope: Scope, broker: MetadataResponseBroker) -> Json:
    number = broker.node_id
    content = {
        "broker_id": number,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "configs": scope.related("brokers", number, "configs"),
        "partition_replicas": scope.related("brokers", number, "partition-replicas"),
    }
    return scope.resource("KafkaBroker", ("brokers", number), f"/broker={number}", content)


def replica_json(scope: Scope, topic: str, part: Any, broker_id: int) -> Json:
    """Make the resource of one replica."""
    number = part.partition_index
    content = {
        "topic_name": topic,
        "partition_id": number,
        "broker_id": broker_id,
        "is_leader": part.leader_id == broker_id,
        "is_in_sync": broker_id in part.isr_nodes,
        "broker": scope.related("brokers", broker_id),
    }
    segments = ("topics", topic, "partitions", number, "replicas", broker_id)
    return scope.resource("KafkaReplica", segments, f"/topic={topic}/partition={number}/replica={broker_id}", content)
