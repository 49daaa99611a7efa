"""What Spark skips of a topic that was deleted and made again under a query: the same beside Apache Kafka, so it is Spark's doing."""

import pytest
from compat_tests.apache.brokers import ApacheKafka4
from compat_tests.applications.streams import make_topics
from compat_tests.ecosystem.programs import feed, feeder
from compat_tests.support.brokers import OttlaProcess, wait_until
from compat_tests.support.spark import session
from confluent_kafka.admin import AdminClient

pytestmark = pytest.mark.ecosystem


@pytest.fixture(scope="module")
def spark():
    with session() as started:
        yield started


class Query:
    """A query that reads what there is, each time that it is asked, from where its checkpoint says."""

    def __init__(self, spark, bootstrap: str, folder, fail_on_data_loss: str) -> None:
        self._spark, self._bootstrap, self._folder = spark, bootstrap, folder
        self._fail_on_data_loss = fail_on_data_loss

    def all_found(self) -> list[int]:
        source = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._bootstrap)
        rows = (
            source.option("subscribe", "made")
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", self._fail_on_data_loss)
        )
        files = rows.load().selectExpr("CAST(value AS STRING)").writeStream.format("parquet")
        query = files.option("checkpointLocation", str(self._folder / "checkpoint")).trigger(availableNow=True)
        query.start(str(self._folder / "found")).awaitTermination()
        return sorted(int(row.value) for row in self._spark.read.parquet(str(self._folder / "found")).collect())


def write(bootstrap: str, numbers: range) -> None:
    producer = feeder(bootstrap)
    feed(producer, "made", numbers)
    assert producer.flush(60) == 0


def make_again(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics(["made"])["made"].result(60)
    wait_until(lambda: "made" not in admin.list_topics(timeout=60).topics, "the topic is deleted")
    make_topics(bootstrap, 1, "made")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fail_on_data_loss", ["false", "true"])
@pytest.mark.parametrize("kind", [OttlaProcess, ApacheKafka4])
def test_the_first_records_are_skipped(kind, fail_on_data_loss, spark, tmp_path):
    broker = kind(tmp_path / "broker", {"auto.create.topics.enable": "false"})
    broker.directory.mkdir()
    broker.start()
    try:
        query = Query(spark, broker.bootstrap, tmp_path, fail_on_data_loss)
        make_topics(broker.bootstrap, 1, "made")
        write(broker.bootstrap, range(100))
        assert query.all_found() == list(range(100))
        make_again(broker.bootstrap)
        write(broker.bootstrap, range(1000, 1150))
        # It goes on at offset 100, and cannot know that there was another topic.
        found = [*range(100), *range(1100, 1150)]
        assert query.all_found() == found
        make_again(broker.bootstrap)
        write(broker.bootstrap, range(2000, 2020))
        if fail_on_data_loss == "true":  # it was at 150
            with pytest.raises(Exception, match="PARTITION_OFFSET_CHANGED|offset was changed"):
                query.all_found()
            return
        assert query.all_found() == found
        write(broker.bootstrap, range(2020, 2030))
        assert query.all_found() == [*found, *range(2020, 2030)]
    finally:
        broker.stop()
