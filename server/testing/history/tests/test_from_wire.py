"""A history from requests and answers, as a wire tap has them: here those of the test's own client."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from ottla.server.testing.client.client import Client, connect
from ottla.server.testing.client.connections import Channel
from ottla.server.testing.client.producer import Outgoing
from ottla.server.testing.history.from_wire import Exchange, exchanges_of, tell
from ottla.server.testing.history.narration import FinalRead
from ottla.server.testing.history.rules import Rule
from ottla.server.testing.history.wrapping import History
from ottla.server.testing.kafka import Kafka
from ottla.wire.errors import KafkaError
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.offsets import OffsetFetchResponse
from ottla.wire.messages.produce import ProduceResponse
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record


class Tap:
    """Exchanges of all channels, in the order in which they began."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._ticks = itertools.count()

    def send(self, send: Callable[..., None]) -> Callable[..., None]:
        def instead(channel: Channel, request: Any, version: int, answered: Any, *timeout: float) -> None:
            number, asked_at = len(self.exchanges), float(next(self._ticks))
            self.exchanges.append(Exchange(asked_at, None, "me", id(channel), request, None))

            def heard(response: Any) -> None:
                at = float(next(self._ticks))
                self.exchanges[number] = self.exchanges[number]._replace(answered_at=at, response=response)
                answered(response)

            send(channel, request, version, heard, *timeout)

        return instead

    def history(self) -> History:
        made = History()
        tell(made, self.exchanges)
        return made

    def change(self, kind: type, change: Callable[[Any], None]) -> None:
        """Change all responses of a kind."""
        for each in self.exchanges:
            if isinstance(each.response, kind):
                change(each.response)


@pytest.fixture
def tap(monkeypatch: pytest.MonkeyPatch) -> Tap:
    made = Tap()
    monkeypatch.setattr(Channel, "send", made.send(Channel.send))
    return made


@pytest.fixture
def kafka(kafka: Kafka) -> Kafka:
    kafka.topic("orders")
    return kafka


async def _work(client: Client) -> None:
    """Records in transactions and without, read by two kinds of consumers, and commits of a group."""
    for number in range(3):
        await client.producer().send("orders", b"the same")
        await client.producer(idempotent=False).send("orders", b"%d" % number)
    teller = client.producer(transactional_id="t")
    for number in range(4):
        await teller.begin()
        await teller.send("orders", b"the same")
        await teller.send_offsets("billing", {("orders", 0): number})
        await (teller.commit() if number % 2 else teller.abort())
    await teller.begin()
    await teller.send_offsets("billing", {("orders", 0): 4})  # and nothing else
    await teller.commit()
    await teller.begin()
    await teller.send("orders", b"abandoned")
    await client.producer(transactional_id="t").begin()
    assert await client.committed("billing", "orders") == 4
    for committed_only in (False, True):
        await client.read_all("orders", committed_only=committed_only)
    async with client.consumer("orders", group="readers", max_wait_ms=10) as consumer:
        await consumer.poll(5)
        await consumer.commit()
    async with client.consumer("orders", group="readers", max_wait_ms=10) as consumer:
        while not consumer.positions:
            await consumer.poll(0.05)


def _run(kafka: Kafka) -> None:
    async def main() -> None:
        async with connect(kafka.bootstrap) as client:
            await _work(client)

    trio.run(main)


def test_a_clean_run_breaks_no_promise(kafka: Kafka, tap: Tap) -> None:
    _run(kafka)
    history = tap.history()
    assert history.broken(all_producers=True) == []
    assert history.topics() == {"orders"} and len(history) > 40


@pytest.mark.parametrize("rule", [Rule.LOST, Rule.OFFSET_LOST, Rule.ABORTED_SHOWN, Rule.MOVED])
def test_a_broken_promise_is_found(kafka: Kafka, tap: Tap, rule: Rule) -> None:
    _run(kafka)
    {
        Rule.LOST: lambda: tap.change(FetchResponse, _without_records),
        Rule.OFFSET_LOST: lambda: tap.change(OffsetFetchResponse, _other_offset),
        Rule.ABORTED_SHOWN: lambda: tap.change(FetchResponse, _without_aborted),
        Rule.MOVED: lambda: tap.change(ProduceResponse, _other_place),
    }[rule]()
    assert rule in {each.violation.rule for each in tap.history().broken()}


def _parts(response: FetchResponse) -> Iterator[Any]:
    return (part for topic in response.responses for part in topic.partitions)


def _without_records(response: FetchResponse) -> None:
    """The first record of the partition, which an idempotent producer has sent, becomes a record of nobody."""
    for part in _parts(response):
        if part.records:
            part.records = encode_batch([Record(0, 0, None, b"x")], base_offset=40)


def _without_aborted(response: FetchResponse) -> None:
    for part in _parts(response):
        part.aborted_transactions = None


def _other_offset(response: OffsetFetchResponse) -> None:
    for topic in response.topics:
        for part in topic.partitions:
            part.committed_offset = 1


def _other_place(response: ProduceResponse) -> None:
    """The first two records have changed places."""
    for topic in response.responses:
        for part in topic.partition_responses:
            part.base_offset ^= part.base_offset < 2


def test_a_batch_that_is_sent_again_is_the_same(kafka: Kafka, tap: Tap) -> None:
    _run(kafka)
    produced = [each for each in tap.exchanges if isinstance(each.response, ProduceResponse)]
    first = produced[0]
    tap.exchanges.append(first._replace(asked_at=first.asked_at + 0.1, answered_at=None, response=None))
    assert tap.history().broken(all_producers=True) == []


def test_a_sequence_number_of_a_refused_batch_is_used_again(kafka: Kafka, tap: Tap) -> None:
    kafka.topic("small", settings={"max.message.bytes": 1000})

    async def main() -> None:
        async with connect(kafka.bootstrap) as client:
            producer = client.producer()
            await producer.send("small", b"a")
            kept = producer.producer_id
            with pytest.raises(KafkaError):
                await producer.send("small", b"x" * 2000)
            producer.producer_id = kept  # as other clients do
            await producer.send("small", b"y")
            await client.read_all("small")

    trio.run(main)
    assert tap.history().broken(all_producers=True) == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_write_after_the_fence_is_found_though_no_transaction_was_open(kafka: Kafka, tap: Tap, version: int) -> None:
    async def main() -> list[FinalRead]:
        async with connect(kafka.bootstrap) as client:
            first = client.producer(transactional_id="t", transaction_version=version)
            for _ in range(2):
                await first.begin()
                await first.send("orders", b"one")
                await first.commit()
            await client.producer(transactional_id="t", transaction_version=version).begin()
            request = first._request(("orders", 0), [Outgoing(b"late")], 7)
            tap.exchanges.append(tap.exchanges[-1]._replace(asked_at=1e9, response=None, request=request))
            return [FinalRead("orders", 0, 0, 9, [(8, "late")])]

    final = trio.run(main)
    assert Rule.FENCED_WROTE in {each.violation.rule for each in tap.history().broken(final)}


def test_requests_without_answer_and_damaged_ones_do_no_harm(kafka: Kafka, tap: Tap) -> None:
    _run(kafka)
    for number, each in enumerate(tap.exchanges):
        if number % 3 == 0:
            tap.exchanges[number] = each._replace(answered_at=None, response=None)
        for topic in getattr(each.request, "topic_data", ()) if number % 5 == 0 else ():
            for part in topic.partition_data:
                part.records = bytes(part.records)[:-3] + b"xyz"
    tap.history().broken()


class _Kept:
    """A request of a wire tap; without records if `left_out`."""

    time, answer_time, client_id = 1.0, 2.0, "me"
    is_of_broker, request, response = False, "request", "response"

    def __init__(self, left_out: int) -> None:
        self.left_out, self.connection, self.number, self.name_of = left_out, self, 7, None


def test_what_a_tap_has_not_kept_is_left_out() -> None:
    (found,) = exchanges_of([_Kept(0), _Kept(5)])
    assert found == Exchange(1.0, 2.0, "me", 7, "request", "response", None)  # type: ignore[arg-type]
