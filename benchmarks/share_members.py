"""Members of a share group, in one loop: they fetch records as fast as they get them, and accept all of them.

An acknowledgement goes with the next fetch, as the Java client does it where it acknowledges by itself. Nothing looks into
the records: what a member has acquired is written in the answer beside them.
"""

import select
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Self

from benchmarks.brokers import Broker, Failed
from benchmarks.wire_client import Client

from ottla.wire.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.wire.messages.share_group import ShareGroupHeartbeatRequest

HEARTBEAT_VERSION, FETCH_VERSION = 1, 2
LEAVE_EPOCH = FINAL_EPOCH = -1
LAST_EPOCH = (1 << 31) - 1
# What a Java client asks for by default.
MAX_WAIT_MS, MAX_BYTES, MAX_RECORDS = 500, 50 << 20, 500
ACCEPT = 1


class Member:
    """One member, with a connection for its heartbeats and its fetches."""

    def __init__(self, broker: Broker, group: str, topic: str, topic_id: bytes) -> None:
        self.client = Client(broker.port)
        self.group, self.member_id, self.epoch = group, str(uuid.uuid4()), 0
        self.assigned: list[int] = []
        self.acquired: list[tuple[int, AcquiredRecords]] = []
        self._topic, self._topic_id = topic, topic_id
        self._session_epoch = 0
        self._to_accept: list[tuple[int, AcquiredRecords]] = []

    def heartbeat(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            subscribed_topic_names=None if self.epoch else [self._topic],
        )
        answer = self.client.ask(request, HEARTBEAT_VERSION)
        must_be_zero(answer.error_code, "a heartbeat")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.assigned = [index for topic in answer.assignment.topic_partitions for index in topic.partitions]

    def fetch(self) -> None:
        """Ask for more, and accept what came last."""
        self._send(self._session_epoch)
        self._session_epoch = self._session_epoch % LAST_EPOCH + 1

    def receive(self) -> int:
        """How many records the answer has."""
        answer: ShareFetchResponse = self.client.receive()
        must_be_zero(answer.error_code, "a fetch")
        for topic in answer.responses:
            for partition in topic.partitions:
                must_be_zero(partition.error_code or partition.acknowledge_error_code, "a partition of a fetch")
                self._to_accept += ((partition.partition_index, each) for each in partition.acquired_records)
        self.acquired += self._to_accept
        return sum(each.last_offset - each.first_offset + 1 for _, each in self._to_accept)

    def finish(self) -> None:
        """Accept what came last, and leave."""
        self._send(FINAL_EPOCH)
        self.receive()
        leave = ShareGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=LEAVE_EPOCH)
        self.client.ask(leave, HEARTBEAT_VERSION)

    def _send(self, session_epoch: int) -> None:
        accepted: dict[int, list[AcknowledgementBatch]] = {}
        if session_epoch == 0:
            accepted = {index: [] for index in self.assigned}
        for index, each in self._to_accept:
            batch = AcknowledgementBatch(
                first_offset=each.first_offset, last_offset=each.last_offset, acknowledge_types=[ACCEPT]
            )
            accepted.setdefault(index, []).append(batch)
        self._to_accept = []
        partitions = [
            FetchPartition(partition_index=index, acknowledgement_batches=batches)
            for index, batches in accepted.items()
        ]
        is_last = session_epoch == FINAL_EPOCH
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=session_epoch,
            max_wait_ms=0 if is_last else MAX_WAIT_MS,
            min_bytes=0 if is_last else 1,
            max_bytes=0 if is_last else MAX_BYTES,
            max_records=0 if is_last else MAX_RECORDS,
            batch_size=0 if is_last else MAX_RECORDS,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[],
        )
        self.client.send(request, FETCH_VERSION)


class Members:
    """Plays members until there are no more records."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        for member in self.members:
            if failure is None:
                member.finish()
            member.client.close()

    def join(self, is_settled: Callable[[], bool], patience_s: float = 30.0) -> None:
        """Heartbeats of all, until the assignment is what it should be."""
        deadline = time.monotonic() + patience_s
        while not is_settled():
            if time.monotonic() > deadline:
                raise Failed(f"the share group is not settled within {patience_s:.0f} s")
            for member in self.members:
                member.heartbeat()
            time.sleep(0.05)

    def take(self, records: int, patience_s: float = 60.0) -> float:
        """Seconds until so many records were acquired by all of them together."""
        by_socket = {member.client.socket.fileno(): member for member in self.members}
        deadline = time.monotonic() + patience_s
        with select.epoll() as answers:
            for number in by_socket:
                answers.register(number, select.EPOLLIN)
            began = time.perf_counter()
            for member in self.members:
                member.fetch()
            while records > 0:
                if time.monotonic() > deadline:
                    raise Failed(f"{records:,} records are missing after {patience_s:.0f} s")
                for number, _ in answers.poll(1.0):
                    member = by_socket[number]
                    records -= member.receive()
                    member.fetch()
            seconds = time.perf_counter() - began
            for member in self.members:
                member.receive()
        return seconds

    def check(self, records: int) -> None:
        """Raise if a record was acquired twice, or never."""
        acquired = sorted(
            (index, each.first_offset, each.last_offset) for member in self.members for index, each in member.acquired
        )
        offsets: dict[int, int] = {}
        for index, first, last in acquired:
            if first != offsets.get(index, 0):
                raise Failed(f"offset {first} of partition {index}, where {offsets.get(index, 0)} comes next")
            offsets[index] = last + 1
        if sum(offsets.values()) != records:
            raise Failed(f"{sum(offsets.values()):,} records of {records:,}")


def must_be_zero(error_code: int, what: str) -> None:
    if error_code:
        raise Failed(f"{what} got error {error_code}")
