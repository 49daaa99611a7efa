"""Spark's source and sink over SASL_SSL, with exactly the rights that they need: a stream goes on where its checkpoint says."""

import pytest
from compat_tests.support.guarded import READ, TOPIC, WRITE, GuardedOttla
from compat_tests.support.spark import session
from confluent_kafka.admin import NewTopic


@pytest.fixture
def spark():
    with session() as started:
        yield started


@pytest.mark.long
def test_spark(spark, unique, tmp_path):
    broker = GuardedOttla(tmp_path / "broker", {})
    broker.start()
    topic = unique("topic")
    broker.admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    # Its source asks for offsets by itself, in no group.
    broker.allow("spark", [(READ, TOPIC, topic), (WRITE, TOPIC, topic)])
    options = {f"kafka.{name}": value for name, value in broker.java("spark", "PLAIN").items()}
    options["kafka.bootstrap.servers"] = broker.bootstrap

    def produce(first: int, behind: int) -> None:
        rows = spark.createDataFrame([(str(number),) for number in range(first, behind)], "value STRING")
        rows.write.format("kafka").options(**options).option("topic", topic).save()

    def stream() -> list[int]:
        source = spark.readStream.format("kafka").options(**options).option("subscribe", topic)
        rows = source.option("startingOffsets", "earliest").load().selectExpr("CAST(value AS STRING)")
        files = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        files.trigger(availableNow=True).start(str(tmp_path / "found")).awaitTermination()
        return sorted(int(row.value) for row in spark.read.parquet(str(tmp_path / "found")).collect())

    try:
        produce(0, 10)
        assert stream() == list(range(10))
        produce(10, 15)
        assert stream() == list(range(15))
        assert broker.refused("spark") == []
    finally:
        broker.stop()
