"""From a single Apache Kafka 4 to Ottla in place, by the commands of docs/migration.md, and back by the copy."""

import shutil
import signal

from compat_tests.apache.brokers import ApacheKafka4
from compat_tests.applications.streams import make_topics, put, take
from compat_tests.migration.reader import Mover, told_to
from compat_tests.support.brokers import free_port, wait_until
from compat_tests.support.groups import answered
from confluent_kafka import Consumer, TopicPartition

COUNT = 300


def consumer(bootstrap: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "enable.auto.commit": False})


def committed(bootstrap: str) -> list[int]:
    reader = consumer(bootstrap)
    asked = [TopicPartition("orders", number) for number in range(3)]
    found = answered(lambda: reader.committed(asked, timeout=60))
    reader.close()
    return [each.offset for each in found]


def test_a_broker_moves_in_place_and_back(tmp_path):
    kafka = ApacheKafka4(tmp_path / "kafka", {"node.id": "1"})
    kafka.directory.mkdir()
    kafka.start()
    serving = None
    try:
        make_topics(kafka.bootstrap, 3, "orders")
        put(kafka.bootstrap, "orders", ((str(i), str(i), i + 1) for i in range(COUNT)))
        reader = consumer(kafka.bootstrap)
        offsets = [TopicPartition("orders", number, number + 7) for number in range(3)]
        answered(lambda: reader.commit(offsets=offsets, asynchronous=False))
        reader.close()
        ottla = f"127.0.0.1:{free_port()}"
        places = {"kafka:9092": kafka.bootstrap, "ottla:9092": ottla, "/var/lib/kafka": kafka.data_dir}
        mover = Mover(tmp_path / "mover", "kafka_4", places)
        look, copy, start, compare = told_to(__file__)
        mover.run(look)
        kafka.stop()
        mover.run(copy)
        log = tmp_path / "ottla.txt"
        serving = mover.begin(start, log)
        wait_until(lambda: f"listening on {ottla}" in log.read_text(), "Ottla serves")
        mover.run(compare)
        assert "orders:0:" in (mover.folder / "ends-after.txt").read_text()
        assert committed(ottla) == [7, 8, 9]
        assert len(take(ottla, "orders", lambda found: len(found) >= COUNT)) == COUNT
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(60) == 0, log.read_text()
        shutil.rmtree(kafka.data_dir)
        (kafka.directory / "data-before").rename(kafka.data_dir)
        kafka.start()
        assert committed(kafka.bootstrap) == [7, 8, 9]
        assert len(take(kafka.bootstrap, "orders", lambda found: len(found) >= COUNT)) == COUNT
    finally:
        if serving is not None and serving.poll() is None:
            serving.kill()
            serving.wait()
        kafka.stop()
