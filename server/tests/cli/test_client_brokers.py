"""Commands and two brokers that are made up: leaders that move, connections that are lost, partitions that are not well."""

import os
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from ottla.server.cli.administration.status import status_of
from ottla.server.cli.cli import main
from ottla.server.cli.client import cluster as cluster_module
from ottla.server.cli.client import producer as producer_module
from ottla.server.cli.client.batches import batch_of, header_block, nullable, values_area
from ottla.server.cli.client.cluster import Cluster
from ottla.server.cli.client.connection import Address
from ottla.server.cli.client.consumer import AtEnd, Batch, Consumer
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.client.producer import Producer, Sequences, producer_sequences
from ottla.server.cli.client.security import Security
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import decode_request_header, request_header_version, response_header_version
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, read_header

REQUESTS = {
    each.api_key: each
    for each in (
        ApiVersionsRequest,
        FetchRequest,
        InitProducerIdRequest,
        ListOffsetsRequest,
        MetadataRequest,
        ProduceRequest,
    )
}
PATIENT_S = 60.0
Place = tuple[str, int]


class World:
    """Brokers 1 and 2, and what they hold. Partitions 0 and 1 of `topic` are led by broker 1 and 2."""

    def __init__(self) -> None:
        self.listeners = {node_id: socket.create_server(("127.0.0.1", 0)) for node_id in (1, 2)}
        self.addresses = {each: Address(*listener.getsockname()) for each, listener in self.listeners.items()}
        self.leaders = {("topic", 0): 1, ("topic", 1): 2}
        self.isr = {place: [1, 2] for place in self.leaders}
        self.log: dict[Place, list[bytes]] = {place: [] for place in self.leaders}
        self.open_from: dict[Place, int] = {}
        """First offsets of open transactions."""
        self.hang_up: Callable[[int, Any], bool] = lambda node_id, request: False
        self.lose_answer: Callable[[int, Any], bool] = lambda node_id, request: False
        self.refuse_after: Callable[[int, Place], ErrorCode] = lambda node_id, place: ErrorCode.NONE
        self.refuse_producer: list[ErrorCode] = []
        self.lock = threading.Lock()
        self.refuse: Callable[[int, Any, Place], ErrorCode] = lambda node_id, request, place: ErrorCode.NONE
        for node_id, listener in self.listeners.items():
            threading.Thread(target=self._accept, args=(node_id, listener), daemon=True).start()

    def address(self, node_id: int) -> Address:
        return self.addresses[node_id]

    def close(self) -> None:
        for each in self.listeners.values():
            with suppress(OSError):  # a test has closed it
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def append(self, place: Place, *values: bytes) -> None:
        self._append(place, encode_batch([Record(0, 0, None, value) for value in values]))

    def _append(self, place: Place, batch: bytes) -> int:
        base = self.end(place)
        self.log[place].append(struct.pack(">q", base) + batch[8:])
        return base

    def end(self, place: Place) -> int:
        return read_header(self.log[place][-1]).next_offset if self.log[place] else 0

    def _accept(self, node_id: int, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(node_id, sock), daemon=True).start()

    def _serve(self, node_id: int, sock: socket.socket) -> None:
        # Whoever asked may hang up at any moment.
        with sock, suppress(OSError):
            while header := sock.recv(4, socket.MSG_WAITALL):
                frame = bytearray(sock.recv(struct.unpack(">i", header)[0], socket.MSG_WAITALL))
                key, version = struct.unpack_from(">hh", frame)
                cls = REQUESTS[key]
                given, body = decode_request_header(frame, 0, len(frame), request_header_version(cls, version))
                request = cls.decode(frame, version, body)
                if self.hang_up(node_id, request):
                    return
                answer = getattr(self, f"_{cls.__name__}")(node_id, request)
                if self.lose_answer(node_id, request):
                    return
                tags = b"\0" * response_header_version(type(answer), version)
                encoded = struct.pack(">i", given.correlation_id) + tags + answer.encode(version)
                sock.sendall(struct.pack(">i", len(encoded)) + encoded)

    # --- answers

    def _ApiVersionsRequest(self, node_id: int, request: ApiVersionsRequest) -> ApiVersionsResponse:
        keys = [ApiVersion(api_key=key, min_version=0, max_version=cls.versions.last) for key, cls in REQUESTS.items()]
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def _MetadataRequest(self, node_id: int, request: MetadataRequest) -> MetadataResponse:
        brokers = [MetadataResponseBroker(node_id=each, **self.address(each)._asdict()) for each in self.listeners]
        partitions = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=leader,
                replica_nodes=[1, 2],
                isr_nodes=self.isr[topic, number],
            )
            for (topic, number), leader in self.leaders.items()
        ]
        topic = MetadataResponseTopic(error_code=0, name="topic", partitions=partitions)
        is_asked = request.topics is None or request.topics
        return MetadataResponse(brokers=brokers, controller_id=1, topics=[topic] if is_asked else [])

    def _ListOffsetsRequest(self, node_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        [topic] = request.topics
        parts = [
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                error_code=self._error(node_id, request, ("topic", each.partition_index)),
                offset=0 if each.timestamp == -2 else self.end(("topic", each.partition_index)),
            )
            for each in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="topic", partitions=parts)])

    def _FetchRequest(self, node_id: int, request: FetchRequest) -> FetchResponse:
        [topic] = request.topics
        parts = []
        for each in topic.partitions:
            place = ("topic", each.partition)
            code = self._error(node_id, request, place)
            end = self.end(place)
            stable = self.open_from.get(place, end)
            readable = stable if request.isolation_level else end
            headers = [(read_header(batch), batch) for batch in self.log[place]]
            batches = [
                batch
                for header, batch in headers
                if header.next_offset > each.fetch_offset and header.base_offset < readable
            ]
            parts.append(
                PartitionData(
                    partition_index=each.partition,
                    error_code=code,
                    high_watermark=end,
                    last_stable_offset=stable,
                    records=None if code else batches[0] if batches else b"",
                )
            )
        return FetchResponse(responses=[FetchableTopicResponse(topic="topic", partitions=parts)])

    def _ProduceRequest(self, node_id: int, request: ProduceRequest) -> ProduceResponse:
        [topic] = request.topic_data
        parts = []
        for each in topic.partition_data:
            place = ("topic", each.index)
            with self.lock:
                code = self._error(node_id, request, place) or self._sequence_error(place, bytes(each.records))
                base = -1 if code else self._append(place, bytes(each.records))
            code = code or self.refuse_after(node_id, place)
            parts.append(PartitionProduceResponse(index=each.index, error_code=code, base_offset=base))
        return ProduceResponse(responses=[TopicProduceResponse(name="topic", partition_responses=parts)])

    def _sequence_error(self, place: Place, batch: bytes) -> ErrorCode:
        """As a leader that remembers all batches of a producer."""
        header = read_header(batch)
        if header.producer_id < 0:
            return ErrorCode.NONE
        known = [read_header(each) for each in self.log[place]]
        sequences = [each.base_sequence for each in known if each.producer_id == header.producer_id]
        if header.base_sequence in sequences:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        expected = sum(each.records_count for each in known if each.producer_id == header.producer_id)
        return ErrorCode.NONE if header.base_sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def _InitProducerIdRequest(self, node_id: int, request: InitProducerIdRequest) -> InitProducerIdResponse:
        assert request.transactional_id is None
        code = self.refuse_producer.pop() if self.refuse_producer else ErrorCode.NONE
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=0)

    def _error(self, node_id: int, request: Any, place: Place) -> ErrorCode:
        if self.leaders[place] != node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return self.refuse(node_id, request, place)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


@pytest.fixture
def cluster(world: World) -> Iterator[Cluster]:
    reached = Cluster.reached([world.address(1)], Security(), PATIENT_S)
    yield reached
    reached.close()


def read(
    cluster: Cluster, begins: dict[Place, int], on_batch: Callable[[], None] = lambda: None
) -> list[tuple[Place, int]]:
    """Place and first offset of each batch, up to the ends."""
    reader = Consumer(cluster, begins, 1)
    found = []
    try:
        for each in reader:
            if isinstance(each, Batch):
                found.append((each.place, each.header.base_offset))
                on_batch()
            else:
                assert isinstance(each, AtEnd)
                reader.close(each.place)
    finally:
        reader.close_all()
    return sorted(found)


PLACES = [("topic", 0), ("topic", 1)]


def test_several_leaders_are_read(world, cluster):
    for _ in range(3):
        world.append(PLACES[0], b"a", b"b")
        world.append(PLACES[1], b"c")
    wanted = [(PLACES[0], 2), (PLACES[0], 4), (PLACES[1], 0), (PLACES[1], 1), (PLACES[1], 2)]
    assert read(cluster, {PLACES[0]: 2, PLACES[1]: 0}) == wanted


@pytest.mark.parametrize("more", [(), ("-q",), ("--isolation-level", "read_uncommitted")])
def test_an_open_transaction_in_the_way_is_told_where_reading_ends(world, capfdbinary, more):
    world.append(PLACES[0], b"a", b"b")
    world.append(PLACES[0], b"open")
    world.open_from[PLACES[0]] = 2
    assert main(["consume", "topic", "-p", "0", "-e", "-b", str(world.address(1)), *more]) == 0
    told = capfdbinary.readouterr()
    waits = b"2, and records of an open transaction follow, up to 3 (--isolation-level read_committed)"
    ends = {(): waits, ("-q",): None}.get(more, b"3")
    assert told.out == (b"a\nb\nopen\n" if ends == b"3" else b"a\nb\n")
    assert told.err == (b"" if ends is None else b"% Reached end of topic topic [0] at offset " + ends + b": exiting\n")


def test_a_leader_that_moves_is_found(world, cluster, capsys):
    for _ in range(3):
        world.append(PLACES[0], b"a")

    def move() -> None:
        world.leaders[PLACES[0]] = 2

    assert read(cluster, {PLACES[0]: 0}, move) == [(PLACES[0], 0), (PLACES[0], 1), (PLACES[0], 2)]
    assert "NOT_LEADER_OR_FOLLOWER" in capsys.readouterr().err


def test_a_lost_connection_is_made_anew(world, cluster, capsys):
    for _ in range(3):
        world.append(PLACES[0], b"a")
    lost = []

    def hang_up(node_id: int, request: Any) -> bool:
        is_third = isinstance(request, FetchRequest) and request.topics[0].partitions[0].fetch_offset == 2
        if is_third and not lost:
            lost.append(node_id)
            return True
        return False

    world.hang_up = hang_up
    assert read(cluster, {PLACES[0]: 0}) == [(PLACES[0], 0), (PLACES[0], 1), (PLACES[0], 2)]
    assert lost == [1] and "trying again" in capsys.readouterr().err


def test_offsets_that_are_gone_are_passed_over(world, cluster, capsys):
    world.append(PLACES[0], b"a")
    world.refuse = lambda node_id, request, place: (
        ErrorCode.OFFSET_OUT_OF_RANGE
        if isinstance(request, FetchRequest) and request.topics[0].partitions[0].fetch_offset > 1
        else ErrorCode.NONE
    )
    assert read(cluster, {PLACES[0]: 9}) == []
    assert "offset 9 of topic-0 is not there (0 to 1 are); going on at 1" in capsys.readouterr().err


def test_a_broker_that_refuses_what_it_says_is_there_is_given_up(world, cluster, monkeypatch, capsys):
    """It is not asked again and again without a pause, and without an end."""
    monkeypatch.setattr(cluster_module, "ANSWER_TIMEOUT_S", 0.5)
    world.append(PLACES[0], b"a")
    asked = []

    def refuse(node_id: int, request: Any, place: Place) -> ErrorCode:
        if isinstance(request, FetchRequest):
            asked.append(place)
            return ErrorCode.OFFSET_OUT_OF_RANGE if len(asked) < 1000 else ErrorCode.NONE
        return ErrorCode.NONE

    world.refuse = refuse
    with pytest.raises(RequestFailed, match="offset 0 of topic-0 is refused, although 0 to 1 are there; given up"):
        read(cluster, {PLACES[0]: 0})
    assert len(asked) < 100
    assert capsys.readouterr().err.count("\n") == 1


def test_what_a_leader_refuses_for_the_moment_is_written_in_its_order(world, cluster):
    refused = []

    def refuse(node_id: int, request: Any, place: Place) -> ErrorCode:
        if isinstance(request, ProduceRequest) and len(refused) < 4:
            refused.append(place)
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    world.refuse = refuse
    producer = Producer(cluster, "topic", -1)
    assert producer.partitions == [0, 1]
    for value in range(8):
        producer.write({0: (encode_batch([Record(0, value, None, b"x")]), 1)})
    producer.settle()
    producer.close()
    assert producer.acknowledged == 8 and len(refused) == 4
    times = [read_header(each).base_timestamp for each in world.log[PLACES[0]]]
    # Those that were under way when the first was refused may have gone before it; nothing is lost or written twice.
    assert sorted(times) == list(range(8))
    assert [each for each in times if each < 4] == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(4))
def test_a_known_producer_writes_all_once_and_in_order_whatever_happens(world, cluster, monkeypatch, seed):
    monkeypatch.setattr(cluster_module, "RETRY_S", 0.001)
    chance = random.Random(seed)
    after = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT
    world.hang_up = lambda node_id, request: isinstance(request, ProduceRequest) and chance.random() < 0.1
    world.lose_answer = lambda node_id, request: isinstance(request, ProduceRequest) and chance.random() < 0.1
    world.refuse_after = lambda node_id, place: chance.choice(after) if chance.random() < 0.1 else ErrorCode.NONE

    def refuse(node_id: int, request: Any, place: Place) -> ErrorCode:
        if isinstance(request, ProduceRequest) and chance.random() < 0.1:
            world.leaders[place] = chance.choice([1, 2])
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE

    world.refuse = refuse
    world.refuse_producer = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    sequences = producer_sequences(cluster, {}, -1)
    producer = Producer(cluster, "topic", -1, sequences=sequences)
    for number in range(40):
        producer.write({each: numbered(sequences, each, number) for each in (0, 1)})
    producer.settle()
    producer.close()
    assert producer.acknowledged == 2 * 2 * 40
    for place in PLACES:
        assert [read_header(each).base_timestamp for each in world.log[place]] == list(range(40))


def numbered(sequences: Sequences, partition: int, number: int) -> tuple[bytes, int]:
    area = values_area([b"a", b"b"], nullable(None), header_block([]))
    return batch_of(area, 2, number, Compression.NONE, sequences.take(partition, 2)), 2


@pytest.mark.parametrize("is_led_at_first", [True, False])
def test_records_that_a_leader_will_always_miss_are_told_at_once(world, cluster, monkeypatch, is_led_at_first):
    """Also if an earlier batch had to be sent again, with a leader to begin with or without."""
    monkeypatch.setattr(cluster_module, "RETRY_S", 0.001)
    refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2

    def refuse(node_id: int, request: Any, place: Place) -> ErrorCode:
        return refusals.pop() if isinstance(request, ProduceRequest) and refusals else ErrorCode.NONE

    world.refuse = refuse
    world.leaders[PLACES[0]] = 1 if is_led_at_first else -1
    sequences = producer_sequences(cluster, {}, -1)
    producer = Producer(cluster, "topic", -1, sequences=sequences)
    world.leaders[PLACES[0]] = 1
    producer.write({0: numbered(sequences, 0, 0)})
    producer.settle()
    assert producer.acknowledged == 2 and not refusals
    numbered(sequences, 0, 1)  # never sent
    producer.write({0: numbered(sequences, 0, 2)})
    with pytest.raises(RequestFailed, match="topic-0 are refused: .*OUT_OF_ORDER.*; 2 records are acknowledged$"):
        producer.settle()
    # ... and if it is this batch that has to be sent again.
    refusals.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    producer.write({0: numbered(sequences, 0, 3)})
    with pytest.raises(RequestFailed, match="topic-0 are refused: .*OUT_OF_ORDER"):
        producer.settle()
    producer.close()


def test_a_known_producer_gives_up_in_the_end(world, cluster, monkeypatch):
    monkeypatch.setattr(producer_module, "DELIVERY_S", 0.0)
    sequences = producer_sequences(cluster, {}, -1)
    producer = Producer(cluster, "topic", -1, sequences=sequences)
    world.hang_up = lambda node_id, request: isinstance(request, ProduceRequest)
    producer.write({0: numbered(sequences, 0, 0)})
    with pytest.raises(RequestFailed, match="0 records are acknowledged, and 2 may or may not be written; given up"):
        producer.settle()
    producer.close()


def test_who_is_known_and_who_is_not(world, cluster):
    assert producer_sequences(cluster, {"enable.idempotence": "false"}, -1) is None
    assert producer_sequences(cluster, {}, 1) is None and producer_sequences(cluster, {}, 0) is None
    for texts, acks in (({"enable.idempotence": "true"}, 1), ({"enable.idempotence": "maybe"}, -1)):
        with pytest.raises(UsageError):
            producer_sequences(cluster, texts, acks)
    world.refuse_producer = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    assert producer_sequences(cluster, {}, -1) is None
    with pytest.raises(RequestFailed, match="CLUSTER_AUTHORIZATION_FAILED"):
        producer_sequences(cluster, {"enable.idempotence": "TRUE"}, -1)
    del cluster.first.versions[InitProducerIdRequest.api_key]
    assert producer_sequences(cluster, {}, -1) is None
    with pytest.raises(RequestFailed, match="serves no version of InitProducerId"):
        producer_sequences(cluster, {"enable.idempotence": "true"}, -1)


def test_sequences_begin_again_after_the_highest():
    sequences = Sequences(7, 3)
    assert sequences.take(0, 5) == (7, 3, 0)
    assert sequences.take(0, (1 << 31) - 6) == (7, 3, 5)
    assert sequences.take(0, 3) == (7, 3, (1 << 31) - 1)
    assert sequences.take(0, 1) == (7, 3, 2)
    assert sequences.take(1, 1) == (7, 3, 0)


@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_the_command_writes_as_a_known_producer_unless_told_otherwise(world, tmp_path, idempotence):
    (tmp_path / "record").write_bytes(b"value")
    options = ["-p", "0", "-b", str(world.address(1)), "-X", f"enable.idempotence={idempotence}"]
    assert main(["produce", "topic", str(tmp_path / "record"), *options]) == 0
    header = read_header(world.log[PLACES[0]][0])
    assert (header.producer_id, header.base_sequence) == ((7, 0) if idempotence == "true" else (-1, -1))


def test_what_is_refused_for_good_or_lost_is_counted(world, cluster):
    producer = Producer(cluster, "topic", -1)
    batch = encode_batch([Record(0, 0, None, b"x")])
    producer.write({0: (batch, 1), 1: (batch, 1)})
    producer.settle()
    world.refuse = lambda *_: ErrorCode.MESSAGE_TOO_LARGE
    producer.write({1: (batch, 1)})
    with pytest.raises(RequestFailed, match="topic-1 are refused: .*max.message.bytes.*; 2 records are acknowledged"):
        producer.settle()
    world.hang_up = lambda node_id, request: isinstance(request, ProduceRequest)
    producer.write({0: (batch, 3)})
    with pytest.raises(RequestFailed, match="2 records are acknowledged, and 3 may or may not be written"):
        producer.settle()
    producer.close()


def test_records_of_which_a_broker_says_nothing_are_not_lost_in_silence(world, cluster):
    world._ProduceRequest = lambda node_id, request: ProduceResponse(responses=[])
    producer = Producer(cluster, "topic", acks=-1)
    producer.write({0: (encode_batch([Record(0, 0, None, b"a")]), 1)})
    with pytest.raises(
        RequestFailed, match="does not say what became of records for topic-0; .* and 1 may or may not be written"
    ):
        producer.settle()
    producer.close()


def test_a_record_that_comes_through_a_pipe_is_whole(world, tmp_path):
    pipe, value = tmp_path / "pipe", bytes(range(256)) * 1200  # a pipe holds 64 KiB
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(value,), daemon=True)
    writer.start()
    assert main(["produce", "topic", str(pipe), "-p", "0", "-b", str(world.address(1))]) == 0
    writer.join(PATIENT_S)
    [batch] = world.log[PLACES[0]]
    assert [record.value for record in decode_records(batch)] == [value]


def test_nothing_is_said_to_be_written_that_was_not_sent(world, cluster):
    producer = Producer(cluster, "topic", -1)
    world.listeners[2].shutdown(socket.SHUT_RDWR)
    world.listeners[2].close()
    with pytest.raises(RequestFailed, match="broker 2 is at .*advertised.listeners.*; 0 records are acknowledged$"):
        producer.write({1: (encode_batch([Record(0, 0, None, b"x")]), 1)})
    producer.close()


def test_partitions_that_are_not_well_are_named(world, cluster, capsys):
    world.leaders[PLACES[0]] = -1
    world.isr[PLACES[1]] = [2]
    partitions = status_of(cluster)["partitions"]
    assert partitions == {"count": 2, "under_replicated": ["topic-1"], "offline": ["topic-0"]}
    assert main(["status", "-b", str(world.address(2)), "--timeout", "60"]) == 0
    told = capsys.readouterr().out
    assert "under-replicated  1 (topic-1)" in told and "offline           1 (topic-0)" in told


def test_topics_without_names_are_listed_all_the_same(world, capsys):
    """The field may be null, and a broker may say so of several."""
    nameless = [MetadataResponseTopic(error_code=0, name=name, partitions=[]) for name in (None, "t", None)]
    brokers = [MetadataResponseBroker(node_id=1, **world.address(1)._asdict())]
    world._MetadataRequest = lambda node_id, request: MetadataResponse(
        brokers=brokers, controller_id=1, topics=nameless
    )
    for command in ("topics", "status"):
        assert main([command, "-b", str(world.address(1))]) == 0
    assert capsys.readouterr().err == ""


def test_another_broker_is_asked_when_the_first_is_gone(world, cluster):
    world.hang_up = lambda node_id, request: node_id == 1
    assert [each.name for each in cluster.topics(["topic"])] == ["topic"]
    assert cluster.first.address == world.address(2)
    world.hang_up = lambda node_id, request: True
    with pytest.raises(RequestFailed, match="hung up|is lost"):
        cluster.metadata(None)
