"""A lane writes each batch once, whatever leaders and connections do; its requests go to a scripted leader."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.server.rest.client import producer as module
from ottla.server.rest.client.cluster import Topic
from ottla.server.rest.client.producer import KafkaProducer, Outgoing, Written
from ottla.server.rest.errors import KafkaFailure, RestError, Unreachable, check
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataResponsePartition
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import read_header

PARTITIONS = 3


class Leader:
    """Leads all partitions, and keeps what it takes. `script`: the trouble of each request in turn; None: none."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.known_ids = 0
        self.batches: list[tuple[int, int, int, list[bytes | None]]] = []
        """Partition, producer id, first sequence and values of each batch that was sent."""
        self.log: dict[int, list[bytes | None]] = {number: [] for number in range(PARTITIONS)}
        self._written: dict[tuple[int, int, int], int] = {}
        self.before: Callable[[], Any] | None = None
        self.nursery: trio.Nursery | None = None
        self.has_ids = True
        self.id_troubles: list[int] = []

    async def topic(self, name: str, *, creates: bool = False) -> Topic:
        parts = [
            MetadataResponsePartition(
                error_code=0, partition_index=number, leader_id=1, replica_nodes=[1], isr_nodes=[1]
            )
            for number in range(PARTITIONS)
        ]
        return Topic(name, False, parts, 0.0)

    async def leader(self, topic: str, number: int) -> int:
        return 1

    def forget_topic(self, name: str) -> None:
        pass

    async def ask_any(self, request: InitProducerIdRequest, take: Callable[[Any], Any]) -> Any:
        if self.id_troubles:
            check(self.id_troubles.pop())
        self.known_ids += 1
        code = 0 if self.has_ids else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return take(SimpleNamespace(error_code=code, producer_id=self.known_ids, producer_epoch=0))

    async def ask_waiting(
        self, wait: Any, leader: int, request: Any, take: Callable[[Any], Any], **options: Any
    ) -> Any:
        assert request.acks == -1
        await trio.lowlevel.checkpoint()
        if self.before is not None:
            await self.before()
        [data] = request.topic_data[0].partition_data
        header = read_header(data.records)
        values = [each.value for each in decode_records(data.records)]
        self.batches.append((data.index, header.producer_id, header.base_sequence, values))
        trouble = self.script.pop(0) if self.script else None
        if isinstance(trouble, tuple):  # it is written, and the answer is lost
            self._append(data.index, header, values)
            raise trouble[0]
        if isinstance(trouble, Exception):
            raise trouble
        code = int(trouble or 0)
        if code == 0 and any(len(each or b"") > 100 for each in values):
            code = ErrorCode.MESSAGE_TOO_LARGE
        if code == 0 and len(values) > 5:
            code = ErrorCode.RECORD_LIST_TOO_LARGE
        base = -1 if code else self._append(data.index, header, values)
        part = SimpleNamespace(
            index=data.index, error_code=code, error_message=None, base_offset=base, log_append_time_ms=-1
        )
        return take(SimpleNamespace(responses=[SimpleNamespace(partition_responses=[part])]))

    def _append(self, number: int, header: Any, values: list[bytes | None]) -> int:
        log = self.log[number]
        place = (number, header.producer_id, header.base_sequence)
        if header.producer_id >= 0 and place in self._written:
            return self._written[place]
        base = self._written[place] = len(log)
        log += values
        return base


@pytest.fixture
async def write(autojump_clock: trio.abc.Clock):
    """Writes values by one producer to a scripted leader."""
    async with trio.open_nursery() as nursery:

        def producing(leader: Leader) -> Callable[..., Any]:
            leader.nursery = nursery
            producer = KafkaProducer(leader)  # type: ignore[arg-type]

            async def write(*values: bytes | None, partition: int | None = 0, key: bytes | None = None) -> list[Any]:
                return await producer.write("t", [Outgoing(key, value, partition) for value in values])

            return write

        yield producing


async def test_records_have_their_offsets_in_their_order(write) -> None:
    leader = Leader()
    send = write(leader)
    assert [each.offset for each in await send(b"a", b"b", None)] == [0, 1, 2]
    assert [each.offset for each in await send(b"c")] == [3]
    assert leader.log[0] == [b"a", b"b", None, b"c"]
    assert [each[1:3] for each in leader.batches] == [(1, 0), (1, 3)]


async def test_what_waits_becomes_one_batch(write) -> None:
    leader = Leader()
    send = write(leader)
    goes_on = trio.Event()
    leader.before = goes_on.wait
    found: dict[int, list[Any]] = {}

    async def one(index: int) -> None:
        found[index] = await send(b"%d" % index)

    async with trio.open_nursery() as nursery:
        for index in range(5):
            nursery.start_soon(one, index)
            await trio.testing.wait_all_tasks_blocked()
        goes_on.set()
    assert [len(each[3]) for each in leader.batches] == [1, 4]
    assert {index: outcomes[0].offset for index, outcomes in found.items()} == {index: index for index in range(5)}


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Unreachable("away"),
        Unreachable("lost", is_sent=True),
        (Unreachable("lost", is_sent=True),),
        (KafkaFailure(ErrorCode.REQUEST_TIMED_OUT),),
    ],
)
async def test_a_batch_in_trouble_is_written_once(write, trouble) -> None:
    leader = Leader(trouble, trouble, trouble)
    send = write(leader)
    assert [each.offset for each in await send(b"a", b"b")] == [0, 1]
    assert [each.offset for each in await send(b"c")] == [2]
    assert leader.log[0] == [b"a", b"b", b"c"]
    assert leader.known_ids == 1


async def test_records_whose_fate_stays_unknown_fail_and_the_next_have_another_producer_id(write) -> None:
    lost = Unreachable("lost", is_sent=True)
    leader = Leader(*[lost] * 10_000)
    send = write(leader)
    [outcome] = await send(b"a")
    assert isinstance(outcome, RestError)
    assert outcome.code == 50003
    leader.script = []
    assert [each.offset for each in await send(b"b")] == [0]
    assert leader.batches[-1][1:3] == (2, 0)


async def test_a_cluster_without_producer_ids_gets_each_batch_once(write) -> None:
    leader = Leader((Unreachable("lost", is_sent=True),))
    leader.has_ids = False
    send = write(leader)
    [outcome] = await send(b"a")
    assert isinstance(outcome, Unreachable)
    assert [each.offset for each in await send(b"b")] == [1]
    assert [each[1] for each in leader.batches] == [-1, -1]


async def test_a_broker_that_has_no_producer_ids_yet_is_asked_again(write) -> None:
    leader = Leader()
    leader.id_troubles = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    send = write(leader)
    assert [each.offset for each in await send(b"a")] == [0]
    assert leader.batches[0][1] == 1


async def test_a_refused_batch_uses_no_sequence(write) -> None:
    leader = Leader(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    send = write(leader)
    [outcome] = await send(b"a")
    assert outcome.code == 40301
    await send(b"b")
    assert [each[2] for each in leader.batches] == [0, 0]


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
async def test_a_producer_id_that_is_not_known_any_more_is_renewed(write, code) -> None:
    leader = Leader(None, code)
    send = write(leader)
    await send(b"a")
    assert [each.offset for each in await send(b"b")] == [1]
    assert leader.batches[-1][1:3] == (2, 0)


async def test_only_records_that_are_too_large_are_refused(write) -> None:
    leader = Leader()
    send = write(leader)
    values = [b"%d" % index for index in range(20)]
    values[7] = bytes(200)
    outcomes = await send(*values)
    assert [index for index, each in enumerate(outcomes) if isinstance(each, RestError)] == [7]
    assert outcomes[7].code == 50002
    assert [each for each in leader.log[0]] == [*values[:7], *values[8:]]
    assert [each.offset for each in outcomes if isinstance(each, Written)] == list(range(19))


async def test_partitions_are_chosen_by_key_or_in_turn(write, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader()
    send = write(leader)
    keyed = await send(b"a", b"b", partition=None, key=b"k")
    assert len({each.partition for each in keyed}) == 1
    # Without keys a partition is kept for some bytes, then another may come.
    monkeypatch.setattr(module, "STICKY_BYTES", 1)
    found = [(await send(b"xx", partition=None))[0].partition for _ in range(100)]
    assert set(found) == set(range(PARTITIONS))
    [outcome] = await send(b"a", partition=PARTITIONS)
    assert outcome.code == 40402


async def test_records_are_written_although_who_asked_has_gone(write) -> None:
    leader = Leader()
    send = write(leader)
    leader.before = partial(trio.sleep, 1)
    with trio.move_on_after(0.5) as scope:
        await send(b"a")
    assert scope.cancelled_caught
    leader.before = None
    assert [each.offset for each in await send(b"b")] == [1]


async def test_a_bug_is_told_to_those_who_wait(write, caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader(ZeroDivisionError())
    send = write(leader)
    [outcome] = await send(b"a")
    assert outcome.code == 500
    assert "bug" in caplog.text
    assert [each.offset for each in await send(b"b")] == [0]
