"""Members of streams groups, who say what they are told to say and remember their epoch and their tasks."""

from typing import Any

from compat_tests.differential.conversation import Talk

from ottla.wire.messages.streams_group import (
    CopartitionGroup,
    Endpoint,
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

Tasks = dict[str, list[int]]


def internal(name: str, partitions: int = 0, replication_factor: int = 0) -> TopicInfo:
    return TopicInfo(name=name, partitions=partitions, replication_factor=replication_factor, topic_configs=[])


def subtopology(name: str, *sources: str, **details: Any) -> Subtopology:
    """`reads`, `writes` and `keeps` are its repartition sources and sinks and its changelogs, `joins` copartition groups."""
    groups = [
        CopartitionGroup(source_topics=plain, source_topic_regex=[], repartition_source_topics=repartition)
        for plain, repartition in details.get("joins", ())
    ]
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=details.get("regex", []),
        state_changelog_topics=details.get("keeps", []),
        repartition_sink_topics=details.get("writes", []),
        repartition_source_topics=details.get("reads", []),
        copartition_groups=groups,
    )


def topology(*parts: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(parts))


def ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in tasks.items()]


class StreamsMember:
    """A member whose process is its own unless it is named."""

    def __init__(self, talk: Talk, group: str, name: str, plan: Topology, **details: Any) -> None:
        self.talk, self.group, self.name, self.plan = talk, group, name, plan
        self.process: str = details.get("process", f"process of {name}")
        self.instance: str | None = details.get("instance")
        self.endpoint: Endpoint | None = details.get("endpoint")
        self.epoch = 0
        self.endpoint_epoch = 0
        self.has: dict[str, Tasks] = {"active_tasks": {}, "standby_tasks": {}, "warmup_tasks": {}}

    def join_request(self, **details: Any) -> StreamsGroupHeartbeatRequest:
        said = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "topology": self.plan,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": self.process,
            "user_endpoint": self.endpoint,
            "client_tags": [],
        }
        return self.request(**(said | details))

    def request(self, **details: Any) -> StreamsGroupHeartbeatRequest:
        said = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": self.epoch,
            "endpoint_information_epoch": self.endpoint_epoch,
            "instance_id": self.instance,
        }
        return StreamsGroupHeartbeatRequest(**(said | details))

    def join(self, **details: Any) -> Any:
        return self.send(self.join_request(**details), "joins")

    def beat(self, **details: Any) -> Any:
        return self.send(self.request(**details), "beats")

    def beat_with_tasks(self, **details: Any) -> Any:
        """Say which tasks it has now, which are those that it was last told of."""
        owned = {role: ids(tasks) for role, tasks in self.has.items()}
        return self.send(self.request(**(owned | details)), "has done as told")

    def leave(self, epoch: int = -1) -> Any:
        return self.send(self.request(member_epoch=epoch), "leaves")

    def send(self, request: StreamsGroupHeartbeatRequest, deed: str) -> Any:
        answer = self.talk.ask(request, label=f"{self.name} {deed}", arrange=in_order)
        if not answer.error_code:
            self.epoch, self.endpoint_epoch = answer.member_epoch, answer.endpoint_information_epoch
            for role in self.has:
                told = getattr(answer, role)
                if told is not None:
                    self.has[role] = {each.subtopology_id: each.partitions for each in told}
        return answer


def in_order(answer: Any) -> None:
    """Kafka tells these in the order of a hash table."""
    for status in answer.status or ():
        told, _, names = status.status_detail.partition("Internal topics are missing: ")
        if not told:
            status.status_detail = f"Internal topics are missing: {', '.join(sorted(names.split(', ')))}"
    for told in (answer.active_tasks, answer.standby_tasks, answer.warmup_tasks):
        if told is not None:
            told.sort(key=lambda each: each.subtopology_id)
    for place in answer.partitions_by_user_endpoint or ():
        for partitions in (place.active_partitions, place.standby_partitions):
            partitions.sort(key=lambda each: each.topic)
    if answer.partitions_by_user_endpoint is not None:
        answer.partitions_by_user_endpoint.sort(key=lambda each: (each.user_endpoint.host, each.user_endpoint.port))


def describe(talk: Talk, *groups: str, label: str | None = None, **details: Any) -> Any:
    def arrange(answer: Any) -> None:
        answer.groups.sort(key=lambda each: each.group_id)
        for group in answer.groups:
            group.members.sort(key=lambda each: each.member_id)

    request = StreamsGroupDescribeRequest(
        **({"group_ids": list(groups), "include_authorized_operations": False} | details)
    )
    return talk.ask(request, label=label or "describe", arrange=arrange)


def rounds(members: list[StreamsMember], count: int = 4) -> None:
    """Everybody heartbeats in turn, and does as it is told, until nothing moves any more."""
    for _ in range(count):
        for member in members:
            member.beat_with_tasks()
