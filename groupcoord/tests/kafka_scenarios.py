"""The same stories told to Apache Kafka and to this coordinator, so that the answers can be compared field by field.

What Kafka 4.3.1 answered is kept in `kafka_scenarios.txt`; `test_kafka_scenarios.py` tells the stories here and compares.
To ask Kafka again (a broker with group.initial.rebalance.delay.ms=0):

    python -m ottla.groupcoord.tests.kafka_scenarios 127.0.0.1:9092 > groupcoord/tests/kafka_scenarios.txt
"""

import re
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import trio

from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.schema import Message

TOPIC = "topic"
SUBSCRIPTION = b"\0\0\0\0\0\1\0\5topic\xff\xff\xff\xff"
CHANGED = b"\0\0\0\0\0\1\0\5topic\0\0\0\7changed"  # with user data
RANGE = {"range": SUBSCRIPTION}
RANGE_AND_RR = {"range": SUBSCRIPTION, "rr": SUBSCRIPTION}
Assignments = dict["Member", bytes]


class Link(Protocol):
    """One client's connection: one request on its way at a time."""

    async def send(self, request: Message, version: int) -> None: ...

    async def receive(self) -> Any: ...


class World:
    """Somebody to talk to, and what was said."""

    def __init__(self, connect: Callable[[str], Awaitable[Link]], run: str) -> None:
        self.connect = connect
        self.lines: list[str] = []
        self._run = run
        self._member_ids: dict[str, str] = {}
        self.group = ""
        self.admin: Link

    async def begin(self, title: str) -> None:
        self.lines.append(f"== {title}")
        self.group = f"{title.replace(' ', '-')}-{self._run}"
        self.admin = await self.connect("admin")

    def note(self, what: str, response: Any) -> None:
        """Member ids are random and groups are named after the run: write what stays."""

        def named(match: re.Match[str]) -> str:
            return self._member_ids.setdefault(match[0], f"{match[1]}#{len(self._member_ids)}")

        text = re.sub(r"(\w+)-[0-9a-f]{8}-[0-9a-f-]{27}", named, repr(response))
        self.lines.append(f"{what}: {text.replace('-' + self._run, '')}")

    async def ask(self, what: str, request: Message, version: int, *, of: Link | None = None) -> Any:
        link = of or self.admin
        await link.send(request, version)
        response = await link.receive()
        self.note(what, response)
        return response

    async def describe(self) -> None:
        await self.admin.send(DescribeGroupsRequest(groups=[self.group]), 5)
        response = await self.admin.receive()
        response.groups[0].members.sort(key=lambda each: (each.client_id, each.group_instance_id or ""))
        self.note("describe", response)

    async def pause(self) -> None:
        """Let what was sent arrive before the next is sent on another connection."""
        await trio.sleep(0.2)


class Member:
    """A client of the classic protocol that does as it is told."""

    def __init__(self, world: World, name: str, **details: Any) -> None:
        self.world = world
        self.name = name
        self.instance: str | None = details.get("instance")
        self.version: int = details.get("version", 9)
        self.sync_version: int = details.get("sync_version", 5)
        self.protocols: dict[str, bytes] = details.get("protocols", RANGE)
        self.protocol_type: str = details.get("protocol_type", "consumer")
        self.rebalance_ms: int = details.get("rebalance_ms", 3_000)
        self.member_id = ""
        self.generation_id = -1
        self.protocol_name: str | None = None
        self.link: Link

    async def send_join(self) -> None:
        if not hasattr(self, "link"):
            self.link = await self.world.connect(self.name)
        request = JoinGroupRequest(
            group_id=self.world.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols.items()],
        )
        await self.link.send(request, self.version)

    async def joined(self, what: str = "join") -> Any:
        response = await self.link.receive()
        response.members.sort(key=lambda each: (each.group_instance_id or "", each.member_id))
        self.world.note(f"{self.name} {what}", response)
        self.member_id = response.member_id or self.member_id
        self.generation_id = response.generation_id
        self.protocol_name = response.protocol_name
        return response

    async def join(self, what: str = "join") -> Any:
        await self.send_join()
        return await self.joined(what)

    async def send_first_join(self) -> None:
        """Fetch a member id, then join with it."""
        await self.join("asks for a member id")
        await self.send_join()

    async def send_sync(self, assignments: Assignments | None = None, **details: Any) -> None:
        given = {
            "group_id": self.world.group,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
        }
        listed = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=data)
            for member, data in (assignments or {}).items()
        ]
        await self.link.send(SyncGroupRequest(**(given | details), assignments=listed), self.sync_version)

    async def synced(self, what: str = "sync") -> None:
        self.world.note(f"{self.name} {what}", await self.link.receive())

    async def sync(self, assignments: Assignments | None = None, what: str = "sync", **details: Any) -> None:
        await self.send_sync(assignments, **details)
        await self.synced(what)

    async def heartbeat(self, what: str = "heartbeat", **details: Any) -> None:
        given = {
            "group_id": self.world.group,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        await self.world.ask(f"{self.name} {what}", HeartbeatRequest(**(given | details)), 4, of=self.link)

    async def commit(self, what: str = "commit", **details: Any) -> None:
        given = {
            "group_id": self.world.group,
            "generation_id_or_member_epoch": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="m")
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        request = OffsetCommitRequest(**(given | details), topics=topics)
        await self.world.ask(f"{self.name} {what}", request, 9, of=self.link)

    async def leave(self, *identities: tuple[str, str | None], version: int = 5) -> None:
        members = [MemberIdentity(member_id=each, group_instance_id=instance) for each, instance in identities]
        request = LeaveGroupRequest(group_id=self.world.group, member_id=identities[0][0], members=members)
        await self.world.ask("leave", request, version, of=self.link)


# ---------------------------------------------------------------------- the stories


async def two_dynamic_members(world: World) -> None:
    await world.begin("two dynamic members")
    a, b = Member(world, "a"), Member(world, "b")
    await a.send_first_join()
    await a.joined()
    await world.describe()
    await a.heartbeat("heartbeat before the assignment")
    await a.commit("commit before the assignment")
    await a.sync({a: b"A1"})
    await world.describe()
    await b.send_first_join()
    await world.pause()
    await world.describe()
    await a.heartbeat("heartbeat while gathering")
    await a.commit("commit while gathering")
    await a.sync(what="sync while gathering")
    await a.join()
    await b.joined()
    await b.heartbeat()
    await b.send_sync()
    await world.pause()
    await a.sync({a: b"A2", b: b"B2", Member(world, "stranger"): b"x"})
    await b.synced()
    await world.describe()
    await b.join("follower joins again unchanged")
    b.protocols = {"range": CHANGED}
    await b.send_join()
    await world.pause()
    await world.describe()
    await a.join()
    await b.joined()
    await a.sync({a: b"A3"})
    await b.sync(what="sync without an assignment")


async def strangers(world: World) -> None:
    await world.begin("strangers")
    a, unassigned = Member(world, "a"), Member(world, "b")
    await a.send_first_join()
    await a.joined()
    await a.sync({a: b"A1"})
    for details in ({"generation_id": 99}, {"member_id": "who"}, {"group_instance_id": "who"}, {"group_id": "nowhere"}):
        await a.heartbeat(f"heartbeat {details}", **details)
    for details in (
        {"generation_id_or_member_epoch": 99},
        {"member_id": ""},
        {"member_id": "", "generation_id_or_member_epoch": -1},
        {"generation_id_or_member_epoch": -1},
        {"group_instance_id": "who", "generation_id_or_member_epoch": -1, "member_id": ""},
        {"group_id": "nowhere"},
    ):
        await a.commit(f"commit {details}", **details)
    for details in (
        {"generation_id": 99},
        {"member_id": "who"},
        {"protocol_name": "other"},
        {"protocol_type": "other"},
        {"protocol_type": None},
        {"group_id": "nowhere"},
        {"group_id": ""},
    ):
        await a.sync(None, f"sync {details}", **details)
    await Member(world, "other", protocols={"other": b""}).join("join with another protocol")
    await Member(world, "other", protocol_type="connect").join("join with another protocol type")
    await Member(world, "other", protocols={}).join("join without a protocol")
    await unassigned.join("asks for a member id")
    await a.leave(("who", None), (unassigned.member_id, None), ("", None), ("", "who"))


async def administration(world: World) -> None:
    await world.begin("administration")
    a = Member(world, "a")
    await a.send_first_join()
    await a.joined()
    await a.sync({a: b"A1"})
    await a.commit()
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in (TOPIC, "nowhere")]
    delete_offsets = OffsetDeleteRequest(group_id=world.group, topics=topics)
    delete_group = DeleteGroupsRequest(groups_names=[world.group])
    await world.ask("delete offsets of a stable group", delete_offsets, 0)
    await world.ask("delete a stable group", delete_group, 2)
    await a.leave((a.member_id, None))
    await world.describe()
    await a.heartbeat("heartbeat to an empty group")
    await a.sync(what="sync to an empty group")
    await a.join("join of a known member to an empty group")
    await a.commit("commit to an empty group")
    await a.commit("commit of nobody", member_id="", generation_id_or_member_epoch=-1)
    await world.ask("delete offsets of an empty group", delete_offsets, 0)
    await world.ask("delete an empty group", delete_group, 2)
    await world.ask("delete a deleted group", delete_group, 2)
    await world.ask("delete offsets of a deleted group", delete_offsets, 0)
    await world.describe()


async def static_pair(world: World) -> tuple[Member, Member]:
    a = Member(world, "a", instance="one", protocols=RANGE_AND_RR)
    b = Member(world, "b", instance="two", protocols=RANGE_AND_RR)
    await a.join()
    await a.sync({a: b"A1"})
    await b.send_join()
    await world.pause()
    await a.join()
    await b.joined()
    await a.sync({a: b"A2", b: b"B2"})
    await b.sync()
    return a, b


async def static_members_come_back(world: World) -> None:
    await world.begin("static members come back")
    a, b = await static_pair(world)
    await world.describe()
    back = Member(world, "b", instance="two", protocols=RANGE_AND_RR)
    await back.join("follower comes back")
    await back.sync()
    await b.heartbeat("heartbeat of the replaced")
    await b.commit("commit of the replaced")
    await b.leave((b.member_id, "two"))
    await world.describe()
    for version in (9, 8, 5):
        leader = Member(world, "a", instance="one", version=version, protocols=RANGE_AND_RR)
        await leader.join(f"leader comes back, version {version}")
        await leader.sync()
    await a.join("replaced leader joins")
    await leader.leave(("", "two"), ("", "one"), ("who", "one"))
    await world.describe()


async def static_members_change(world: World) -> None:
    await world.begin("static members change")
    a, _ = await static_pair(world)
    b = Member(world, "b", instance="two", protocols={"rr": CHANGED})
    await b.send_join()
    await world.pause()
    await world.describe()
    await a.join()
    await b.joined("comes back with another choice")
    await a.sync({a: b"A3"})
    await b.sync()
    await a.send_join()
    await world.pause()
    again = Member(world, "a", instance="one", protocols=RANGE_AND_RR)
    await again.send_join()
    await a.joined("fenced while it joins")
    await b.join()
    await again.joined()
    await b.send_sync()
    await world.pause()
    last = Member(world, "b", instance="two", protocols={"rr": CHANGED})
    await last.send_join()
    await b.synced("fenced while it waits for the assignment")
    await world.describe()
    await again.join()
    await last.joined()


async def old_versions(world: World) -> None:
    await world.begin("old versions")
    a = Member(world, "a", version=0, sync_version=0)
    b = Member(world, "b", version=3, sync_version=3)
    await a.join()
    await a.sync({a: b"A1"})
    await b.send_join()
    await world.pause()
    await a.join()
    await b.joined()
    await a.leave((b.member_id, None), version=0)
    await a.leave(("who", None), version=2)


async def timeouts(world: World) -> None:
    await world.begin("timeouts")
    a, b = Member(world, "a", rebalance_ms=1_500), Member(world, "b", rebalance_ms=1_500)
    await a.send_first_join()
    await a.joined()
    await b.send_first_join()
    await world.pause()
    await a.join()
    await b.joined()
    await a.sync({a: b"A2", b: b"B2"})
    await b.sync()
    await a.join("join that the other does not answer")
    await b.heartbeat("heartbeat of the dropped")
    await trio.sleep(1.8)
    await a.heartbeat("heartbeat of one that did not sync")
    await world.describe()


STORIES = [
    two_dynamic_members,
    strangers,
    administration,
    static_members_come_back,
    static_members_change,
    old_versions,
    timeouts,
]


async def tell(connect: Callable[[str], Awaitable[Link]], run: str) -> list[str]:
    world = World(connect, run)
    for story in STORIES:
        await story(world)
    return world.lines


# ---------------------------------------------------------------------- to a broker over the network


class SocketLink:
    """A connection to a broker."""

    def __init__(self, stream: trio.SocketStream, client_id: str) -> None:
        self._stream = stream
        self._client_id = client_id.encode()
        self._asked: tuple[type[Message], int]

    async def send(self, request: Message, version: int) -> None:
        kind = type(request)
        flexible = b"\0" if version in kind.flexible else b""
        header = struct.pack(">hhih", kind.api_key, version, 1, len(self._client_id)) + self._client_id + flexible
        body = request.encode(version)
        self._asked = kind, version
        await self._stream.send_all(struct.pack(">i", len(header) + len(body)) + header + body)

    async def receive(self) -> Any:
        (size,) = struct.unpack(">i", await self._read(4))
        data = await self._read(size)
        kind = response_class(self._asked[0])
        version = self._asked[1]
        return kind.decode(data, version, start=5 if version in kind.flexible else 4)

    async def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = await self._stream.receive_some(size - len(data))
            assert more, "connection closed"
            data += more
        return data


def response_class(request_class: type[Message]) -> type[Message]:
    name = request_class.__name__.removesuffix("Request") + "Response"
    found: type[Message] = getattr(sys.modules[request_class.__module__], name)
    return found


async def main(address: str) -> None:
    host, port = address.split(":")

    async def connect(client_id: str) -> Link:
        return SocketLink(await trio.open_tcp_stream(host, int(port)), client_id)

    admin = await connect("admin")
    topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    await admin.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    await admin.receive()
    await trio.sleep(1)
    print("\n".join(await tell(connect, str(time.time_ns()))))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
