"""Brokers, topics and partitions for the console. Sizes and offsets are known of replicas on this broker."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.replication.cluster.metadata_cache import NO_LEADER, PartitionState, TopicState
from ottla.server.admin.console import requests
from ottla.server.admin.console.requests import refusal
from ottla.server.admin.http.routes import PacedTimeSlice
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.replication.partition.removals import RemovalEvent
    from ottla.server.admin.console.requests import Access
    from ottla.server.admin.http.metrics.upkeep import DiskRoom
    from ottla.server.admin.http.routes import Pace, Request
    from ottla.server.broker import Broker

TOPICS_PER_PAGE, PARTITIONS_PER_PAGE, REMOVALS_TOLD = 100, 200, 100


class ClusterView:
    """Handlers of the console's requests for the cluster's state. Each returns a value for JSON."""

    def __init__(self, broker: Broker, access: Access, pace: Pace, room: DiskRoom) -> None:
        self._broker, self._pace, self._room = broker, pace, room
        self._access = access
        self._counted_at = -1
        self._counts: dict[str, int] = {}

    async def overview(self, request: Request) -> dict[str, Any]:
        """Return the cluster's state, which every tab shows, and the actions that the page may offer."""
        cluster = self._broker.cluster
        # A page that needed a token or login sends it with changes, too. Users must not get the token, which has all rights.
        write = {"writeToken": self._access.token} if self._access.may_write and self._access.is_open else {}
        return {
            "version": __version__,
            "clusterId": cluster.cluster_id,
            "nodeId": self._broker.node_id,
            "controllerId": self._broker.member.controller_id,
            "isAlone": not self._broker.is_in_cluster,
            "brokers": len(cluster.brokers),
            "topics": len(cluster.topics),
            "nowMs": self._broker.now_ms(),
            "canWrite": self._access.may_write,
            "user": self._access.user_of(request),
            "isOpen": self._access.is_open,
            "hasRegistry": self._broker.config.http.http_console_schema_registry is not None,
            **write,
            **await self._partition_counts(),
        }

    async def _partition_counts(self) -> dict[str, int]:
        # The metadata changes seldom, and may have a million partitions.
        version = self._broker.cluster.version
        if self._counted_at != version:
            time_slice = PacedTimeSlice(self._pace)
            total = under_replicated = offline = 0
            for topic in list(self._broker.cluster.topics.values()):
                counted = _health(topic)
                total += len(topic.partitions)
                under_replicated += counted["underReplicated"]
                offline += counted["offline"]
                await time_slice.yield_if_over()
            self._counts = {"partitions": total, "underReplicated": under_replicated, "offline": offline}
            self._counted_at = version
        return self._counts

    async def brokers(self, request: Request) -> dict[str, Any]:
        """Return all live brokers with the numbers of partitions they lead and hold, counted in time slices."""
        cluster, time_slice = self._broker.cluster, PacedTimeSlice(self._pace)
        leads = dict.fromkeys(cluster.brokers, 0)
        holds = dict(leads)
        for topic in list(cluster.topics.values()):
            for state in topic.partitions:
                if state.leader in leads:
                    leads[state.leader] += 1
                for replica in state.replicas:
                    if replica in holds:
                        holds[replica] += 1
                await time_slice.yield_if_over()
        return {
            "controllerId": self._broker.member.controller_id,
            "brokers": [
                {
                    "id": each.node_id,
                    "rack": each.rack,
                    "isHere": each.node_id == self._broker.node_id,
                    "endpoints": [f"{name}://{end.host}:{end.port}" for name, end in each.endpoints.items()],
                    "leads": leads.get(each.node_id, 0),
                    "holds": holds.get(each.node_id, 0),
                }
                for each in sorted(cluster.brokers.values(), key=lambda each: each.node_id)
            ],
            "logDirectories": await self._log_directories(time_slice),
        }

    async def _log_directories(self, time_slice: PacedTimeSlice) -> list[dict[str, Any]]:
        replicas = self._broker.replicas
        sizes = {each.path: [0, 0] for each in replicas.log_directories}
        for partition in replicas.partitions():
            counted = sizes[partition.log.log_directory.path]
            counted[0] += partition.log.size_in_bytes
            counted[1] += 1
            await time_slice.yield_if_over()
        return [
            {
                "path": each.path,
                "isOnline": each.is_online,
                "size": sizes[each.path][0],
                "logs": sizes[each.path][1],
                "freeBytes": room.free_bytes if (room := self._room.by_path.get(each.path)) else None,
                "totalBytes": room.total_bytes if room else None,
            }
            for each in replicas.log_directories
        ]

    async def topics(self, request: Request) -> dict[str, Any]:
        """Return a page of topics sorted by name. `after`: last name of the previous page; `contains`: part of the name."""
        after, wanted = requests.text(request, "after", ""), requests.text(request, "contains", "").lower()
        names = self._broker.cluster.topic_names()
        time_slice, following = PacedTimeSlice(self._pace), None
        found: list[dict[str, Any]] = []
        for index in range(bisect_right(names, after) if after else 0, len(names)):
            await time_slice.yield_if_over()
            topic = self._broker.cluster.topics.get(names[index])
            if topic is None or wanted not in names[index].lower():
                continue
            if len(found) == TOPICS_PER_PAGE:
                following = found[-1]["name"]
                break
            found.append(await self._summary(topic, time_slice))
        return {"topics": found, "next": following}

    async def _summary(self, topic: TopicState, time_slice: PacedTimeSlice) -> dict[str, Any]:
        size = records = 0
        for index in range(len(topic.partitions)):
            partition = self._broker.replicas.partition(topic.name, index)
            if partition is not None:
                size += partition.log.size_in_bytes
                records += max(0, partition.high_watermark - partition.log_start_offset)
            await time_slice.yield_if_over()
        return {
            "name": topic.name,
            "isInternal": topic.is_internal,
            "partitions": len(topic.partitions),
            "replicationFactor": len(topic.partitions[0].replicas) if topic.partitions else 0,
            "size": size,
            "records": records,
            **_health(topic),
        }

    async def topic(self, request: Request) -> dict[str, Any]:
        """Return a page of one topic's partitions, beginning at partition number `from`."""
        name, start = requests.text(request, "name"), requests.number(request, "from", 0)
        topic = self._broker.cluster.topics.get(name)
        if topic is None:
            raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        end = min(start + PARTITIONS_PER_PAGE, len(topic.partitions))
        time_slice, partitions = PacedTimeSlice(self._pace), []
        for index in range(start, end):
            partitions.append(self._partition(name, index, topic.partitions[index]))
            await time_slice.yield_if_over()
        return {
            "name": name,
            "topicId": topic.topic_id.hex(),
            "isInternal": topic.is_internal,
            "partitionCount": len(topic.partitions),
            "liveBrokers": sorted(self._broker.cluster.brokers),
            "partitions": partitions,
            "next": end if end < len(topic.partitions) else None,
            "removals": [_removal(each) for each in self._broker.replicas.removals.of_topic(name)],
        }

    async def removals(self, request: Request) -> dict[str, Any]:
        """Return the latest removals of records from all topics, also from deleted ones, newest first."""
        found = self._broker.replicas.removals.latest(REMOVALS_TOLD)
        return {"removals": [{"topic": topic, **_removal(each)} for topic, each in found]}

    def _partition(self, topic: str, index: int, state: PartitionState) -> dict[str, Any]:
        held = self._broker.replicas.partition(topic, index)
        here: dict[str, Any] = {"isHere": held is not None}
        if held is not None:
            here |= {
                "start": held.log_start_offset,
                "highWatermark": held.high_watermark,
                "lastStable": held.last_stable_offset,
                "end": held.log_end_offset,
                "size": held.log.size_in_bytes,
                "segments": len(held.log.segments),
                "producers": len(held.log.producers),
            }
        return {
            "index": index,
            "leader": state.leader,
            "leaderEpoch": state.leader_epoch,
            "replicas": state.replicas,
            "isr": state.isr,
            **here,
        }


def _removal(event: RemovalEvent) -> dict[str, Any]:
    return {
        "fromMs": event.first_ms,
        "untilMs": event.last_ms,
        "cause": event.cause,
        "records": event.records,
        "hasGaps": event.has_gaps,
        "logs": event.logs,
        "runs": event.runs,
        "oldestMs": event.oldest_ms,
        "newestMs": event.newest_ms,
    }


def _health(topic: TopicState) -> dict[str, int]:
    return {
        "underReplicated": sum([len(each.isr) < len(each.replicas) for each in topic.partitions]),
        "offline": sum([each.leader == NO_LEADER for each in topic.partitions]),
    }
