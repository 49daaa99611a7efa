"""The producer of commands, before a leader that refuses for a moment and knows nothing of a new producer id."""

from collections import deque
from types import SimpleNamespace

import pytest

from ottla.server.cli.client.batches import batch_of, nullable, values_area
from ottla.server.cli.client.cluster import Cluster, TemporaryFailure
from ottla.server.cli.client.producer import ALL, IN_FLIGHT_MAX, Producer, Sequences
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.wire.records import read_header


class Leader:
    """Refuses the first request; then it takes the first sequence that it sees, whatever it is, and those that follow it."""

    address = "here"

    def __init__(self) -> None:
        self.requests = deque()
        self.in_flight_max = 0
        self.taken: list[int] = []
        self._refusals = 1

    def send(self, request, **_) -> None:
        self.requests.append(request.topic_data[0].partition_data)
        self.in_flight_max = max(self.in_flight_max, len(self.requests))

    def receive(self) -> ProduceResponse:
        answers = [
            PartitionProduceResponse(index=each.index, error_code=self._code(each), base_offset=0)
            for each in self.requests.popleft()
        ]
        return ProduceResponse(responses=[TopicProduceResponse(name="topic", partition_responses=answers)])

    def _code(self, part) -> ErrorCode:
        header = read_header(part.records)
        if self._refusals:
            self._refusals -= 1
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.taken and header.base_sequence != self.taken[-1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.taken.append(header.base_sequence)
        return ErrorCode.NONE

    def close(self) -> None:
        pass


class OneLeader(Cluster):
    def __init__(self, leader: Leader) -> None:
        self.leader = leader

    def topics(self, names, **_):
        return [SimpleNamespace(partitions=[SimpleNamespace(partition_index=0, leader_id=1)])]

    def connected(self, node_id):
        return self.leader

    def patiently(self, action, *_):
        while True:
            try:
                return action()
            except TemporaryFailure:
                continue


@pytest.mark.parametrize("count", [1, 2, 30])
def test_a_leader_that_is_not_ready_yet_gets_the_first_batch_first(count: int):
    leader, sequences = Leader(), Sequences(5, 0)
    producer = Producer(OneLeader(leader), "topic", ALL, sequences=sequences)
    area = values_area([b"value"], nullable(None), b"\0")
    for _ in range(count):
        producer.write({0: (batch_of(area, 1, 0, Compression.NONE, sequences.take(0, 1)), 1)})
    producer.settle()
    assert leader.taken == list(range(count)) and producer.acknowledged == count
    # From then on several are in flight.
    assert leader.in_flight_max == (IN_FLIGHT_MAX if count > IN_FLIGHT_MAX else 1)
