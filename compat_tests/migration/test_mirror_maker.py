"""By MirrorMaker 2 from Apache Kafka to Ottla and back, by the commands of docs/migration.md, while brokers are killed."""

import dataclasses
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka4
from compat_tests.applications.streams import make_topics, put, take
from compat_tests.docs.pages import ROOT
from compat_tests.ecosystem.programs import feed, feeder
from compat_tests.migration.reader import Mover, told_to
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.cluster import SMALL_HEAP
from compat_tests.support.groups import answered
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

pytestmark = pytest.mark.ecosystem
FOLDER = ROOT / ".cache" / "jars" / "compat_tests" / "migration" / "mirror_maker"
COUNT, FIRST = 900, 40
"""So many records, of which partition 0 has lost those before FIRST."""


@pytest.fixture
def kafkas(tmp_path):
    """The Kafka that is left, and the one to which the way back leads."""
    started = []
    for name in ("kafka", "new_kafka"):
        (tmp_path / name).mkdir()
        started.append(ApacheKafka4(tmp_path / name, {"auto.create.topics.enable": "false"}, heap=SMALL_HEAP))
    started[0].start()
    yield started
    for each in started:
        each.stop()


def commit(bootstrap: str, offsets: list[int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    places = [TopicPartition("orders", number, offset) for number, offset in enumerate(offsets)]
    answered(lambda: consumer.commit(offsets=places, asynchronous=False))
    consumer.close()


def unread(bootstrap: str) -> list[str] | None:
    """The values that the group has yet to read. None while it has no offset in each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "enable.partition.eof": True})
    places = [TopicPartition("orders", number) for number in range(3)]
    found = answered(lambda: consumer.committed(places, timeout=60))
    left: list[str] = []
    if all(each.offset >= 0 for each in found):
        consumer.assign(found)
        ended = 0
        while ended < len(found):
            for message in consumer.consume(500, timeout=1):
                if message.error():
                    ended += 1
                else:
                    left.append(message.value().decode())
    consumer.close()
    return sorted(left, key=int) if all(each.offset >= 0 for each in found) else None


def mirror(mover: Mover, source: BrokerProcess, target: BrokerProcess, wanted: list[str], direction: str) -> None:
    """Run MirrorMaker until the target has what is wanted and the group is where it was. The target is killed meanwhile."""
    settings, start, count = told_to(__file__)
    if direction == "back":
        exchanged = settings.text.replace("kafka->ottla", "ottla->kafka").replace("ottla.exactly", "kafka.exactly")
        settings = dataclasses.replace(settings, text=exchanged)
    mover.run(settings)
    log = mover.folder / f"{direction}.txt"
    process = mover.begin(start, log)
    try:
        wait_until(lambda: "orders" in topics(target) and here(target), f"records arrive: {log}", 240)
        producer = feeder(source.bootstrap)
        feed(producer, "orders", range(COUNT, 2 * COUNT) if direction == "there" else range(2 * COUNT, 3 * COUNT))
        target.kill()
        target.restart()
        assert producer.flush(120) == 0
        found = take(target.bootstrap, "orders", lambda found: len(found) >= len(wanted), 300)
        assert sorted((value.decode() for _, value in found), key=int) == wanted
        commit(source.bootstrap, ends(source.bootstrap))
        wait_until(lambda: unread(target.bootstrap) == [], "a group at the end is at the end", 120)
    finally:
        process.terminate()
        process.wait(60)
    printed = mover.run(count).split()
    assert printed == [str(len(wanted))] * 2


def ends(bootstrap: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_offsets({TopicPartition("orders", number): OffsetSpec.latest() for number in range(3)})
    found = {place.partition: each.result(60).offset for place, each in asked.items()}
    return [found[number] for number in range(3)]


def topics(broker: BrokerProcess) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    return set(admin.list_topics(timeout=60).topics)


def here(broker: BrokerProcess) -> bool:
    return len(take(broker.bootstrap, "orders", lambda _: True)) > 0


@pytest.mark.timeout(1200)
def test_topics_and_groups_move_there_and_back(kafkas, start_broker, tmp_path):
    if not (FOLDER / ".ready").exists():
        pytest.skip("MirrorMaker is not on this machine (`make ecosystem` brings it)")
    kafka, new_kafka = kafkas
    ottla = start_broker({"auto.create.topics.enable": "false"})
    make_topics(kafka.bootstrap, 3, "orders")
    put(kafka.bootstrap, "orders", ((str(i), str(i), i + 1) for i in range(COUNT)))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for done in admin.delete_records([TopicPartition("orders", 0, FIRST)]).values():
        done.result(60)
    found = take(kafka.bootstrap, "orders", lambda _: True)
    wanted = sorted((value.decode() for _, value in found), key=int)
    assert len(wanted) == COUNT - FIRST
    commit(kafka.bootstrap, [FIRST + 30, 50, 60])
    wanted += [str(i) for i in range(COUNT, 2 * COUNT)]
    mirror(mover(tmp_path / "there", kafka, ottla), kafka, ottla, wanted, "there")
    kafka.stop()
    new_kafka.start()
    wanted += [str(i) for i in range(2 * COUNT, 3 * COUNT)]
    mirror(mover(tmp_path / "back", new_kafka, ottla), ottla, new_kafka, wanted, "back")


def mover(folder: Path, kafka: BrokerProcess, ottla: BrokerProcess) -> Mover:
    made = Mover(folder, "kafka_4", {"kafka:9092": kafka.bootstrap, "ottla:9092": ottla.bootstrap})
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    made.add_command("connect-mirror-maker.sh", FOLDER, "org.apache.kafka.connect.mirror.MirrorMaker", quiet)
    return made
