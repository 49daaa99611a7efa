"""Whether a cluster serves: small requests to every kind of leader, again and again, with little patience.

A client library waits, backs off and asks again by rules of its own, so that its acknowledgements say little of how long a
partition was away. A probe asks on a new connection each time: some broker who leads, and that one for what it is for. It
writes down when it was served; what it is not told in time it asks for again.

Kafka promises service while a majority of the brokers and of the ZooKeepers is well. `Trouble` says when that is not so:
from a fault that hits more than one broker, or one that comes before all have recovered from the one before, until all
replicas are in sync again.
"""

import struct
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from compat_tests.history.clients import Client
from compat_tests.support.raw import Peer

from ottla.server.peers.connection import exchange_of
from ottla.server.testing.history.fault_kinds import FaultKind
from ottla.server.testing.history.history import ProbeBegan, Recorder, Served, TroubleBegan, TroubleEnded
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader, decode_response_header, encode_request_header
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.schema import Message

TOPIC, OFFSETS_TOPIC = "probe", "__consumer_offsets"
PARTITIONS = 3
GROUPS = {"probe group 1": 0, "probe group 2": 1, "probe group 3": 2, "probe group 0": 3}
"""One for each of the four partitions of the offsets topic."""

PATIENCE_S = 1.5
PAUSE_S = 0.3
AWAY_MAX_S = 3.0 + 5.0
"""The session timeout of the brokers, and the time to elect another leader and to tell all brokers of it.

Who allows for more has more patience for an answer, too, in proportion.
"""

VERSIONS: dict[type[Message], int] = {
    MetadataRequest: 9,
    ProduceRequest: 9,
    FetchRequest: 11,
    FindCoordinatorRequest: 2,
    OffsetCommitRequest: 7,
}
Address = tuple[str, int]


class Unserved(Exception):
    """The answer is another one than was hoped for."""


def ask(address: Address, request: Message, answer: Callable[..., Any], patience_s: float) -> Any:
    """`answer(response)`; OSError or Unserved if it does not come."""
    exchange = exchange_of(type(request), VERSIONS[type(request)])
    header = RequestHeader(exchange.api_key, VERSIONS[type(request)], 1, "probe")
    parts: list[bytes] = [encode_request_header(header, exchange.request_header_version)]
    exchange.encode(request, parts.append)
    body = b"".join(parts)
    with Peer(address, timeout_s=patience_s) as peer:
        peer.send(struct.pack(">i", len(body)) + body)
        frame = peer.receive()
    if frame is None:
        raise Unserved("the broker hung up")
    _, position = decode_response_header(frame, 0, len(frame), exchange.response_header_version)
    return answer(exchange.decode(frame, position, len(frame)))


def is_bearable(fault: str) -> bool:
    """Whether a fault of this name cuts one broker off from all others, so that its session ends.

    A leader that is cut off from its followers alone keeps its session, and so the lead, with Apache Kafka too.
    """
    begins_so = fault.startswith(
        (FaultKind.KILLED, FaultKind.PAUSED, FaultKind.CUT_FROM_ZOOKEEPER, FaultKind.CUT_FROM_BOTH)
    )
    return begins_so and " and " not in fault and not fault.endswith("all")


def good(code: int) -> None:
    if code != ErrorCode.NONE:
        raise Unserved(ErrorCode(code).name)


class Probe(Client):
    """Of one kind and one partition."""

    def __init__(
        self, what: str, partition: int, record: Recorder, brokers: Sequence[Address], away_max_s: float
    ) -> None:
        super().__init__(f"probe of {what} {partition}", record)
        self.served = 0
        self._brokers = brokers
        self._numbers = count(partition)
        self._what = what, OFFSETS_TOPIC if what == "groups" else TOPIC, partition
        self._partition = partition
        self._patience_s = PATIENCE_S * away_max_s / AWAY_MAX_S
        self.add(ProbeBegan, *self._what, away_max_s)

    def turn(self) -> None:
        try:
            self.serve(self._brokers[next(self._numbers) % len(self._brokers)])
        except (OSError, Unserved):
            pass
        else:
            self.served += 1
            self.add(Served, *self._what)
        self.is_over.wait(PAUSE_S)

    def serve(self, somebody: Address) -> None:
        raise NotImplementedError

    def _ask(self, address: Address, request: Message, answer: Callable[..., Any]) -> Any:
        return ask(address, request, answer, self._patience_s)

    def leader(self, somebody: Address) -> Address:
        def found(response: object) -> Address:
            for told in response.topics[0].partitions:  # type: ignore[attr-defined]
                if told.partition_index == self._partition and told.leader_id >= 0:
                    return self._brokers[told.leader_id]
            raise Unserved("no leader")

        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        leader: Address = self._ask(somebody, request, found)
        return leader


class ProducerProbe(Probe):
    def __init__(self, partition: int, record: Recorder, brokers: Sequence[Address], away_max_s: float) -> None:
        super().__init__("producers", partition, record, brokers, away_max_s)

    def serve(self, somebody: Address) -> None:
        records = encode_batch([Record(0, int(time.time() * 1000), None, b"probe")])
        data = PartitionProduceData(index=self._partition, records=memoryview(records))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=int(self._patience_s * 1000), topic_data=[topic])
        self._ask(
            self.leader(somebody), request, lambda said: good(said.responses[0].partition_responses[0].error_code)
        )


class ReaderProbe(Probe):
    def __init__(self, partition: int, record: Recorder, brokers: Sequence[Address], away_max_s: float) -> None:
        super().__init__("readers", partition, record, brokers, away_max_s)

    def serve(self, somebody: Address) -> None:
        wanted = FetchPartition(partition=self._partition, fetch_offset=0, partition_max_bytes=1)
        topic = FetchTopic(topic=TOPIC, partitions=[wanted])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
        self._ask(self.leader(somebody), request, lambda said: good(said.responses[0].partitions[0].error_code))


class GroupProbe(Probe):
    def __init__(
        self, group: str, partition: int, record: Recorder, brokers: Sequence[Address], away_max_s: float
    ) -> None:
        super().__init__("groups", partition, record, brokers, away_max_s)
        self._group = group

    def serve(self, somebody: Address) -> None:
        def coordinator(said: object) -> Address:
            good(said.error_code)  # type: ignore[attr-defined]
            return self._brokers[said.node_id]  # type: ignore[attr-defined]

        found = self._ask(somebody, FindCoordinatorRequest(key=self._group), coordinator)
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[offset])
        request = OffsetCommitRequest(group_id=self._group, member_id="", topics=[topic])
        self._ask(found, request, lambda said: good(said.topics[0].partitions[0].error_code))


def probes(record: Recorder, brokers: Sequence[Address], away_max_s: float) -> list[Probe]:
    """One for everything that somebody leads. Each may be unserved for so long while there is no trouble."""
    where = record, brokers, away_max_s
    return [
        *[kind(partition, *where) for kind in (ProducerProbe, ReaderProbe) for partition in range(PARTITIONS)],
        *[GroupProbe(group, partition, *where) for group, partition in GROUPS.items()],
    ]


class Trouble:
    """Whether more is wrong than a cluster has to bear; see the module's docstring."""

    def __init__(self, add: Callable[..., None]) -> None:
        self._add = add
        self._lock = threading.Lock()
        self.is_there = False
        self._faults = 0

    def before_fault(self, *, is_well: bool, is_bearable: bool) -> None:
        """A fault begins. `is_bearable`: it hits one broker, which is as good as dead to all others."""
        with self._lock:
            self._faults += 1
            if not self.is_there and not (is_well and is_bearable):
                self.is_there = True
                self._add(TroubleBegan)

    def after_fault(self) -> None:
        with self._lock:
            self._faults -= 1

    def look(self, *, is_well: bool) -> None:
        with self._lock:
            if self.is_there and is_well and not self._faults:
                self.is_there = False
                self._add(TroubleEnded)
