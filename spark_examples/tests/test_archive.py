"""An archive has what the topic had, ranges of it come back with the same checksums, and records that are gone are told."""

import shutil
import subprocess
import time
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

import pytest

for package in ("kafka", "pyspark"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (pip install '.[spark]')", allow_module_level=True)

from kafka import KafkaAdminClient, TopicPartition
from pyspark.errors import StreamingQueryException
from spark_examples.tests.broker import Broker
from spark_examples.tests.programs import programs_of

from ottla.server.cli.cli import main

example = programs_of("archive")
archive, restore, expected, check = example.archive, example.restore, example.expected, example.check

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:unclosed:ResourceWarning"),
]


@pytest.fixture
def ottla(broker):
    """Runs a command at the broker."""

    def run(*words: str) -> None:
        assert main([words[0], *words[1:], "-b", broker.bootstrap, "--timeout", "60"]) == 0

    return run


@pytest.fixture
def topic(spark, ottla) -> str:
    name = f"posts-{token_hex(4)}"
    ottla("generate", "posts", "-t", name, "--records", "1200", "--poison", "0.02", "-q")
    for each in ("offsets", "times"):
        ottla("topics", "create", f"{name}-{each}", "-p", "4")
    return name


@pytest.fixture
def hdfs(tmp_path) -> Iterator[str]:
    """The address of a small HDFS, which runs in a process of its own."""
    import pyspark

    jars = Path(__file__).resolve().parents[2] / ".cache" / "jars" / "spark_examples" / "tests"
    if not any(jars.glob("hadoop-client-minicluster-*.jar")) or shutil.which("java") is None:
        pytest.skip("Hadoop's small HDFS is not on this machine (`make setup` brings it)")
    folder, config = tmp_path / "hdfs", tmp_path / "hdfs.xml"
    folder.mkdir()
    path = f"{jars}/*:{Path(pyspark.__file__).parent}/jars/*"
    command = ["java", "-Xmx256m", "-cp", path, "org.apache.hadoop.test.MiniDFSClusterManager"]
    with open(tmp_path / "hdfs.log", "wb") as log:
        process = subprocess.Popen(
            [*command, "-format", "-datanodes", "1", "-writeConfig", config], cwd=folder, stdout=log, stderr=log
        )
    try:
        yield address_in(config, process)
    finally:
        process.kill()
        process.wait()


def address_in(config: Path, process: subprocess.Popen) -> str:
    """Wait for the file that the cluster writes when it serves."""
    end = time.monotonic() + 240
    while time.monotonic() < end and process.poll() is None:
        # It appears before it is whole.
        if config.exists() and config.read_text().rstrip().endswith("</configuration>"):
            properties = Xml.parse(config).iter("property")
            return next(each.findtext("value") for each in properties if each.findtext("name") == "fs.defaultFS")
        time.sleep(0.2)
    raise AssertionError("HDFS did not start:\n" + (config.parent / "hdfs.log").read_text()[-3000:])


def archived(spark, output):
    rows = restore.archived(spark, output).select("partition", "offset", "value").collect()
    return sorted((row.partition, row.offset, None if row.value is None else bytes(row.value)) for row in rows)


def test_the_example_says_equal(run_example):
    assert run_example("archive").splitlines()[-1] == "equal"


def test_ranges_come_back_as_they_were(spark, broker, topic, tmp_path):
    query = archive.start_query(spark, broker.bootstrap, topic, tmp_path, records_per_batch=300)
    while len(query.recentProgress) < 1:
        assert not query.awaitTermination(0.1), "the job ended before it could be stopped"
    query.stop()
    archive.follow(archive.start_query(spark, broker.bootstrap, topic, tmp_path, records_per_batch=500))
    posts = expected.records(broker.bootstrap, topic)
    assert archived(spark, tmp_path) == sorted((each.partition, each.offset, each.value) for each in posts)
    assert any(each.value is None for each in posts), "there is no poison, and the comparison says less than it should"

    records = restore.archived(spark, tmp_path)
    times = ("2026-01-01T00:00:20Z", "2026-01-01T00:01:30Z")
    restore.restore(records.where(restore.between_offsets(50, 200)), broker.bootstrap, f"{topic}-offsets")
    restore.restore(records.where(restore.between_times(*times)), broker.bootstrap, f"{topic}-times")
    for name, is_wanted in (
        ("offsets", expected.between_offsets(50, 200)),
        ("times", expected.between_times(*map(check.ms, times))),
    ):
        restored = expected.records(broker.bootstrap, f"{topic}-{name}")
        wanted = [each for each in posts if is_wanted(each)]
        assert 0 < len(wanted) < len(posts) and check.is_same(name, restored, wanted)
        assert not check.is_same(name, restored, wanted[1:])


def test_an_archive_in_hdfs(spark, broker, topic, hdfs):
    folder = f"{hdfs}/archive"
    for records_per_batch in (300, 1000):
        query = archive.start_query(spark, broker.bootstrap, topic, folder, records_per_batch=records_per_batch)
        while records_per_batch == 300 and len(query.recentProgress) < 1:
            assert not query.awaitTermination(0.1), "the job ended before it could be stopped"
        query.stop() if records_per_batch == 300 else archive.follow(query)
    posts = expected.records(broker.bootstrap, topic)
    assert archived(spark, folder) == sorted((each.partition, each.offset, each.value) for each in posts)
    wanted = [each for each in posts if expected.between_offsets(50, 200)(each)]
    rows = restore.archived(spark, folder).where(restore.between_offsets(50, 200))
    restore.restore(rows, broker.bootstrap, f"{topic}-offsets")
    assert check.is_same("offsets", expected.records(broker.bootstrap, f"{topic}-offsets"), wanted)


@pytest.fixture
def deleting_broker(tmp_path) -> Iterator[Broker]:
    """A broker that looks five times a second for what is older than its topics' retention."""
    broker = Broker(tmp_path, "log.retention.check.interval.ms=200", "log.segment.delete.delay.ms=100")
    broker.start()
    yield broker
    broker.stop()


def test_retention_deletes_behind_the_reader(spark, deleting_broker, tmp_path):
    """What was archived may go. If more is gone the job ends, which is Spark's default; or it goes on with what is left."""
    bootstrap, topic, output = deleting_broker.bootstrap, "posts", tmp_path / "archive"
    offsets = iter(range(1, 10))

    def write() -> None:
        words = ("--records", "300", "--seed", str(next(offsets)), "-b", bootstrap, "--timeout", "60", "-q")
        assert main(["generate", "posts", *words]) == 0

    def let_retention_delete() -> None:
        example.retention.set_retention(bootstrap, topic, 1000)  # the records are of last January
        example.retention.wait_until_deleted(bootstrap, topic, 120)
        example.retention.set_retention(bootstrap, topic, -1)

    def left() -> set[tuple[int, int, bytes | None]]:
        return {(each.partition, each.offset, each.value) for each in expected.records(bootstrap, topic)}

    # Deleted behind the reader: nothing is lost, and nothing is said.
    write()
    wanted = left()
    archive.follow(archive.start_query(spark, bootstrap, topic, output))
    let_retention_delete()
    assert left() == set()
    write()
    wanted |= left()
    archive.follow(archive.start_query(spark, bootstrap, topic, output))
    assert set(archived(spark, output)) == wanted and len(wanted) == 600

    # Deleted before it was read, once by the timer and once by DeleteRecords.
    for delete in (let_retention_delete, lambda: delete_before(bootstrap, topic, ends(bootstrap, topic))):
        write()
        delete()
        write()
        with pytest.raises(StreamingQueryException, match="KAFKA_DATA_LOSS|data may have been lost"):
            archive.follow(archive.start_query(spark, bootstrap, topic, output))
        assert set(archived(spark, output)) == wanted
        wanted |= left()
        archive.follow(archive.start_query(spark, bootstrap, topic, output, accepts_loss=True))
        assert set(archived(spark, output)) == wanted
    assert len(wanted) == 1200


def ends(bootstrap, topic):
    found = expected.records(bootstrap, topic)
    return {place: max(each.offset for each in found if each.partition == place) + 1 for place in range(4)}


def delete_before(bootstrap, topic, offsets):
    """What retention does, at once."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.delete_records({TopicPartition(topic, partition): offset for partition, offset in offsets.items()})
    finally:
        admin.close()
