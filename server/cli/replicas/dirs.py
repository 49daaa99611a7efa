"""ottla dirs [list | topics | move]"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.cli.changes import Step, add_dry_run, carry_out, report, undo_command
from ottla.server.cli.client.cluster import by_topic, check_answered, failed
from ottla.server.cli.client.output import RequestFailed, UsageError, print_json, print_line, print_table
from ottla.server.cli.command_line import EXIT_OK, is_number
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.cli.places import place_words, places_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster, Partition
    from ottla.wire.messages.log_dirs import DescribeLogDirsResult

DESCRIPTION = """\
Tells how full the log directories of brokers are, and how much of them each topic takes; or moves replicas from one directory of
a broker to another one of the same broker, while clients run.
"""

EXAMPLES = """\
examples:
  ottla dirs                                     directories, with what is free
  ottla dirs topics                              sizes of all topics, the largest first
  ottla dirs move orders:0,1 --broker 1 --to /disk2/ottla
"""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


class Replica(NamedTuple):
    """Replica in a log directory; `is_future`: it is being moved there from another directory of the broker."""

    topic: str
    partition: int
    size: int
    is_future: bool


class Directory(NamedTuple):
    """Log directory of a broker. `total` and `free` of its volume, in bytes, are None if the broker does not tell them."""

    broker: int
    path: str
    is_online: bool
    total: int | None
    free: int | None
    is_cordoned: bool
    replicas: tuple[Replica, ...]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.replicas)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla dirs`; the default is `list`."""
    parser.set_defaults(broker=[])
    actions = Actions(parser, "list", _list)
    listing = actions.add("list", "list log directories", _list)
    listing.add_argument("--broker", action="append", default=[], type=_id, metavar="ID", help="only of this broker")
    sizing = actions.add("topics", "tell how much each topic takes", _topics)
    sizing.add_argument("names", nargs="*", metavar="TOPIC", help="only these topics")
    sizing.set_defaults(broker=[])
    moving = actions.add("move", "move replicas between log directories of one broker", _move)
    places = "a topic, or some of its partitions"
    moving.add_argument("names", nargs="+", metavar="TOPIC[:N,N]", help=places)
    moving.add_argument("--broker", required=True, type=_id, metavar="ID", help="the broker that has the replicas")
    moving.add_argument("--to", required=True, metavar="PATH", help="one of its log.dirs")
    add_dry_run(moving)


def _id(text: str) -> int:
    if not is_number(text):
        raise argparse.ArgumentTypeError(f"{text} is not the id of a broker")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `list`."""
    return run_action(options)


def _directories(
    cluster: Cluster, brokers: Sequence[int], places: Sequence[Partition] | None = None
) -> list[Directory]:
    """Request the log directories of brokers, sorted. `places`: only these replicas (None: all). Raises RequestFailed."""
    topics = None
    if places is not None:
        topics = [DescribableLogDirTopic(topic=topic, partitions=each) for topic, each in by_topic(places).items()]

    def ask(node_id: int) -> list[Directory]:
        answer = cluster.broker(node_id).ask(DescribeLogDirsRequest(topics=topics))
        cluster.check(f"the log directories of broker {node_id}", answer.error_code)
        return [_directory(node_id, each) for each in answer.results]

    cluster.metadata(())
    for node_id in brokers:
        cluster.check_broker(node_id)
    found = [each for node_id in brokers or cluster.brokers() for each in cluster.patiently(partial(ask, node_id))]
    return sorted(found, key=lambda each: (each.broker, each.path))


def _directory(broker: int, found: DescribeLogDirsResult) -> Directory:
    # Brokers report a directory whose disk has failed by this error.
    if found.error_code not in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR):
        raise failed(f"the log directories of broker {broker}", found.error_code)
    replicas = sorted(
        Replica(topic.name, each.partition_index, each.partition_size, each.is_future_key)
        for topic in found.topics
        for each in topic.partitions
    )
    total, free = (each if each >= 0 else None for each in (found.total_bytes, found.usable_bytes))
    is_online = not found.error_code
    return Directory(broker, found.log_dir, is_online, total, free, found.is_cordoned, tuple(replicas))


# --- look


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    found = _directories(cluster, options.broker)
    if wants_json(options):
        print_json(
            [
                {name: value for name, value in each._asdict().items() if name != "replicas"}
                | {"replicas": len(each.replicas), "size": each.size}
                for each in found
            ]
        )
        return EXIT_OK
    rows = [
        (
            each.broker,
            each.path,
            _state(each),
            len(each.replicas),
            _size(each.size),
            _size(each.free),
            _size(each.total),
        )
        for each in found
    ]
    print_table(("BROKER", "DIRECTORY", "STATE", "REPLICAS", "SIZE", "FREE", "VOLUME"), rows)
    return EXIT_OK


def _state(directory: Directory) -> str:
    return "offline" if not directory.is_online else "cordoned" if directory.is_cordoned else "online"


def _size(size: int | None) -> str | None:
    """Format a number of bytes, such as 1.5 GiB."""
    if size is None:
        return None
    value, unit = float(size), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{size} B" if not unit else f"{value:.1f} {_UNITS[unit]}"


class _Total(NamedTuple):
    topic: str
    partitions: int
    replicas: int
    largest: int
    """Size of the largest replica."""
    size: int
    """Size of all replicas."""


def _topics(cluster: Cluster, options: argparse.Namespace) -> int:
    places = places_of(cluster, options.names) if options.names else None
    replicas: dict[str, list[Replica]] = {topic: [] for topic, _ in places or ()}
    for directory in _directories(cluster, (), places):
        for each in directory.replicas:
            replicas.setdefault(each.topic, []).append(each)
    totals = [_total(name, found) for name, found in replicas.items()]
    totals.sort(key=lambda each: (-each.size, each.topic))
    if wants_json(options):
        print_json([each._asdict() for each in totals])
        return EXIT_OK
    rows = [(each.topic, each.partitions, each.replicas, _size(each.largest), _size(each.size)) for each in totals]
    print_table(("TOPIC", "PARTITIONS", "REPLICAS", "LARGEST", "SIZE"), rows)
    return EXIT_OK


def _total(topic: str, replicas: Sequence[Replica]) -> _Total:
    sizes = [each.size for each in replicas]
    return _Total(topic, len({each.partition for each in replicas}), len(replicas), max(sizes, default=0), sum(sizes))


# --- move


def _move(cluster: Cluster, options: argparse.Namespace) -> int:
    broker, path = options.broker, options.to
    places = places_of(cluster, options.names)
    directories = _directories(cluster, [broker], places)
    _check_target(directories, broker, path)
    before = dict(_present(directories))
    for topic, number in places:
        if (topic, number) not in before:
            raise RequestFailed(f"broker {broker} has no replica of {topic}-{number}")
    moved = [place for place in places if before[place] != path]
    if moved and not options.dry_run:
        words = " ".join(place_words(dict.fromkeys(moved)))
        carry_out([Step(f"{words} are being moved", partial(_begin, cluster, broker, path, moved))])
    rows = [(*place, before[place], path) for place in moved]
    value = {"moved": [dict(zip(("topic", "partition", "from", "to"), row, strict=True)) for row in rows]}

    def show() -> None:
        if rows:
            print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows)
        else:
            print_line(f"nothing to move: the replicas are in {path} already")

    report(options, value, show, list(_undo(options, before, moved)))
    return EXIT_OK


def _check_target(directories: Sequence[Directory], broker: int, path: str) -> None:
    if not path.startswith("/"):
        raise UsageError(f"--to {path}: must be an absolute path")
    target = next((each for each in directories if each.path == path), None)
    if target is None:
        known = ", ".join(each.path for each in directories)
        raise RequestFailed(f"broker {broker} has no log directory {path}; it has {known}")
    if not target.is_online:
        raise RequestFailed(f"the log directory {path} of broker {broker} is offline")


def _present(directories: Iterable[Directory]) -> Iterator[tuple[Partition, str]]:
    """Yield the directory of each replica, and for one that is being moved the directory that it is moved from."""
    for directory in directories:
        for each in directory.replicas:
            if not each.is_future:
                yield (each.topic, each.partition), directory.path


def _begin(cluster: Cluster, broker: int, path: str, places: Sequence[Partition]) -> None:
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=each) for topic, each in by_topic(places).items()]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])

    def ask() -> None:
        results = cluster.broker(broker).ask(request).results
        answered = {
            (topic.topic_name, each.partition_index): each.error_code for topic in results for each in topic.partitions
        }
        done = [place for place, code in answered.items() if not code]
        try:
            for (topic_name, number), code in answered.items():
                cluster.check(f"{topic_name}-{number}", code)
            check_answered("moving replicas", places, answered)
        except RequestFailed as error:
            words = " ".join(place_words(dict.fromkeys(done)))
            raise type(error)(f"{error}; being moved: {words or 'nothing'}") from None

    cluster.patiently(ask)


def _undo(options: argparse.Namespace, before: dict[Partition, str], moved: Sequence[Partition]) -> Iterator[str]:
    for path in sorted({before[place] for place in moved}):
        names = place_words({place: None for place in moved if before[place] == path})
        yield undo_command(options, "dirs", "move", "--broker", str(options.broker), "--to", path, names=names)
