"""`ottla dirs` beside a broker with two log directories, and `ottla topics offsets`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.server.broker import Broker
from ottla.server.cli.client.cluster import TemporaryFailure
from ottla.server.cli.replicas.dirs import _size
from ottla.server.tests.cli.commanded import Shell, broker_in_thread, local_zone
from ottla.server.tests.console_client import write
from ottla.wire.records import Record

TOPIC = "orders"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return [str(tmp_path_factory.mktemp(name)) for name in ("first", "second")]


@pytest.fixture(scope="module")
def serving(folders: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    with broker_in_thread(Path(folders[0]), log_dirs=",".join(folders)) as running:
        yield running


@pytest.fixture
def ottla(ottla: Shell, broker: Broker) -> Shell:
    if ottla("topics", "create", TOPIC, "-p", "2", "-c", "retention.ms=-1").code == 0:
        for number in range(3):
            write(broker, TOPIC, [Record(0, 1_700_000_000_000 + number * 60_000, None, b"x" * 1000, ())])
    return ottla


def places(ottla: Shell, folders: list[str]) -> list[str]:
    """The directory of each partition, once nothing is on its way."""
    with ottla.cluster() as cluster:

        def look() -> list[str]:
            # What is on its way has the name of a future replica, and what is left behind that of a deleted one.
            found = {path.name: folder for folder in folders for path in Path(folder).glob(f"{TOPIC}-*")}
            if any(name.endswith("-future") for name in found):
                raise TemporaryFailure("a replica is on its way")
            return [found[f"{TOPIC}-{number}"] for number in (0, 1)]

        return cluster.patiently(look)


def test_directories_and_sizes_are_told(ottla: Shell, folders: list[str]) -> None:
    told = ottla("dirs", "--json").json
    assert sorted(each["path"] for each in told) == sorted(folders)
    assert all(each["is_online"] and each["total"] >= each["free"] > 0 for each in told)
    size = sum(each["size"] for each in told)
    [topic] = ottla("dirs", "topics", TOPIC, "--json").json
    assert topic["topic"] == TOPIC and (topic["partitions"], topic["replicas"]) == (2, 2)
    assert 3000 < topic["size"] <= size and topic["largest"] == topic["size"]
    assert [line.split()[0] for line in ottla("dirs", "topics").lines[:2]] == ["TOPIC", TOPIC]
    lines = ottla("dirs", "list", "--broker", "1").lines
    assert lines[0].split() == ["BROKER", "DIRECTORY", "STATE", "REPLICAS", "SIZE", "FREE", "VOLUME"]
    assert {line.split()[2] for line in lines[1:]} == {"online"}


def test_replicas_are_moved_and_moved_back(ottla: Shell, folders: list[str]) -> None:
    before = places(ottla, folders)
    other = next(each for each in folders if each != before[0])
    words = ("dirs", "move", f"{TOPIC}:0", "--broker", "1", "--to", other)
    assert ottla(*words, "--dry-run").lines[-1] == "Nothing is changed: this is a dry run."
    assert places(ottla, folders) == before
    told = ottla(*words)
    assert [line.split() for line in told.lines[1:2]] == [[TOPIC, "0", before[0], other]]
    assert places(ottla, folders)[0] == other
    assert ottla(*words).lines == [f"nothing to move: the replicas are in {other} already"]
    ottla.undo(told)
    assert places(ottla, folders) == before


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("move", TOPIC, "--broker", "9", "--to", "/x"), 1, "there is no broker 9; the cluster has 1"),
        (("move", TOPIC, "--broker", "1", "--to", "/x"), 1, "broker 1 has no log directory /x; it has /"),
        (("move", TOPIC, "--broker", "1", "--to", "x"), 2, "must be an absolute path"),
        (("move", "nowhere", "--broker", "1", "--to", "/x"), 1, "topic nowhere does not exist"),
        (("move", f"{TOPIC}:9", "--broker", "1", "--to", "/x"), 1, "has no partition 9"),
        (("topics", "nowhere"), 1, "topic nowhere does not exist"),
        (("list", "--broker", "9"), 1, "there is no broker 9"),
    ],
)
def test_what_cannot_be(ottla: Shell, words: tuple[str, ...], code: int, reason: str) -> None:
    assert reason in ottla("dirs", *words).refusal(code)


def test_sizes_for_people() -> None:
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 10 << 30: "10.0 GiB", 1 << 62: "4096.0 PiB"}
    assert {size: _size(size) for size in sizes} == sizes and _size(None) is None


def test_the_offset_of_a_time(ottla: Shell) -> None:
    def offsets(at: str) -> list[int | None]:
        return [each["offset"] for each in ottla("topics", "offsets", TOPIC, "--at", at, "--json").json]

    assert offsets("2001-01-01") == [0, None]
    with local_zone("America/New_York"):
        assert offsets("2023-11-14T17:13:21") == offsets("2023-11-14T22:13:21Z") == [1, None]
        assert offsets("2023-11-14T22:13:21") == [None, None]
    with local_zone("UTC"):
        assert offsets("2023-11-14T22:13:21") == offsets("2023-11-14T23:13:21+01:00") == [1, None]
    assert offsets("2099-01-01") == offsets("-1h") == [None, None]
    assert offsets("1700000000000") == [0, None] and offsets("-1000w") == offsets("2001-01-01")
    assert ottla("topics", "offsets", f"{TOPIC}:0", "--at", "2001-01-01").lines[-1].split() == [
        TOPIC,
        "0",
        "0",
        "0",
        "3",
    ]
    assert "--at soon: must be a time such as" in ottla("topics", "offsets", TOPIC, "--at", "soon").refusal(2)
    assert ottla("topics", "offsets", TOPIC).code == 2
