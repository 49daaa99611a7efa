"""Lengths of paths: the files of the product that a produced record, and an OffsetCommit of a member, go through."""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio

from ottla.server.tests.console_client import FAR_S, make_topic, running
from ottla.wire.messages.classic_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.record_walk import IS_NATIVE
from ottla.wire.records import Record
from ottla.wire.schema import Message

RECORD_FILES_MAX, COMMIT_FILES_MAX = 12, 24
"""Whoever adds a file to a path raises its number, and says in the commit why the path needs it."""

SOURCES = Path(__file__).resolve().parents[2]
PACKAGES = ("wire/", "replication/", "groupcoord/", "server/")


class Steps:
    """Files whose functions run while a connection answers what has arrived."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._is_inside = False

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_name
        if not self._is_inside and name != "_step":
            return
        path = Path(frame.f_code.co_filename).resolve()  # packages are imported by links
        file = path.relative_to(SOURCES).as_posix() if path.is_relative_to(SOURCES) else ""
        if not file.startswith(PACKAGES):
            return  # of a library, or generated
        if file == "server/network/connection.py":
            self._is_inside = True
        if self._is_inside and file not in self.files:
            self.files.append(file)
        if file == "server/network/outbox.py" and name == "send":
            self._is_inside = False


async def call(stream: trio.SocketStream, request: Message, version: int, response: type[Message]) -> Any:
    tags = b"\0" if version in type(request).flexible else b""
    body = struct.pack(">hhih", type(request).api_key, version, 1, -1) + tags + request.encode(version)
    await stream.send_all(struct.pack(">i", len(body)) + body)
    received = b""
    while len(received) < 4 or len(received) < 4 + struct.unpack(">i", received[:4])[0]:
        received += await stream.receive_some(65536)
    return response.decode(received, version, start=8 + len(tags))


async def files_of(
    stream: trio.SocketStream, request: Message, version: int, response: type[Message]
) -> tuple[Any, list[str]]:
    """The answer to a request, and the files that it goes through when all that is made once is there."""
    for _ in range(2):
        await call(stream, request, version, response)
    steps, before = Steps(), sys.gettrace()
    sys.settrace(steps.note)
    try:
        return await call(stream, request, version, response), steps.files
    finally:
        sys.settrace(before)


@pytest.mark.skipif(not IS_NATIVE, reason="checks in Python have files of their own")
async def test_a_record_goes_through_few_files(tmp_path: Path) -> None:
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"value")])
    partition = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name="t", partition_data=[partition])
    with trio.fail_after(FAR_S):
        async with running(tmp_path) as broker:
            await make_topic(broker, "t", 1)
            async with await trio.open_tcp_stream("127.0.0.1", broker.listeners[0].port) as stream:
                request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
                produced, files = await files_of(stream, request, 11, ProduceResponse)
    assert produced.responses[0].partition_responses[0].base_offset == 2
    assert "server/api/produce/fast_path.py" in files and "replication/log/segment.py" in files
    assert len(files) <= RECORD_FILES_MAX, files


async def member_of_group(stream: trio.SocketStream) -> tuple[str, int]:
    while (await call(stream, FindCoordinatorRequest(key="g"), 0, FindCoordinatorResponse)).error_code:
        pass  # the topic is being made, or the group loaded; each call lets the broker go on
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    join = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30000,
        rebalance_timeout_ms=30000,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )
    while (joined := await call(stream, join, 3, JoinGroupResponse)).error_code:
        pass
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")]
    sync = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=assignments
    )
    await call(stream, sync, 3, SyncGroupResponse)
    return joined.member_id, joined.generation_id


async def test_a_commit_goes_through_few_files(tmp_path: Path) -> None:
    with trio.fail_after(FAR_S):
        async with running(tmp_path) as broker:
            await make_topic(broker, "t", 1)
            async with await trio.open_tcp_stream("127.0.0.1", broker.listeners[0].port) as stream:
                member_id, generation_id = await member_of_group(stream)
                partitions = [
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
                ]
                commit = OffsetCommitRequest(
                    group_id="g",
                    generation_id_or_member_epoch=generation_id,
                    member_id=member_id,
                    topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
                )
                committed, files = await files_of(stream, commit, 7, OffsetCommitResponse)
    assert not committed.topics[0].partitions[0].error_code
    assert "groupcoord/offsets/table.py" in files and "replication/log/segment.py" in files
    assert len(files) <= COMMIT_FILES_MAX, files
