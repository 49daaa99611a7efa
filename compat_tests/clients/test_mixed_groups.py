"""Members of one group that are different clients: each in turn leads, computes the assignment, and leaves."""

import asyncio
import contextlib
import itertools
import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("aiokafka")
pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")

PARTITIONS = 4


class Member:
    """A consumer that polls in a thread of its own; `assignment` is the set of its partitions' numbers."""

    def __init__(self, bootstrap, topic, group, strategy):
        self.bootstrap, self.topic, self.group, self.strategy = bootstrap, topic, group, strategy
        self.assignment = set()
        self.stopping = threading.Event()
        executor = ThreadPoolExecutor(max_workers=1)
        self.running = executor.submit(self.run)
        executor.shutdown(wait=False)

    def run(self):
        raise NotImplementedError

    def leave(self):
        self.stopping.set()
        self.running.result(timeout=60)


class KafkaPython(Member):
    def run(self):
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        assignors = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
        # A poll that runs out while kafka-python commits before a rebalance leaves it stuck, with any broker: nothing is
        # committed here, and polls are long beside the work of a rebalance.
        options = {"bootstrap_servers": self.bootstrap, "group_id": self.group, "heartbeat_interval_ms": 100}
        options["enable_auto_commit"] = False
        consumer = KafkaConsumer(partition_assignment_strategy=[assignors[self.strategy]], **options)
        with contextlib.closing(consumer):
            # A leader that does not know the topic's partitions yet assigns none and may stay stuck, with any broker.
            assert consumer.partitions_for_topic(self.topic)
            consumer.subscribe([self.topic])
            while not self.stopping.is_set():
                consumer.poll(timeout_ms=500)
                self.assignment = {partition.partition for partition in consumer.assignment()}


class Confluent(Member):
    def run(self):
        from confluent_kafka import Consumer

        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "heartbeat.interval.ms": 100}
        consumer = Consumer(settings | {"partition.assignment.strategy": self.strategy})
        consumer.subscribe([self.topic])
        with contextlib.closing(consumer):
            while not self.stopping.is_set():
                consumer.poll(0.05)
                self.assignment = {partition.partition for partition in consumer.assignment()}


class Aiokafka(Member):
    def run(self):
        asyncio.run(self.consume())

    async def consume(self):
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            heartbeat_interval_ms=100,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        consumer.subscribe([self.topic])
        await consumer.start()
        try:
            while not self.stopping.is_set():
                await asyncio.sleep(0.05)
                self.assignment = {partition.partition for partition in consumer.assignment()}
        finally:
            await consumer.stop()


class Java(Member):
    """Kafka's VerifiableConsumer, which tells its rebalances as lines of JSON."""

    command: list[str]

    def run(self):
        assignor = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}[self.strategy]
        program = [*self.command, "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", self.bootstrap]
        options = ["--topic", self.topic, "--group-id", self.group]
        options += ["--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}"]
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        with subprocess.Popen(program + options, **quiet) as process:
            threading.Thread(target=lambda: (self.stopping.wait(), process.terminate()), daemon=True).start()
            for line in process.stdout:
                self.follow(json.loads(line))

    def follow(self, event):
        partitions = {partition["partition"] for partition in event.get("partitions", [])}
        if event["name"] == "partitions_assigned":
            self.assignment = self.assignment | partitions
        elif event["name"] == "partitions_revoked":
            self.assignment = self.assignment - partitions


CLIENTS = {"kafka-python": KafkaPython, "confluent-kafka": Confluent, "aiokafka": Aiokafka, "java": Java}
PAIRS = [(*pair, "range") for pair in itertools.permutations(["kafka-python", "confluent-kafka", "aiokafka"], 2)]
PAIRS += [("java", "confluent-kafka", "range"), ("kafka-python", "java", "range")]
PAIRS += [(*pair, "cooperative-sticky") for pair in itertools.permutations(["confluent-kafka", "java"], 2)]


@pytest.mark.parametrize(("first", "second", "strategy"), PAIRS)
def test_two_kinds_of_client_share_a_group(bootstrap, make_topic, unique, wait_until, request, first, second, strategy):
    if "java" in (first, second):
        Java.command = request.getfixturevalue("java")
    topic, group = make_topic(partitions=PARTITIONS), unique("group")
    one = CLIENTS[first](bootstrap, topic, group, strategy)
    everything = set(range(PARTITIONS))
    with contextlib.ExitStack() as stack:
        stack.callback(one.stopping.set)
        wait_until(lambda: one.running.done() or one.assignment == everything, f"{first} has all partitions")
        two = CLIENTS[second](bootstrap, topic, group, strategy)
        stack.callback(two.stopping.set)

        def they_share() -> bool:  # at one moment: a rebalance may follow at once and empty an assignment again
            mine, others = one.assignment, two.assignment
            return (len(mine), len(others)) == (2, 2) and mine | others == everything

        wait_until(lambda: one.running.done() or two.running.done() or they_share(), f"{first} and {second} share")
        one.leave()
        wait_until(lambda: two.running.done() or two.assignment == everything, f"{second} has all partitions")
        two.leave()
