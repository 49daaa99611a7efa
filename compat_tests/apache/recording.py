"""Runs each kind of Java program of the tests once, for the files of `class_sharing.py`."""

import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

from compat_tests.apache import class_sharing
from compat_tests.apache.brokers import JARS, TOOLS, ApacheKafka, ApacheKafka3, ApacheKafka4
from compat_tests.support.brokers import BrokerProcess, OttlaProcess
from compat_tests.support.java_tools import JavaTools
from confluent_kafka import Consumer
from spark_examples.tests.submitting import JARS as SPARK_JARS
from spark_examples.tests.submitting import run_example

ENDS_WITHIN_S = 240.0  # to write a file takes some seconds of work
TOPIC = "recorded"


def record_all() -> None:
    """Make the files that are missing, of each release whose jars are here."""
    for release, kafka in (("kafka_4", ApacheKafka4), ("kafka_3", ApacheKafka3)):
        tools = TOOLS.get(release, release)
        if all((JARS / each / ".ready").exists() for each in (release, tools)):
            wanted = [("broker", release), ("tools", tools)] + [("zookeeper", release)] * (kafka is ApacheKafka3)
            missing = [each for each in wanted if not class_sharing.archive_of(each[0], JARS / each[1]).exists()]
            if missing:
                print(f"recording the classes of {', '.join(' '.join(each) for each in missing)}", flush=True)
                with tempfile.TemporaryDirectory() as folder:
                    _record(kafka, missing, Path(folder))
    jars = class_sharing.spark_jars()
    has_connector = any((SPARK_JARS / "flights").glob("*.jar"))
    if jars is not None and has_connector and not class_sharing.archive_of("spark", jars).exists():
        print("recording the classes of Spark", flush=True)
        with tempfile.TemporaryDirectory() as folder, class_sharing.recorded("spark", jars):
            _use_spark(Path(folder))


def _record(kafka: type[ApacheKafka], missing: list[tuple[str, str]], folder: Path) -> None:
    with ExitStack() as recordings:
        for program, release in missing:
            recordings.enter_context(class_sharing.recorded(program, JARS / release))
        broker = kafka(folder, {"group.initial.rebalance.delay.ms": "0"})
        broker.stop_timeout_s = ENDS_WITHIN_S
        broker.start()
        try:
            _use(broker, folder / "tools.txt")
        finally:
            zookeeper = getattr(broker, "zookeeper", None)
            BrokerProcess.stop(broker)
            if zookeeper is not None:
                zookeeper.stop(signal.SIGTERM)


def _use(broker: ApacheKafka, log: Path) -> None:
    """By some tools, of which one produces, and by a group's member."""
    tools = JavaTools(broker.release, log)
    there = ("--bootstrap-server", broker.bootstrap)
    sent = ("--num-records", "100", "--record-size", "10", "--throughput", "-1", "--producer-props")
    for name, *arguments in (
        ("TopicCommand", *there, "--create", "--topic", TOPIC),
        ("ProducerPerformance", "--topic", TOPIC, *sent, f"bootstrap.servers={broker.bootstrap}"),
        ("GetOffsetShell", *there, "--topic", TOPIC),
    ):
        tools(f"org.apache.kafka.tools.{name}", *arguments).fine()
    _read(broker)
    tools("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *there, "--list").fine()
    tools.process.stdin.close()
    tools.process.wait(timeout=ENDS_WITHIN_S)
    tools.process.stdout.close()


def _use_spark(folder: Path) -> None:
    """By an example, whose JVM ends by itself."""
    (directory := folder / "broker").mkdir()
    broker = OttlaProcess(directory, {}).start()
    try:
        run_example("payments", broker.bootstrap, folder)
    finally:
        broker.stop()


def _read(broker: ApacheKafka) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    assert consumer.consume(1, timeout=60)
    consumer.commit(asynchronous=False)
    consumer.close()
