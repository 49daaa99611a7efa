"""Random appends to one partition that this broker leads alone, against a model of Kafka's rules for producers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.log.tests.logs import batch, batches_of, contents, idempotent, new_log
from ottla.replication.partition.partition import Partition
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.tests.effort import examples

NOW_MS = 1_000_000
WINDOW = 5  # batches that Kafka remembers of each producer
TIMES = st.sampled_from([999_000, NOW_MS, 1_000_500])
STEPS = st.one_of(
    st.tuples(st.just("plain"), TIMES, st.sampled_from([1, -1])),
    st.tuples(
        st.just("numbered"), st.integers(7, 8), st.integers(0, 1), st.integers(-2, 1), st.sampled_from([1, 1, 1, 3])
    ),
    st.tuples(st.just("held")),
    st.tuples(st.just("elected")),
    st.tuples(st.just("deposed")),
    st.tuples(st.just("deleted")),
)


class Producer:
    """A producer as the model knows it: its epoch and its last batches as (first sequence, last sequence, offset)."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[tuple[int, int, int]] = []


class Model:
    """The end of the log, its producers and the role of the broker, by Kafka's documented rules."""

    def __init__(self) -> None:
        self.end = 0
        self.producers: dict[int, Producer] = {}
        self.refusal: ErrorCode | None = None  # of every append, because the broker does not lead

    def append(self, count: int) -> int:
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        first, self.end = self.end, self.end + count
        return first

    def append_of(self, producer_id: int, epoch: int, sequence: int, count: int) -> int:
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        known = self.producers.get(producer_id)
        batch = sequence, sequence + count - 1
        if known is None:
            known = Producer(epoch)
        elif epoch < known.epoch:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        elif epoch == known.epoch:
            for *same, offset in known.batches:
                if tuple(same) == batch:
                    return offset
            if sequence != known.batches[-1][1] + 1:
                raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        elif sequence:
            raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        else:
            known = Producer(epoch)
        offset = self.append(count)
        known.batches = [*known.batches, (*batch, offset)][-WINDOW:]
        self.producers[producer_id] = known
        return offset


class Leader:
    """A partition that takes the steps; what watchers see of it never lags behind."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.partition = Partition("t", 0, new_log(segment_ms=400), local_id=1, request_flush=lambda _: None)
        self.model = Model()
        self.epoch = 0
        self.lead()
        self.partition.watchers.add(lambda: self.seen.append(self.partition.high_watermark))

    def lead(self) -> None:
        self.partition.make_leader(leader_epoch=self.epoch, partition_epoch=self.epoch, replicas=(1,), isr=(1,))

    def take(self, kind: str, *options: Any) -> None:
        match kind:
            case "plain":
                time_ms, acks = options
                self._compare(batch(time_ms), lambda: self.model.append(1), acks)
            case "numbered":
                self._append_numbered(*options)
            case "held":
                # A thread writes the producers into a snapshot: entries that it has must not change.
                state = self.partition.log.producer_state()
                held = state.hold()
                before = {each: (entry.last_sequence, len(entry.batches)) for each, entry in held.items()}
                self._append_numbered(7, 0, 0, 1)
                assert before == {each: (entry.last_sequence, len(entry.batches)) for each, entry in held.items()}
                state.release()
            case "deleted":
                self.partition.mark_deleted()
                self.model.refusal = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            case _:
                self._change_role(kind)

    def _append_numbered(self, producer_id: int, epoch: int, gap: int, count: int) -> None:
        known = self.model.producers.get(producer_id)
        follows = known is not None and known.epoch == epoch
        sequence = max(0, (known.batches[-1][1] + 1 if known is not None and follows else 0) + gap)
        records = idempotent(sequence, count, producer_id=producer_id, epoch=epoch)
        self._compare(records, lambda: self.model.append_of(producer_id, epoch, sequence, count))

    def _change_role(self, kind: str) -> None:
        if self.partition.is_deleted:
            return
        self.epoch += 1
        if kind == "elected":
            self.lead()
            self.model.refusal = None
        else:
            self.partition.make_follower(
                leader_id=2, leader_epoch=self.epoch, partition_epoch=self.epoch, replicas=(1, 2)
            )
            self.model.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _compare(self, records: memoryview, expect: Any, acks: int = 1) -> None:
        before = bytes(records)
        expected = _outcome(expect)
        found = _outcome(
            lambda: self.partition.append_as_leader(records, required_acks=acks, now_ms=NOW_MS).first_offset
        )
        assert found == expected
        # A refused batch may come again from the same buffer.
        if isinstance(found, ErrorCode):
            assert bytes(records) == before
        assert self.partition.log.log_end_offset == self.model.end

    def check(self) -> None:
        partition, log = self.partition, self.partition.log
        data, offset = b"", 0
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 30, upper_bound=log.log_end_offset)
            data, offset = data + contents(read.region), read.end_offset
        next_offset = 0
        for header in batches_of(data):
            assert header.base_offset == next_offset
            next_offset = header.next_offset
        assert next_offset == self.model.end == partition.traffic.messages_in
        assert partition.traffic.bytes_in == len(data)
        for producer_id, producer in self.model.producers.items():
            entry = log.producers[producer_id]
            known = [(each.first_sequence, each.last_sequence, each.first_offset) for each in entry.batches]
            assert (entry.epoch, known) == (producer.epoch, producer.batches)
        # Nobody else has to hold the records, so they are committed when they are written.
        assert self.seen == sorted(self.seen)
        assert partition.high_watermark == self.model.end


def _outcome(append: Any) -> Any:
    try:
        return append()
    except KafkaError as error:
        return error.code


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_appends_are_taken_and_refused_by_kafkas_rules(steps: list[tuple[Any, ...]]) -> None:
    leader = Leader()
    for step in steps:
        leader.take(*step)
    leader.check()
