"""AlterReplicaLogDirs on a broker with three log directories, and what DescribeLogDirs tells of it meanwhile."""

from typing import Any, NamedTuple

from compat_tests.differential.asking import fill, produce
from compat_tests.differential.asking_administration import BROKER, DELETE, SET, alter, settle
from compat_tests.differential.asking_reading import delete_records
from compat_tests.differential.asking_records import read_back
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

THREE_DIRECTORIES = {"log.dirs": "data,second,third"}
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Place(NamedTuple):
    """A replica in a directory, as DescribeLogDirs tells it."""

    path: str
    is_future: bool
    lag: int


def places(talk: Talk, topic: Topic, partition: int = 0) -> list[Place]:
    asked = DescribableLogDirTopic(topic=topic.name, partitions=[partition])
    return [
        Place(result.log_dir, each.is_future_key, each.offset_lag)
        for result in talk.do(DescribeLogDirsRequest(topics=[asked])).results
        for found in result.topics
        for each in found.partitions
    ]


def home(talk: Talk, topic: Topic, partition: int = 0) -> str:
    return next(place.path for place in places(talk, topic, partition) if not place.is_future)


def elsewhere(talk: Talk, topic: Topic, partition: int = 0) -> list[str]:
    """The directories that a replica is not in."""
    here = home(talk, topic, partition)
    return [each.log_dir for each in talk.do(DescribeLogDirsRequest(topics=[])).results if each.log_dir != here]


def to(path: str, *names: tuple[str, list[int]]) -> AlterReplicaLogDir:
    topics = [AlterReplicaLogDirTopic(name=name, partitions=partitions) for name, partitions in names]
    return AlterReplicaLogDir(path=path, topics=topics)


def move(*dirs: AlterReplicaLogDir) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(dirs=list(dirs))


def in_order(answer: Any) -> None:
    answer.results.sort(key=lambda topic: topic.topic_name)
    for topic in answer.results:
        topic.partitions.sort(key=lambda partition: partition.partition_index)


def wait_until_moved(talk: Talk, topic: Topic, path: str, partition: int = 0) -> None:
    asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic.name, partitions=[partition])])

    def has_moved(answer: Any) -> bool:
        found = [
            (result.log_dir, each.is_future_key)
            for result in answer.results
            for topic in result.topics
            for each in topic.partitions
        ]
        return found == [(path, False)]

    talk.until(asked, has_moved)
    talk.note("and it is there", True)


def set_throttle(talk: Talk, value: str | None) -> None:
    talk.do(alter(((BROKER, ""), [(THROTTLE, DELETE if value is None else SET, value)])))
    settle(talk, (BROKER, ""), **{THROTTLE: value})


@scenario(AlterReplicaLogDirsRequest, settings=THREE_DIRECTORIES)
def a_replica_moves(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    for index in range(20):
        fill(talk, topic, [1000 + index, 2000 + index])
    delete_records(talk, topic, before=5)
    first, second = elsewhere(talk, topic)
    for path in (first, second, second):
        talk.ask(move(to(path, (topic.name, [0]))), label="to another directory, twice to the last")
        wait_until_moved(talk, topic, path)
        fill(talk, topic, [3000])
        read_back(talk, topic, offset=5)


@scenario(AlterReplicaLogDirsRequest, settings=THREE_DIRECTORIES)
def places_that_are_none(talk: Talk) -> None:
    topic = talk.topic()
    here = home(talk, topic)
    for path in ("", "second", "/", "/nowhere", here + "/", here + "/../second", "a\0b", "x" * 5000):
        talk.ask(move(to(path, (topic.name, [0]))), label=f"to {path[:20]!r}" if talk.run not in path else "near")
    talk.note("it has not moved", home(talk, topic) == here)


@scenario(AlterReplicaLogDirsRequest, settings=THREE_DIRECTORIES)
def replicas_that_are_none(talk: Talk) -> None:
    topic = talk.topic()
    there = elsewhere(talk, topic)[0]
    for index in (1, -1, 2**31 - 1):
        talk.ask(move(to(there, (topic.name, [index]))), label=f"partition {index}")
    for name in ("nothing", "", "not a name", "x" * 207, "x" * 208, "x" * 300):
        talk.ask(move(to(there, (name, [0]))), label=f"topic {name[:10]!r} of {len(name)}")
    talk.ask(move(), label="no directories")
    talk.ask(move(to(there)), label="no topics")
    talk.ask(move(to(there, (topic.name, []))), label="no partitions")
    talk.ask(move(to("/nowhere", ("nothing", [0]))), label="nothing to nowhere")


@scenario(AlterReplicaLogDirsRequest, settings=THREE_DIRECTORIES)
def several_at_once(talk: Talk) -> None:
    one, two = talk.topic("one", partitions=3), talk.topic("two")
    there = elsewhere(talk, two)[0]
    first, second = elsewhere(talk, one)
    asked = move(
        to(there, (two.name, [0, 4])),
        to(first, (one.name, [0, 1])),
        to("/nowhere", (one.name, [2, 1])),
        to(second, (one.name, [0, 0])),
    )
    talk.ask(asked, arrange=in_order, label="some to two directories")
    wait_until_moved(talk, one, second)
    wait_until_moved(talk, two, there)


@scenario(AlterReplicaLogDirsRequest, settings=THREE_DIRECTORIES)
def a_directory_for_a_topic_to_come(talk: Talk) -> None:
    path = talk.do(DescribeLogDirsRequest(topics=[])).results[talk.version % 3].log_dir
    talk.ask(move(to(path, (talk.name("later"), [0, 1, 2, 3]))), arrange=in_order, label="before it is made")
    later = talk.topic("later", partitions=4)
    for index in range(4):
        talk.note(f"partition {index} is where it was wanted", home(talk, later, index) == path)


@scenario(AlterReplicaLogDirsRequest, settings=THREE_DIRECTORIES)
def a_move_that_is_under_way(talk: Talk) -> None:
    """Throttled after the first megabyte, so that there is time to look, to turn aside and to turn back."""
    topic = talk.topic(max_message_bytes="2000000")
    batch = encode_batch([Record(0, 1000, None, b"x" * 400_000)])
    for _ in range(8):
        answer = talk.do(produce(topic, batch))
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
    here, (first, second) = home(talk, topic), elsewhere(talk, topic)
    set_throttle(talk, "1000")
    for path in (first, first, second):
        talk.ask(move(to(path, (topic.name, [0]))), label="to another directory, twice to the first")
        asked = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic.name, partitions=[0])])
        talk.until(asked, lambda answer: sum(len(result.topics) for result in answer.results) == 2)
        for place in places(talk, topic):
            where = {here: "where it was", first: "the first", second: "the second"}[place.path]
            talk.note(f"in {where}", {"is_future": place.is_future, "lags": place.lag > 0})
    talk.ask(move(to(here, (topic.name, [0]))), label="back home")
    wait_until_moved(talk, topic, here)
    talk.ask(move(to(second, (topic.name, [0]))), label="once more")
    set_throttle(talk, None)
    wait_until_moved(talk, topic, second)
