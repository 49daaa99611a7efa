"""Faults of clients that docs/troubleshooting.md names: the broker has answered everything, and they do not go on."""

import asyncio
import contextlib
import time

import aiokafka
import kafka as kafka_python
import pytest
from compat_tests.support.brokers import wait_until

from ottla.testing import Kafka
from ottla.wire.messages.create_topics import CreatePartitionsRequest, CreatePartitionsTopic

SHORT_MS = 10
LATE_S = 1
"""How late an answer is, so that no poll of SHORT_MS sees it."""

pytestmark = pytest.mark.long  # they show clients, not the broker, and need a machine that does not stall for a second

of_these_versions = pytest.mark.skipif(
    (kafka_python.__version__, aiokafka.__version__) != ("3.0.12", "0.14.0"), reason="later clients may have mended it"
)


@pytest.fixture
def kafka():
    with Kafka() as made:
        made.topic("orders")
        made.produce("orders", "one")
        yield made


def asked(kafka, api):
    return len(kafka.wire.requests(api))


@of_these_versions
@pytest.mark.may_be_skipped
def test_a_short_poll_of_kafka_python_forgets_that_its_leader_joins_again(kafka):
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=kafka.bootstrap, metadata_max_age_ms=100, **settings)
    with contextlib.closing(consumer):
        assert consumer.partitions_for_topic("orders")
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(timeout_ms=1000), "it reads the first record")
        kafka.on("SyncGroup").delay(LATE_S)
        more = CreatePartitionsTopic(name="orders", count=2, assignments=None)
        kafka.ask(CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=False))
        kafka.produce("orders", "two", partition=1)
        joined = asked(kafka, "SyncGroup") + 1

        def has_joined_again():
            assert not consumer.poll(timeout_ms=SHORT_MS)
            return [each for each in kafka.wire.requests("SyncGroup")[joined - 1 :] if each.is_answered]

        wait_until(has_joined_again, "it joins again, because there is a new partition, and is answered")
        heartbeats = asked(kafka, "Heartbeat")
        for _ in range(50):
            assert not consumer.poll(timeout_ms=SHORT_MS)
        assert kafka.group("g").members
        kafka.clock.advance(60)
        wait_until(lambda: not kafka.group("g").members, "the broker removes the silent member")
        for _ in range(50):
            assert not consumer.poll(timeout_ms=SHORT_MS)
        assert (asked(kafka, "SyncGroup"), asked(kafka, "Heartbeat")) == (joined, heartbeats)


@of_these_versions
@pytest.mark.may_be_skipped
@pytest.mark.parametrize("max_age_ms", [300_000, 1000])
def test_kafka_python_overlooks_a_topic_until_its_metadata_is_too_old(kafka, max_age_ms):
    question = kafka.on("Metadata").delay(LATE_S, after=1)
    settings = {"auto_offset_reset": "earliest", "metadata_max_age_ms": max_age_ms}
    with contextlib.closing(kafka_python.KafkaConsumer(bootstrap_servers=kafka.bootstrap, **settings)) as consumer:
        wait_until(lambda: question.hits, "it asks for metadata without a topic")
        consumer.subscribe(["orders"])
        if max_age_ms == 1000:
            wait_until(lambda: consumer.poll(timeout_ms=1000), "it reads the record")
        else:
            wait_until(lambda: kafka.wire.requests("Metadata")[-1].is_answered, "it is answered")
            assert not consumer.poll(timeout_ms=3000) and not consumer.assignment()
            assert asked(kafka, "Metadata") == 2


@of_these_versions
@pytest.mark.may_be_skipped
@pytest.mark.parametrize("commits", [True, False])
def test_aiokafka_cannot_stop_without_a_coordinator_if_it_commits_by_itself(kafka, commits):
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100, "retry_backoff_ms": 20}

    async def is_stopped() -> bool:
        consumer = aiokafka.AIOKafkaConsumer(
            "orders", bootstrap_servers=kafka.bootstrap, enable_auto_commit=commits, **settings
        )
        await consumer.start()
        await consumer.getone()
        rules = [
            kafka.on("Heartbeat").disconnect(times=None),
            kafka.on("FindCoordinator").fail("COORDINATOR_NOT_AVAILABLE", times=None),
        ]
        looked = asked(kafka, "FindCoordinator")
        end = time.monotonic() + 60
        while asked(kafka, "FindCoordinator") < looked + 2 and time.monotonic() < end:
            await asyncio.sleep(0.01)
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0.05)
        for rule in rules:
            rule.remove()
        looked = asked(kafka, "FindCoordinator")
        await asyncio.wait([stopping], timeout=1 if commits else 60)
        done = stopping.done()
        if not done:
            assert asked(kafka, "FindCoordinator") == looked
            stopping.cancel()
            await asyncio.wait([stopping], timeout=60)
            await consumer._fetcher.close()
            await consumer._client.close()
        return done

    assert asyncio.run(is_stopped()) is not commits
