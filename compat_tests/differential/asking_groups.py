"""Members of classic groups who do as they are told."""

from typing import Any

from compat_tests.differential.conversation import Talk

from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.groups import DescribeGroupsRequest

SUBSCRIPTION = b"\0\0\0\0\0\1\0\5topic\xff\xff\xff\xff"
CHANGED = b"\0\0\0\0\0\1\0\5topic\0\0\0\7changed"  # with user data
RANGE = {"range": SUBSCRIPTION}
RANGE_CHANGED = {"range": CHANGED}

Assignments = dict["Member", bytes]


class Member:
    """A client on a link of its own name. What it is told to do is written down unless it is `quiet`."""

    def __init__(self, talk: Talk, group: str, name: str, **details: Any) -> None:
        self.talk = talk
        self.group = group
        self.name = name
        self.instance: str | None = details.get("instance")
        self.protocols: dict[str, bytes] = details.get("protocols", RANGE)
        self.protocol_type: str = details.get("protocol_type", "consumer")
        self.session_ms: int = details.get("session_ms", 30_000)
        self.rebalance_ms: int = details.get("rebalance_ms", 30_000)
        self.quiet: bool = details.get("quiet", False)
        self.member_id = ""
        self.generation_id = -1
        self.protocol_name: str | None = None
        talk.link(name)

    # --- requests; `details` replace what the member would say by itself

    def join_request(self, **details: Any) -> JoinGroupRequest:
        said = {
            "group_id": self.group,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.rebalance_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocols": self.protocols,
        } | details
        listed = said["protocols"].items() if isinstance(said["protocols"], dict) else said["protocols"]
        said["protocols"] = [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in listed]
        return JoinGroupRequest(**said)

    def sync_request(self, assignments: Assignments | None = None, **details: Any) -> SyncGroupRequest:
        given = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=data)
            for member, data in (assignments or {}).items()
        ]
        said = self._identity() | {
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
            "assignments": given,
        }
        return SyncGroupRequest(**(said | details))

    def heartbeat_request(self, **details: Any) -> HeartbeatRequest:
        return HeartbeatRequest(**(self._identity() | details))

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }

    # --- joining

    def send_join(self, version: int | None = None, **details: Any) -> None:
        """Goes on its way; a dynamic member that needs a member id first fetches it (within its own session timeout)."""
        if not self.member_id and self.instance is None and self._version(JoinGroupRequest, version) >= 4:
            first = details | {"session_timeout_ms": self.session_ms}
            self._send(self.join_request(**first), version, "asks for a member id")
            self.joined()
        self._send(self.join_request(**details), version, "joins")

    def joined(self) -> Any:
        answer = self._receive(in_order_of_names)
        if answer is not None:
            self.member_id = answer.member_id or self.member_id
            self.generation_id = answer.generation_id
            self.protocol_name = answer.protocol_name
        return answer

    def join(self, version: int | None = None, **details: Any) -> Any:
        self.send_join(version, **details)
        return self.joined()

    # --- the rest

    def send_sync(self, assignments: Assignments | None = None, **details: Any) -> None:
        self._send(self.sync_request(assignments, **details), None, "syncs")

    def synced(self) -> Any:
        return self._receive()

    def sync(self, assignments: Assignments | None = None, **details: Any) -> Any:
        self.send_sync(assignments, **details)
        return self.synced()

    def heartbeat(self, **details: Any) -> Any:
        self._send(self.heartbeat_request(**details), None, "heartbeat")
        return self._receive()

    def leave(self, **details: Any) -> Any:
        self._send(leave_request(self.group, (self.member_id, self.instance)), None, "leaves")
        return self._receive()

    # --- bytes

    def _version(self, request: type, version: int | None) -> int:
        if version is not None:
            return version
        return request.versions.last if self.quiet else self.talk.version_of(request)

    def _send(self, request: Any, version: int | None, label: str) -> None:
        self.talk.link(self.name).send(request, self._version(type(request), version), label=label)

    def _receive(self, arrange: Any = None) -> Any:
        link = self.talk.link(self.name)
        if not self.quiet:
            return link.receive(arrange)
        link.sent.pop(0)
        return link.answer()


def in_order_of_names(answer: Any) -> None:
    """Kafka lists a group's members as its hash map holds them; member ids begin with the member's name."""
    answer.members.sort(key=lambda each: each.member_id)


def leave_request(group: str, *identities: tuple[str, str | None]) -> LeaveGroupRequest:
    """For any version; the old ones know only the first one's member id."""
    members = [MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in identities]
    return LeaveGroupRequest(group_id=group, member_id=members[0].member_id if members else "", members=members)


def describe(talk: Talk, *groups: str, label: str = "describe") -> Any:
    return talk.ask(DescribeGroupsRequest(groups=list(groups)), label=label, arrange=in_order_of_groups)


def in_order_of_groups(answer: Any) -> None:
    answer.groups.sort(key=lambda each: each.group_id)
    for group in answer.groups:
        in_order_of_names(group)


def until_state(talk: Talk, group: str, state: str, members: int | None = None) -> None:
    """Waits until the group is in this state (with that many members)."""

    def is_there(answer: Any) -> bool:
        found = answer.groups[0]
        return found.group_state == state and members in (None, len(found.members))

    talk.until(DescribeGroupsRequest(groups=[group]), is_there)
