"""Several log directories: replicas move between them under load, one of them fails, and the files are Kafka's."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.feed import Feed, read_all
from compat_tests.support.java_tools import JavaTools
from compat_tests.support.raw import Peer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.log_dirs import AlterReplicaLogDir, AlterReplicaLogDirTopic

TOOLS = "org.apache.kafka.tools"
DIRECTORIES = ("data", "second", "third")
THREE = {"log.dirs": ",".join(DIRECTORIES), "log.segment.delete.delay.ms": "600000"}


class LogDirs:
    """What an administrator asks one broker about its directories, which go by their names here."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        with Peer((self.broker.host, self.broker.port)) as peer:
            return peer.call(name, version, **fields)

    def described(self) -> dict[str, Any]:
        return {Path(each.log_dir).name: each for each in self.ask("DescribeLogDirs", 4, topics=None).results}

    def failed(self) -> list[str]:
        return [name for name, each in self.described().items() if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR]

    def places(self, topic: str) -> list[tuple[str, bool]]:
        """(directory, whether it is a future replica) of a topic's only partition."""
        return [
            (name, replica.is_future_key)
            for name, directory in self.described().items()
            for found in directory.topics
            for replica in found.partitions
            if found.name == topic
        ]

    def home(self, topic: str) -> str:
        return next(name for name, is_future in self.places(topic) if not is_future)

    def move(self, topic: str, name: str) -> ErrorCode:
        path = str(self.broker.directory.resolve() / name)
        asked = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])
        answer = self.ask("AlterReplicaLogDirs", 2, dirs=[asked])
        return ErrorCode.of(answer.results[0].partitions[0].error_code)

    def wait_until_moved(self, topic: str, name: str) -> None:
        wait_until(lambda: self.places(topic) == [(name, False)], f"{topic} is in {name}")


def create(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)


def test_replicas_move_under_load_and_a_directory_fails(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(THREE | {"replica.high.watermark.checkpoint.interval.ms": "100"})
    for topic in ("moving", "staying"):
        create(broker, topic)
    dirs = LogDirs(broker)
    with Feed(broker.bootstrap, "moving") as moving, Feed(broker.bootstrap, "staying") as staying:
        for _ in range(2):
            for name in DIRECTORIES:
                before = len(moving.acknowledged)
                assert dirs.move("moving", name) is ErrorCode.NONE
                dirs.wait_until_moved("moving", name)
                wait_until(lambda before=before: len(moving.acknowledged) > before, "records are acknowledged")
        sound = next(name for name in DIRECTORIES if name not in (dirs.home("moving"), dirs.home("staying")))
        assert dirs.move("staying", sound) is ErrorCode.NONE
        dirs.wait_until_moved("staying", sound)
        broken = dirs.home("moving")
        (broker.directory / broken).rename(broker.directory / "taken away")
        wait_until(lambda: dirs.failed() == [broken], "the directory is offline")
        assert dirs.move("staying", "third" if sound != "third" else "data") is ErrorCode.KAFKA_STORAGE_ERROR
        assert dirs.move("moving", sound) is ErrorCode.KAFKA_STORAGE_ERROR
        before = len(staying.acknowledged)
        wait_until(lambda: len(staying.acknowledged) > before + 100, "the other directory serves")
        broker.kill()
        (broker.directory / "taken away").rename(broker.directory / broken)
        broker.restart()
        before = len(moving.acknowledged)
        wait_until(lambda: len(moving.acknowledged) > before + 100, "what was offline is back")
        for feed in (moving, staying):
            feed.finish()
    for feed in (moving, staying):
        found = read_all(broker.bootstrap, feed.topic)
        assert [offset for offset, _ in found] == list(range(len(found)))
        assert sorted(found) == sorted((offset, b"%d" % number) for number, offset in feed.acknowledged.items())


# What Apache Kafka 4.3.1 has of a topic's partition in (source, target) when a replica has moved, and when it has come back.
# Ottla notes its producers as well, as both do whenever they begin a new segment or stop.
IN_USE = {
    f"t-0/{name}"
    for name in (
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    )
}
TO_BE_DELETED = {name.replace("t-0/", "t-0.<uuid>-delete/") for name in IN_USE}


def names_in(broker: BrokerProcess, directory: str) -> set[str]:
    """The files of the topic's partition in a log directory, with what is random replaced."""
    found = (broker.directory / directory).glob("t-0*/*")
    names = {f"{path.parent.name}/{path.name}" for path in found if path.suffix != ".snapshot"}
    return {re.sub(r"\.[0-9a-f]{32}-", ".<uuid>-", name) for name in names}


def test_the_files_of_a_move_are_called_as_apache_kafka_calls_them(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(THREE)
    create(broker, "t")
    with Feed(broker.bootstrap, "t") as feed:
        wait_until(lambda: len(feed.acknowledged) > 200, "there is something to move")
        feed.finish()
    dirs = LogDirs(broker)
    source = dirs.home("t")
    target = next(name for name in DIRECTORIES if name != source)
    assert dirs.move("t", target) is ErrorCode.NONE
    dirs.wait_until_moved("t", target)
    wait_until(
        lambda: (names_in(broker, source), names_in(broker, target)) == (TO_BE_DELETED, IN_USE), "all is renamed"
    )
    assert dirs.move("t", source) is ErrorCode.NONE
    dirs.wait_until_moved("t", source)
    wait_until(
        lambda: (names_in(broker, source), names_in(broker, target)) == (TO_BE_DELETED | IN_USE, TO_BE_DELETED),
        "all is renamed again",
    )


def test_tools_move_replicas_of_a_member_whose_controller_hears_of_a_failed_directory(
    start_cluster: Callable[..., Cluster], java_tools: Callable[[str], JavaTools], tmp_path: Path
) -> None:
    cluster = start_cluster(1, THREE | {"replica.high.watermark.checkpoint.interval.ms": "100"})
    broker, tools = cluster.brokers[0], java_tools("kafka_4")
    for topic in ("moved", "other"):
        create(broker, topic)
    with Feed(broker.bootstrap, "moved") as feed:
        wait_until(lambda: len(feed.acknowledged) > 200, "there is something to move")
        feed.finish()
    dirs = LogDirs(broker)
    target = next(name for name in DIRECTORIES if name not in (dirs.home("moved"), dirs.home("other")))
    wish = {"topic": "moved", "partition": 0, "replicas": [0], "log_dirs": [str(broker.directory.resolve() / target)]}
    file = tmp_path / "wish.json"
    file.write_text(json.dumps({"version": 1, "partitions": [wish]}))

    def reassign(action: str) -> str:
        command = ("--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(file), action)
        return tools(f"{TOOLS}.reassign.ReassignPartitionsCommand", *command).fine()

    assert f"log directory to {broker.directory.resolve() / target} for replica moved-0" in reassign("--execute")
    dirs.wait_until_moved("moved", target)
    assert "Reassignment of replica moved-0-0 completed successfully." in reassign("--verify")
    described = tools(f"{TOOLS}.LogDirsCommand", "--bootstrap-server", broker.bootstrap, "--describe").fine()
    assert len(re.findall(r'"partition":"moved-0","size":[1-9]\d*,"offsetLag":0,"isFuture":false', described)) == 1

    def leaders() -> dict[str, int]:
        topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
        return {name: topics[name].partitions[0].leader for name in ("moved", "other")}

    assert leaders() == {"moved": 0, "other": 0}
    with Feed(broker.bootstrap, "moved") as more:  # or nobody would look at the disk
        (broker.directory / target).rename(broker.directory / "taken away")
        wait_until(lambda: leaders() == {"moved": -1, "other": 0}, "the controller knows that the replica is offline")
    broker.kill()
    (broker.directory / "taken away").rename(broker.directory / target)
    broker.restart()
    wait_until(lambda: leaders() == {"moved": 0, "other": 0}, "the replica is back")
    found = dict(read_all(broker.bootstrap, "moved"))
    for each in (feed, more):
        assert {offset: found.get(offset) for offset in each.acknowledged.values()} == {
            offset: b"%d" % number for number, offset in each.acknowledged.items()
        }
