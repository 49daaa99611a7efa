"""Consumer groups: members, assignments and lags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.server.cli.client.assignment import assigned
from ottla.server.rest import admin
from ottla.server.rest.client.cluster import KafkaCluster, Partition
from ottla.server.rest.client.reading import committed_of
from ottla.server.rest.errors import check
from ottla.server.rest.v3.resources import Json, Scope, Scoped, not_found
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest
from ottla.wire.messages.groups import DescribeGroupsRequest, ListGroupsRequest

CLASSIC, CONSUMER = "classic", "consumer"
_DESCRIBE_MAX_VERSION = 5  # of DescribeGroups: later ones differ in what they say of groups that are not there
DESCRIBED_AT_ONCE = 500
_STATES = {
    "preparingrebalance": "PREPARING_REBALANCE",
    "completingrebalance": "COMPLETING_REBALANCE",
    "stable": "STABLE",
    "dead": "DEAD",
    "empty": "EMPTY",
    "assigning": "ASSIGNING",
    "reconciling": "RECONCILING",
}
_ONE = "/consumer-groups/{}"


class Member(NamedTuple):
    """Member of a group, with its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    partitions: tuple[Partition, ...]


class Group(NamedTuple):
    """Group as its coordinator describes it."""

    name: str
    type: str
    state: str
    assignor: str
    protocol_type: str
    coordinator: int
    members: list[Member]


class Groups:
    """Handlers of /consumer-groups."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def add_to(self, scoped: Scoped) -> None:
        scoped.add("GET", "/consumer-groups", self._list)
        scoped.add("GET", _ONE, self._group)
        scoped.add("GET", f"{_ONE}/consumers", self._consumers)
        scoped.add("GET", _ONE + "/consumers/{}", self._consumer)
        scoped.add("GET", _ONE + "/consumers/{}/assignments", self._assignments)
        scoped.add("GET", _ONE + "/consumers/{}/assignments/{}/partitions/{}", self._assignment)
        scoped.add("GET", f"{_ONE}/lags", self._lags)
        scoped.add("GET", f"{_ONE}/lag-summary", self._lag_summary)
        scoped.add("GET", _ONE + "/lags/{}/partitions/{}", self._lag)

    # --- what the cluster says

    async def _described(self, node_id: int, kind: str, names: Sequence[str]) -> list[Group]:
        if kind == CONSUMER:
            request = ConsumerGroupDescribeRequest(group_ids=list(names), include_authorized_operations=False)
            return await self._cluster.ask(node_id, request, lambda answer: _consumer_groups(answer, node_id))
        classic = DescribeGroupsRequest(groups=list(names))
        return await self._cluster.ask(
            node_id, classic, lambda answer: _classic_groups(answer, node_id), at_most=_DESCRIBE_MAX_VERSION
        )

    async def _listed_by(self, node_id: int) -> list[tuple[str, str]]:
        def take(answer: Any) -> list[tuple[str, str]]:
            check(answer.error_code)
            kinds = (
                (each.group_id, (each.group_type or CLASSIC).lower(), each.protocol_type) for each in answer.groups
            )
            return [
                (name, kind)
                for name, kind, protocol in kinds
                if kind in (CLASSIC, CONSUMER) and protocol in ("", "consumer")
            ]

        return await self._cluster.ask(node_id, ListGroupsRequest(), take)

    async def _found(self, scope: Scope) -> Group:
        name = scope.parts[0]
        node_id = await self._cluster.coordinator(name)
        kinds = [kind for each, kind in await self._listed_by(node_id) if each == name]
        if kinds:
            found = await self._described(node_id, kinds[0], [name])
            if found:
                return found[0]
        raise not_found(f"Consumer Group {name[:250]} cannot be found.")

    # --- groups and members

    async def _list(self, scope: Scope) -> Any:
        await self._cluster.refreshed(())
        data: list[Json] = []
        for node_id in self._cluster.known_brokers:
            listed = await self._listed_by(node_id)
            for kind in (CLASSIC, CONSUMER):
                names = [name for name, each in listed if each == kind]
                for start in range(0, len(names), DESCRIBED_AT_ONCE):
                    found = await self._described(node_id, kind, names[start : start + DESCRIBED_AT_ONCE])
                    data += [_group_json(scope, each) for each in found]
        data.sort(key=lambda each: str(each["consumer_group_id"]))
        return scope.listed("KafkaConsumerGroupList", ("consumer-groups",), data)

    async def _group(self, scope: Scope) -> Any:
        return _group_json(scope, await self._found(scope))

    async def _consumers(self, scope: Scope) -> Any:
        group = await self._found(scope)
        data = [_member_json(scope, group, each) for each in group.members]
        return scope.listed("KafkaConsumerList", ("consumer-groups", group.name, "consumers"), data)

    async def _found_member(self, scope: Scope) -> tuple[Group, Member]:
        group = await self._found(scope)
        for each in group.members:
            if each.member_id == scope.parts[1]:
                return group, each
        raise not_found(f"Consumer {scope.parts[1][:250]} cannot be found.")

    async def _consumer(self, scope: Scope) -> Any:
        return _member_json(scope, *await self._found_member(scope))

    async def _assignments(self, scope: Scope) -> Any:
        group, member = await self._found_member(scope)
        data = [_assignment_json(scope, group, member, each) for each in member.partitions]
        segments = ("consumer-groups", group.name, "consumers", member.member_id, "assignments")
        return scope.listed("KafkaConsumerAssignmentList", segments, data)

    async def _assignment(self, scope: Scope) -> Any:
        group, member = await self._found_member(scope)
        for topic, number in member.partitions:
            if (topic, str(number)) == (scope.parts[2], scope.parts[3]):
                return _assignment_json(scope, group, member, (topic, number))
        raise not_found()

    # --- lags

    async def _all_lags(self, scope: Scope) -> tuple[Group, list[Json]]:
        group = await self._found(scope)
        committed = await committed_of(self._cluster, group.name, None)
        there = {(each.name, part.partition_index) for each in (await self._cluster.refreshed(
            sorted({topic for topic, _ in committed})
        )).topics if not each.error_code for part in each.partitions if part.leader_id >= 0}  # fmt: skip
        places = sorted(each for each in committed if each in there)
        ends = await admin.offsets_at(self._cluster, places, admin.LATEST) if places else {}
        owners = {place: member for member in group.members for place in member.partitions}
        return group, [
            _lag_json(scope, group, place, committed[place].offset, ends[place], owners.get(place)) for place in places
        ]

    async def _lags(self, scope: Scope) -> Any:
        group, data = await self._all_lags(scope)
        return scope.listed("KafkaConsumerLagList", ("consumer-groups", group.name, "lags"), data)

    async def _lag(self, scope: Scope) -> Any:
        _, data = await self._all_lags(scope)
        for each in data:
            if (each["topic_name"], str(each["partition_id"])) == (scope.parts[1], scope.parts[2]):
                return each
        raise not_found()

    async def _lag_summary(self, scope: Scope) -> Any:
        group, data = await self._all_lags(scope)
        if not data:
            raise not_found()
        most = max(data, key=lambda each: int(each["lag"]))
        place = most["topic_name"], most["partition_id"]
        here = ("consumer-groups", group.name)
        content = {
            "consumer_group_id": group.name,
            "max_lag_consumer_id": most["consumer_id"],
            "max_lag_instance_id": most["instance_id"],
            "max_lag_client_id": most["client_id"],
            "max_lag_topic_name": place[0],
            "max_lag_partition_id": place[1],
            "max_lag": most["lag"],
            "total_lag": sum(int(each["lag"]) for each in data),
            "max_lag_consumer": scope.related(*here, "consumers", most["consumer_id"]),
            "max_lag_partition": scope.related("topics", place[0], "partitions", place[1]),
        }
        crn = f"/consumer-group={group.name}/lag-summary"
        return scope.resource("KafkaConsumerGroupLagSummary", (*here, "lag-summary"), crn, content)


def _classic_groups(answer: Any, node_id: int) -> list[Group]:
    found = []
    for each in answer.groups:
        check(each.error_code)
        is_consumer = each.protocol_type == "consumer"
        members = [
            Member(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                assigned(bytes(member.member_assignment)) if is_consumer else (),
            )
            for member in each.members
        ]
        if each.group_state != "Dead":
            found.append(
                Group(
                    each.group_id, CLASSIC, each.group_state, each.protocol_data, each.protocol_type, node_id, members
                )
            )
    return found


def _consumer_groups(answer: Any, node_id: int) -> list[Group]:
    found = []
    for each in answer.groups:
        check(each.error_code, each.error_message)
        members = [
            Member(
                member.member_id,
                member.instance_id,
                member.client_id,
                tuple(
                    (part.topic_name, number)
                    for part in member.assignment.topic_partitions
                    for number in part.partitions
                ),
            )
            for member in each.members
        ]
        found.append(Group(each.group_id, CONSUMER, each.group_state, each.assignor_name, "consumer", node_id, members))
    return found


def _group_json(scope: Scope, group: Group) -> Json:
    here = ("consumer-groups", group.name)
    content = {
        "consumer_group_id": group.name,
        "is_simple": not group.protocol_type,
        "partition_assignor": group.assignor,
        "state": _STATES.get(group.state.lower(), "UNKNOWN"),
        "type": group.type.upper(),
        "is_mixed_consumer_group": False,
        "coordinator": scope.related("brokers", group.coordinator),
        "consumers": scope.related(*here, "consumers"),
        "lag_summary": scope.related(*here, "lag-summary"),
    }
    return scope.resource("KafkaConsumerGroup", here, f"/consumer-group={group.name}", content)


def _member_json(scope: Scope, group: Group, member: Member) -> Json:
    here = ("consumer-groups", group.name, "consumers", member.member_id)
    content = {
        "consumer_group_id": group.name,
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "assignments": scope.related(*here, "assignments"),
    }
    crn = f"/consumer-group={group.name}/consumer={member.member_id}"
    return scope.resource("KafkaConsumer", here, crn, content)


def _assignment_json(scope: Scope, group: Group, member: Member, place: Partition) -> Json:
    topic, number = place
    here = ("consumer-groups", group.name, "consumers", member.member_id, "assignments", topic, "partitions", number)
    content = {
        "consumer_group_id": group.name,
        "consumer_id": member.member_id,
        "topic_name": topic,
        "partition_id": number,
        "partition": scope.related("topics", topic, "partitions", number),
        "lag": scope.related("consumer-groups", group.name, "lags", topic, "partitions", number),
    }
    crn = f"/consumer-group={group.name}/consumer={member.member_id}/assignment={topic}/partition={number}"
    return scope.resource("KafkaConsumerAssignment", here, crn, content)


def _lag_json(scope: Scope, group: Group, place: Partition, current: int, end: int, owner: Member | None) -> Json:
    topic, number = place
    content = {
        "consumer_group_id": group.name,
        "topic_name": topic,
        "partition_id": number,
        "current_offset": current,
        "log_end_offset": end,
        "lag": max(0, end - current),
        "consumer_id": owner.member_id if owner else "",
        "instance_id": owner.instance_id if owner else None,
        "client_id": owner.client_id if owner else "",
    }
    here = ("consumer-groups", group.name, "lags", topic, "partitions", number)
    return scope.resource(
        "KafkaConsumerLag", here, f"/consumer-group={group.name}/lag={topic}/partition={number}", content
    )
