"""The short append of a partition, against the one that does all: whatever came before, both leave the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.log.ordinary_batches import check_ordinary, ordinary_header
from ottla.replication.log.tests.logs import batch as plain
from ottla.replication.log.tests.logs import batches_of, contents, idempotent, marker, new_log
from ottla.replication.log.validator import AppendOrigin
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.replication.partition.partition import Partition
from ottla.wire.errors import KafkaError
from ottla.wire.records import TRANSACTIONAL_FLAG

TIMES = st.sampled_from([999_000, 1_000_000, 1_000_500])
STEPS = st.one_of(
    st.tuples(st.just("plain"), TIMES, st.sampled_from([1, -1])),
    st.tuples(
        st.just("numbered"), st.integers(7, 8), st.integers(0, 1), st.integers(-1, 1), st.sampled_from([1, 1, 1, 3])
    ),
    st.tuples(st.just("transactional"), st.integers(7, 8), st.integers(0, 1), st.integers(-1, 1)),
    st.tuples(st.just("marker"), st.integers(7, 8), st.integers(0, 1)),
    st.tuples(st.just("elected")),
    st.tuples(st.just("deposed")),
    st.tuples(st.just("held")),
    st.tuples(st.just("deleted")),
)


class Twin:
    """A partition, and all that others hear of it. With `is_short` ordinary batches take the short way first, as a broker does it."""

    def __init__(self, is_short: bool) -> None:
        self.is_short = is_short
        self.shortened = 0
        self.heard: list[Any] = []
        self.partition = Partition(
            "t", 0, new_log(segment_ms=400), local_id=1, request_flush=lambda _: self.heard.append("flush")
        )
        self.epoch = 0
        self.lead()
        self.partition.watchers.add(lambda: self.heard.append(self.partition.high_watermark))

    def lead(self) -> None:
        self.partition.make_leader(leader_epoch=self.epoch, partition_epoch=self.epoch, replicas=(1,), isr=(1,))

    def take(self, step: tuple[Any, ...]) -> Any:
        """What a step ends with."""
        try:
            return self._take(*step)
        except KafkaError as error:
            return error.code

    def _take(self, kind: str, *options: Any) -> Any:
        match kind:
            case "plain":
                return self._append(plain(options[0]), acks=options[1])
            case "numbered" | "transactional":
                producer_id, epoch, gap, *count = options
                known = self.partition.log.producers.get(producer_id)
                sequence = max(0, (known.last_sequence + 1 if known is not None and known.epoch == epoch else 0) + gap)
                is_transactional = kind == "transactional"
                records = idempotent(
                    sequence, *count, producer_id=producer_id, epoch=epoch, is_transactional=is_transactional
                )
                return self._append(records, guard=NOT_REQUIRED if is_transactional else None)
            case "marker":
                records = marker(producer_id=options[0], epoch=options[1])
                return self._append(records, origin=AppendOrigin.COORDINATOR)
            case "held":
                held = self.partition.log.producer_state().hold()
                told = {each: (entry.last_sequence, len(entry.batches)) for each, entry in held.items()}
                offset = self._take("numbered", 7, 0, 0)
                assert told == {each: (entry.last_sequence, len(entry.batches)) for each, entry in held.items()}
                self.partition.log.producer_state().release()
                return offset
            case "deleted":
                self.partition.mark_deleted()
            case _:
                self.epoch += 1
                if kind == "elected":
                    self.lead()
                else:
                    self.partition.make_follower(
                        leader_id=2, leader_epoch=self.epoch, partition_epoch=self.epoch, replicas=(1, 2)
                    )

    def _append(self, records: memoryview, *, acks: int = 1, now_ms: int = 1_000_000, **options: Any) -> Any:
        header = ordinary_header(records)
        if self.is_short and header is not None and not header.attributes & TRANSACTIONAL_FLAG:
            before = bytes(records)
            checked = check_ordinary(records, header, self.partition.log.validation_rules(), now_ms=now_ms)
            offset = None if checked is None else self.partition.append_ordinary(checked, acks, now_ms)
            if offset is not None:
                self.shortened += 1
                return offset
            assert bytes(records) == before
        info = self.partition.append_as_leader(records, required_acks=acks, now_ms=now_ms, **options)
        return info.first_offset

    def state(self) -> list[Any]:
        """All that is left of it."""
        partition, log, traffic = self.partition, self.partition.log, self.partition.traffic
        data, offset = b"", 0
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 30, upper_bound=log.log_end_offset)
            data, offset = data + contents(read.region), read.end_offset
        producers = {
            each: (
                entry.epoch,
                entry.batches,
                entry.last_timestamp,
                entry.current_txn_first_offset,
                entry.coordinator_epoch,
            )
            for each, entry in log.producers.items()
        }
        counts = traffic.messages_in, traffic.bytes_in, traffic.produce_requests
        bases = [segment.base_offset for segment in log.segments]
        offsets = partition.high_watermark, log.log_end_offset, log.latest_leader_epoch, log.first_unstable_offset
        map_end = log.producer_state().map_end_offset if log.producers else None
        return [data, batches_of(data), producers, counts, bases, offsets, map_end, self.heard]


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_both_ways_leave_the_same(steps: list[tuple[Any, ...]]) -> None:
    short, long = Twin(is_short=True), Twin(is_short=False)
    for step in steps:
        assert short.take(step) == long.take(step)
    assert short.state() == long.state()


def test_the_short_way_is_taken() -> None:
    twin = Twin(is_short=True)
    for step in (("plain", 1_000_000, 1), ("numbered", 7, 0, 0, 3), ("numbered", 7, 0, 0, 3), ("plain", 1_000_500, -1)):
        twin.take(step)
    assert twin.shortened == 3  # all but the first of a producer
