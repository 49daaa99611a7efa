"""The client over real sockets, with a broker in this process."""

import inspect

import pytest
import trio

from ottla.server.testing.client.admin import EARLIEST, LATEST
from ottla.server.testing.client.answers import NoAnswer
from ottla.server.testing.client.client import addresses_in, connect
from ottla.server.testing.client.producer import Outgoing
from ottla.server.testing.history.wrapping import History
from ottla.server.testing.kafka import Kafka
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.messages.groups import ListGroupsRequest


async def test_records_are_written_and_read(kafka: Kafka) -> None:
    async with connect(kafka.bootstrap) as client:
        await client.create_topic("orders", partitions=3)
        producer = client.producer()
        places = {
            key: [await producer.send("orders", b"v", key, headers=[("h", b"1")]) for _ in range(2)]
            for key in (b"a", b"b", b"c")
        }
        assert all(offsets[1] == offsets[0] + 1 for offsets in places.values())
        assert await producer.send_batch("orders", [Outgoing(b"1"), Outgoing(None)], partition=2) >= 0
        records = await client.read_all("orders")
        assert len(records) == 8 and records[0].headers == (("h", b"1"),)
        assert [each.value for each in records if each.key is None] == [b"1", None]
        assert await client.start("orders", 2) == 0
        assert await client.end("orders", 2) == sum(each.partition == 2 for each in records)
        assert await client.offset_at("orders", 2, EARLIEST) == 0 and await client.offset_at("orders", 2, LATEST) > 0
    assert len(kafka.records("orders")) == 8


async def test_a_group_goes_on_where_it_had_committed(kafka: Kafka) -> None:
    kafka.topic("orders", partitions=2)
    for partition in (0, 1):
        kafka.produce("orders", b"one", b"two", partition=partition)
    async with connect(kafka.bootstrap) as client:
        async with client.consumer("orders", group="billing") as consumer:
            found = []
            while len(found) < 4:
                found += await consumer.poll()
            assert consumer.assignment == [("orders", 0), ("orders", 1)]
            await consumer.commit({("orders", 0): 1, ("orders", 1): 2})
        assert [await client.committed("billing", "orders", each) for each in (0, 1)] == [1, 2]
        assert await client.committed("nobody", "orders") is None
        async with client.consumer("orders", group="billing") as consumer:
            assert [each.value for each in await consumer.poll(5)] == [b"two"]
            consumer.seek("orders", 1, 0)
            assert [each.offset for each in await consumer.poll(5)] == [0, 1]
            with pytest.raises(ValueError, match="does not have orders-7"):
                consumer.seek("orders", 7, 0)
        listed = await client.ask(ListGroupsRequest())
        assert [each.group_id for each in listed.groups] == ["billing"]


async def test_resets(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.produce("orders", b"one")
    async with connect(kafka.bootstrap) as client:
        async with client.consumer("orders", reset="latest") as consumer:
            while not consumer.positions:
                assert await consumer.poll(0.05) == []
            assert consumer.positions == {("orders", 0): 1}
        async with client.consumer("orders", reset="none") as consumer:
            with pytest.raises(KafkaError, match="reset is none"):
                await consumer.poll()
        async with client.consumer("orders") as consumer:
            await consumer.poll()
            consumer.seek("orders", 0, 77)
            assert [each.value for each in await consumer.poll(5)] == [b"one"]


async def test_refusals_are_errors(kafka: Kafka) -> None:
    async with connect(kafka.bootstrap) as client, connect(kafka.bootstrap, timeout_s=0.3) as hasty:
        await client.create_topic("orders", configs={"max.message.bytes": "100"})
        with pytest.raises(KafkaError) as refusal:
            await client.create_topic("orders")
        assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(KafkaError) as refusal:
            await client.producer().send("orders", bytes(1000))
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await client.delete_topic("orders")
        with pytest.raises(NoAnswer, match=r"no answer in 0.3 s: topic 'orders' known"):
            await hasty.producer().send("orders", b"one")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"acks": 0}, "acks is -1"),
        ({"acks": 1}, "give idempotent=False"),
        ({"idempotent": False, "transactional_id": "x"}, "is idempotent"),
    ],
)
async def test_producers_that_cannot_be(kafka: Kafka, options: dict[str, object], words: str) -> None:
    async with connect(kafka.bootstrap) as client:
        with pytest.raises(ValueError, match=words):
            client.producer(**options)


async def test_a_transaction_has_to_begin(kafka: Kafka) -> None:
    async with connect(kafka.bootstrap) as client:
        with pytest.raises(KafkaError, match="begin a transaction first"):
            await client.producer(transactional_id="t").send("orders", b"one")
        with pytest.raises(KafkaError, match="give the producer a transactional_id"):
            await client.producer().begin()
        with pytest.raises(KafkaError, match="no transaction is open"):
            await client.producer(transactional_id="t").commit()


async def test_a_record_is_not_taken_for_one_that_was_refused_after_it_was_written(kafka: Kafka) -> None:
    kafka.topic("orders")
    async with connect(kafka.bootstrap) as client:
        producer = client.producer()
        await producer.send("orders", b"one")
        kafka.on("Produce").disconnect(before=False)
        kafka.on("Produce").fail("TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            await producer.send("orders", b"two")
        assert await producer.send("orders", b"three") == 2
    assert [each.value for each in kafka.records("orders")] == [b"one", b"two", b"three"]


@pytest.mark.parametrize("api", ["CreateTopics", "DeleteTopics"])
async def test_a_topic_may_be_made_or_deleted_by_an_attempt_that_was_not_answered(kafka: Kafka, api: str) -> None:
    kafka.on(api).fail("NOT_CONTROLLER")
    kafka.on(api).disconnect(before=False)
    async with connect(kafka.bootstrap) as client:
        await client.create_topic("orders")
        await client.delete_topic("orders")
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await client.delete_topic("orders")


async def test_a_coordinator_that_is_refused_is_an_error(kafka: Kafka) -> None:
    kafka.topic("orders")
    kafka.on("FindCoordinator").fail("GROUP_AUTHORIZATION_FAILED", times=None)
    async with connect(kafka.bootstrap) as client:
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            await client.committed("billing", "orders")
        for group_protocol in ("classic", "consumer"):
            consumer = client.consumer("orders", group="billing", group_protocol=group_protocol)
            with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
                await consumer.poll(10)
            await consumer.close()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_transaction_with_a_record_that_was_refused_can_only_be_aborted(kafka: Kafka, version: int) -> None:
    kafka.topic("orders", settings={"max.message.bytes": 200})
    async with connect(kafka.bootstrap) as client:
        producer = client.producer(transactional_id="t", transaction_version=version)
        await producer.begin()
        await producer.send("orders", b"never")
        with pytest.raises(KafkaError) as refusal:
            await producer.send("orders", bytes(1000))
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(KafkaError, match="was not acknowledged: abort it"):
            await producer.commit()
        await producer.abort()
        epochs = []
        for value in (b"one", b"two"):
            async with producer.transaction():
                await producer.send("orders", value)
                epochs.append(producer.producer_epoch)
        while kafka.transactions()["t"].state != "CompleteCommit":  # the markers come after the answer
            await trio.sleep(0.01)
        assert [each.value for each in await client.read_all("orders", committed_only=True)] == [b"one", b"two"]
    # In the second way each end of a transaction has given another epoch.
    assert (epochs[0] != epochs[1]) == (version == 2)
    added = {"AddPartitionsToTxn": 3 if version == 1 else 0, "EndTxn": 3}
    # A request that comes before the markers of the transaction before is refused, and sent again.
    assert {api: sum(not each.errors for each in kafka.wire.requests(api)) for api in added} == added


async def test_what_is_no_broker_is_named(nursery: trio.Nursery) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some(1)
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, answer, [listener])
    port = listener.socket.getsockname()[1]
    with pytest.raises(ProtocolViolation, match="is not the begin of a response"):
        async with connect(f"127.0.0.1:{port}") as client:
            await client.ask(ListGroupsRequest())
    with pytest.raises(NoAnswer):
        async with connect(f"127.0.0.1:{port}", timeout_s=0.2, open_stream=_refused) as client:
            await client.ask(ListGroupsRequest())


async def _refused(host: str, port: int) -> trio.SocketStream:
    raise ConnectionRefusedError


def test_addresses() -> None:
    assert addresses_in("a:1, [::1]:2") == [("a", 1), ("::1", 2)]
    for wrong in ("", "a", ":1", "a:b", "a:70000", "a:1,,"):
        with pytest.raises(ValueError, match="is not HOST:PORT"):
            addresses_in(wrong)


async def test_a_clean_run_breaks_no_promise(kafka: Kafka) -> None:
    history = History()
    async with connect(kafka.bootstrap, history=history) as client:
        await client.create_topic("orders", partitions=2)
        producer = client.producer(transactional_id="t")
        for number in range(5):
            await producer.begin()
            await producer.send("orders", b"the same", partition=0)
            await producer.send("orders", b"the same", partition=1)
            await (producer.commit() if number % 2 else producer.abort())
        async with client.consumer("orders", group="g", committed_only=True) as consumer:
            found = []
            while len(found) < 4:
                found += await consumer.poll()
            await consumer.commit()
    history.check()
    assert len(history) > 40 and "observations" in repr(history)


def test_the_face_has_the_same_names() -> None:
    import ottla.testing
    import ottla.testing.client as face

    assert face.connect is connect and inspect.iscoroutinefunction(face.Client.ask)
    assert ottla.testing.History is History and callable(ottla.testing.simulate)
    assert all(hasattr(face, name) for name in face.__all__)
