"""aiokafka: the asyncio client, which speaks old, non-flexible versions of everything."""

import asyncio
import contextlib

import pytest

pytest.importorskip("aiokafka")
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import CommitFailedError, MessageSizeTooLargeError, TopicAlreadyExistsError


@contextlib.asynccontextmanager
async def running(client):
    """Starts any of aiokafka's clients and stops it again."""
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if hasattr(client, "close") else client.stop())


async def read(consumer, count, timeout_s=60):
    async with asyncio.timeout(timeout_s):
        return [await consumer.getone() for _ in range(count)]


async def eventually(probe, timeout_s=60):
    async with asyncio.timeout(timeout_s):
        while not (answer := probe()):
            await asyncio.sleep(0.02)
    return answer


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_sent(bootstrap, topic, codec, idempotent):
    values = [f"value {i} ".encode() * 30 for i in range(100)]
    headers = [("a", b"1"), ("a", b""), ("b", b"\xff")]

    async def scenario():
        options = {"bootstrap_servers": bootstrap, "compression_type": codec, "enable_idempotence": idempotent}
        async with running(AIOKafkaProducer(**options)) as producer:
            sends = [
                await producer.send(topic, v, key=v[:8], headers=headers, timestamp_ms=5000 + i)
                for i, v in enumerate(values)
            ]
            offsets = [(await send).offset for send in sends]
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with running(consumer):
            return offsets, await read(consumer, len(values))

    offsets, records = asyncio.run(scenario())
    assert offsets == list(range(100))
    assert [record.value for record in records] == values
    assert [record.key for record in records] == [value[:8] for value in values]
    assert [record.timestamp for record in records] == [5000 + i for i in range(100)]
    assert {tuple(record.headers) for record in records} == {tuple(headers)}


def test_offsets_seek_and_lookup_by_time(bootstrap, topic):
    partition = TopicPartition(topic, 0)

    async def scenario():
        async with running(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
            for i in range(20):
                await producer.send_and_wait(topic, b"%d" % i, timestamp_ms=1000 + 10 * i)
        async with running(AIOKafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 13)
            [record] = await read(consumer, 1)
            found = await consumer.offsets_for_times({partition: 1055})
            ends = await consumer.beginning_offsets([partition]), await consumer.end_offsets([partition])
            return record.offset, found[partition].offset, found[partition].timestamp, ends

    assert asyncio.run(scenario()) == (13, 6, 1060, ({partition: 0}, {partition: 20}))


def test_a_group_rebalances_when_members_come_and_go(bootstrap, make_topic, unique):
    topic, group = make_topic(partitions=4), unique("group")
    events = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked):
            events.append(("revoked", len(revoked)))

        def on_partitions_assigned(self, assigned):
            events.append(("assigned", len(assigned)))

    def member():
        return AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, heartbeat_interval_ms=100, session_timeout_ms=6000
        )

    async def scenario():
        async with running(member()) as one:
            one.subscribe([topic], listener=Listener())
            await eventually(lambda: len(one.assignment()) == 4)
            async with running(member()) as two:
                two.subscribe([topic])
                await eventually(lambda: (len(one.assignment()), len(two.assignment())) == (2, 2))
                assert not one.assignment() & two.assignment()
            await eventually(lambda: len(one.assignment()) == 4)

    asyncio.run(scenario())
    assert [event for event in events if event[1]] == [
        ("assigned", 4),
        ("revoked", 4),
        ("assigned", 2),
        ("revoked", 2),
        ("assigned", 4),
    ]


def test_committed_offsets_outlive_the_consumer(bootstrap, topic, unique):
    group, partition = unique("group"), TopicPartition(topic, 0)
    options = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }

    async def scenario():
        async with running(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
            for i in range(10):
                await producer.send_and_wait(topic, b"%d" % i)
        async with running(AIOKafkaConsumer(topic, **options)) as consumer:
            await read(consumer, 6)
            await consumer.commit()
        async with running(AIOKafkaConsumer(topic, **options)) as consumer:
            return await consumer.committed(partition), [record.value for record in await read(consumer, 4)]

    assert asyncio.run(scenario()) == (6, [b"6", b"7", b"8", b"9"])


def test_a_member_that_stops_sending_heartbeats_is_put_out(bootstrap, topic, unique):
    group = unique("group")

    def member(**options):
        return AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, heartbeat_interval_ms=100, **options
        )

    async def scenario():
        async with running(member(session_timeout_ms=2000, enable_auto_commit=False)) as silent:
            await eventually(lambda: len(silent.assignment()) == 1)
            silent._coordinator._heartbeat_task.cancel()
            async with running(member(session_timeout_ms=6000)) as heir:
                await eventually(lambda: len(heir.assignment()) == 1)
                with pytest.raises(CommitFailedError):
                    await silent.commit({TopicPartition(topic, 0): 0})

    asyncio.run(scenario())


def test_a_record_that_is_too_large_is_refused(bootstrap, make_topic):
    topic = make_topic(configs={"max.message.bytes": "1000"})

    async def scenario():
        async with running(AIOKafkaProducer(bootstrap_servers=bootstrap)) as producer:
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"x" * 2000)
            return (await producer.send_and_wait(topic, b"small")).offset

    assert asyncio.run(scenario()) == 0


def test_admin(bootstrap, unique):
    name = unique("topic")

    async def scenario():
        async with running(AIOKafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
            created = await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "7000"})])
            assert [error[1] for error in created.topic_errors] == [0]
            again = await admin.create_topics([NewTopic(name, 2, 1)])
            assert [error[1] for error in again.topic_errors] == [TopicAlreadyExistsError.errno]
            await admin.create_partitions({name: NewPartitions(3)})
            [described] = await admin.describe_topics([name])
            assert sorted(partition["partition"] for partition in described["partitions"]) == [0, 1, 2]
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.bytes": "12345"})])
            [answer] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            configs = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            # AlterConfigs replaces what was there.
            assert (configs["retention.bytes"], configs["retention.ms"]) == ("12345", "604800000")
            assert name in await admin.list_topics()
            await admin.delete_topics([name])
            await gone(admin)

    async def gone(admin):
        async with asyncio.timeout(60):
            while name in await admin.list_topics():
                await asyncio.sleep(0.02)

    asyncio.run(scenario())
