"""The stories of `kafka_scenarios.py` told to this coordinator: it answers as Apache Kafka 4.3.1 did, field by field."""

from pathlib import Path
from typing import Any

import trio
import trio.testing

from ottla.groupcoord.service import finished
from ottla.groupcoord.tests.fakes import Coordination
from ottla.groupcoord.tests.kafka_scenarios import Link, response_class, tell
from ottla.wire.schema import Message

KAFKA_ANSWERED = Path(__file__).with_name("kafka_scenarios.txt").read_text().splitlines()


class LocalLink:
    """A connection without a network: requests and responses still go through their bytes."""

    def __init__(self, talk: Coordination, nursery: trio.Nursery, client_id: str) -> None:
        self._groups = talk.groups
        self._nursery = nursery
        self._who = {"client_id": client_id, "client_host": "/127.0.0.1"}
        self._send_answer, self._answers = trio.open_memory_channel[bytes](1)
        self._asked: tuple[type[Message], int]

    async def send(self, request: Message, version: int) -> None:
        self._asked = type(request), version
        request = type(request).decode(request.encode(version), version)
        answer = self._call(request, version)
        self._nursery.start_soon(self._deliver, answer, version)
        await trio.testing.wait_all_tasks_blocked()

    def _call(self, request: Message, version: int) -> Any:
        name = type(request).__name__.removesuffix("Request")
        method = {
            "JoinGroup": "join_group",
            "SyncGroup": "sync_group",
            "Heartbeat": "heartbeat",
            "LeaveGroup": "leave_group",
            "OffsetCommit": "offset_commit",
            "OffsetDelete": "offset_delete",
            "DescribeGroups": "describe_groups",
            "DeleteGroups": "delete_groups",
        }[name]
        details: dict[str, Any] = (
            {} if name in ("Heartbeat", "OffsetDelete", "DeleteGroups") else {"api_version": version}
        )
        if name == "JoinGroup":
            details |= self._who
        return getattr(self._groups, method)(request, **details)

    async def _deliver(self, answer: Any, version: int) -> None:
        await self._send_answer.send((await finished(answer)).encode(version))

    async def receive(self) -> Any:
        kind, version = self._asked
        return response_class(kind).decode(await self._answers.receive(), version)


async def test_this_coordinator_answers_as_kafka_does(autojump_clock: trio.abc.Clock) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    async with trio.open_nursery() as nursery:
        await talk.start(nursery)

        async def connect(client_id: str) -> Link:
            return LocalLink(talk, nursery, client_id)

        assert await tell(connect, "here") == KAFKA_ANSWERED
        nursery.cancel_scope.cancel()
