"""A data directory that Apache Kafka wrote, opened in place by Ottla: after an orderly stop, and after SIGKILL.

Each release fills a directory once (`filling.fill`) and is stopped, which leaves the directory "stopped"; started again it
writes some more, has a transaction open, and is killed, which leaves "killed". Before either end its portrait is taken.
"""

import functools
import hashlib
import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka, ApacheKafka3, ApacheKafka4
from compat_tests.files import filling
from compat_tests.files.filling import CONFIGS, GROUPS, TOPICS, Known, send_sequence
from compat_tests.files.portrait import Asker, portrait
from compat_tests.support.brokers import OttlaProcess, wait_until

from ottla.server.cli.cli import main
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.producer_ids import InitProducerIdRequest

RELEASES = {"kafka_4": ApacheKafka4, "kafka_3": ApacheKafka3}
NEW_GROUPS: dict[str, tuple[str, ...]] = {"kafka_4": ("new",), "kafka_3": ()}  # of KIP-848
CLEANS_AT_ONCE = {"log.cleaner.backoff.ms": "100"}
# What the portrait shows must not be compacted meanwhile, and what Kafka gave up need not be waited for.
QUIET = {"log.cleaner.backoff.ms": "600000"}
INTERNAL = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}
# Of no use to Ottla as long as it serves no transactions, and has no part in a quorum.
NOT_TOUCHED = ("*/*.txnindex", "__transaction_state-*/*.log", "__cluster_metadata-0/*")


@dataclass
class Left:
    """A directory as its broker left it, and what that broker told of it."""

    release: str
    directory: Path
    told: dict[str, object]
    known: Known
    before: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = self.untouched()
        lines = (self.directory / "data" / "meta.properties").read_text().split("\n")
        self.properties = dict(line.split("=") for line in lines if "=" in line)

    @property
    def is_killed(self) -> bool:
        return not (self.directory / "data" / ".kafka_cleanshutdown").exists()

    def untouched(self) -> dict[str, str]:
        """Digests of the files that must stay as they are."""
        found = [path for pattern in NOT_TOUCHED for path in (self.directory / "data").glob(pattern)]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}

    def opened(self) -> OttlaProcess:
        return OttlaProcess(self.directory, QUIET)


@pytest.fixture(scope="module")
def ends(tmp_path_factory, transactions):
    """What each release leaves at its two ends, made when it is first asked for."""
    made: dict[str, dict[str, Left]] = {}

    def of(release: str) -> dict[str, Left]:
        if release not in made:
            kafka = RELEASES[release](tmp_path_factory.mktemp(release), CLEANS_AT_ONCE)
            try:
                made[release] = both_ends(kafka, tmp_path_factory.mktemp(f"{release}-stopped"), transactions)
            finally:
                kafka.stop()
        return made[release]

    return of


def both_ends(kafka: ApacheKafka, stopped: Path, transactions: list[str]) -> dict[str, Left]:
    kafka.start()
    known = filling.fill(kafka, transactions)
    if NEW_GROUPS[kafka.release]:
        filling.commit_as_a_new_consumer(kafka.bootstrap)
    told = portrait((kafka.host, kafka.port), TOPICS, GROUPS, NEW_GROUPS[kafka.release])
    kafka.stop()
    shutil.copytree(kafka.data_dir, stopped / "data")
    found = {"stopped": Left(kafka.release, stopped, told, known)}
    kafka.start()
    filling.write_segments(kafka.bootstrap, start=300)
    filling.write_transactions(kafka.bootstrap, transactions, "2", "40000", "open")
    told = portrait((kafka.host, kafka.port), TOPICS, GROUPS, NEW_GROUPS[kafka.release])
    kafka.kill()
    return found | {"killed": Left(kafka.release, kafka.directory, told, known)}


@pytest.fixture(scope="module", params=[f"{release} {end}" for release in RELEASES for end in ("stopped", "killed")])
def left(request, ends):
    release, end = request.param.split()
    return ends(release)[end]


@pytest.fixture(scope="module")
def ottla(left):
    """Ottla on that directory; the tests of this module build on each other in the order they stand."""
    process = left.opened().start()
    yield process
    process.stop()


def test_ottla_check_finds_what_kafka_left_in_order(left, capsys):
    """Before Ottla has opened it. A killed Kafka leaves zeros at the ends of its indexes, which it has made too long."""
    assert main(["check", str(left.directory / "data"), "--json"]) == (left.is_killed)
    told = json.loads(capsys.readouterr().out)
    assert told["start"]["refusal"] is None
    assert told["batches"] > 500
    damage = [each for each in told["findings"] if each["is_damage"]]
    assert bool(damage) == left.is_killed
    zeros = re.compile("entries do not rise|an entry is about something behind the end of the log, at 0")
    assert all(zeros.fullmatch(each["reason"]) for each in damage)
    assert {each["at_start"] for each in damage} <= {"makes it anew", "cuts the file at 0 bytes"}
    assert left.untouched() == left.before


def test_everything_is_served_as_kafka_served_it(left, ottla):
    told = portrait((ottla.host, ottla.port), TOPICS, GROUPS, NEW_GROUPS[left.release])
    differing = {
        question: (left.told[question], told[question]) for question in told if told[question] != left.told[question]
    }
    if left.release == "kafka_3":  # settings were in ZooKeeper
        differing = {
            question: answers for question, answers in differing.items() if not question.startswith("settings")
        }
    assert not differing
    assert told.keys() == left.told.keys()
    for group in NEW_GROUPS[left.release]:
        (codecs,) = told[f"offsets of {group}"]["topics"]
        assert codecs["partitions"][0]["committed_offset"] == 30


def test_a_producer_goes_on_where_it_was(left, ottla):
    known = left.known
    with Asker((ottla.host, ottla.port)) as asker:
        gap = send_sequence(asker, known.producer_id, known.next_sequence + 2)
        again = send_sequence(asker, known.producer_id, known.last_sequence)
        after = send_sequence(asker, known.producer_id, known.next_sequence)
    assert gap == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert again == (ErrorCode.NONE, known.last_offset)
    assert after == (ErrorCode.NONE, known.last_offset + 2)


def test_settings_are_kept_or_if_they_were_in_zookeeper_such_that_nothing_is_lost(left, ottla):
    told = portrait((ottla.host, ottla.port), TOPICS, ())
    keeps_everything = {"retention.ms": "-1", "retention.bytes": "-1"}
    guessed = {topic: keeps_everything for topic in TOPICS} | {"compacted": {"cleanup.policy": "compact"}}
    expected = guessed if left.release == "kafka_3" else CONFIGS
    assert {topic: told[f"settings of {topic}"] for topic in TOPICS} == expected


def test_new_producer_ids_are_new(left, ottla):
    used = {
        producer["producer_id"]
        for question, answer in left.told.items()
        if question.startswith("producers of ")
        for producer in answer["active_producers"]
    }
    with Asker((ottla.host, ottla.port)) as asker:
        given = asker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)).producer_id
    assert given > max(used | {left.known.producer_id})


def test_what_kafka_was_deleting_is_gone(left, ottla):
    wait_until(lambda: not list(ottla.data_dir.glob("gone-*")), "the folders of a deleted topic are removed")
    assert not list(ottla.data_dir.glob("*-stray"))


def test_kafka_can_read_what_is_there_now(left, ottla, dump):
    """The last test: it stops the broker. What Ottla has no use for yet is as Kafka left it."""
    ottla.stop()
    data, read = ottla.data_dir, functools.partial(dump, left.release)
    for topic in TOPICS:
        for suffix in ("log", "index", "timeindex", "snapshot"):
            if files := sorted(data.glob(f"{topic}-*/*.{suffix}")):
                read(files, *(["--deep-iteration"] if suffix == "log" else []), gaps=topic == "compacted")
    indexes = sorted(path for kind in ("index", "timeindex") for path in data.glob(f"[a-z]*-*/*.{kind}"))
    read(indexes, "--verify-index-only", gaps=True)
    read(indexes, "--index-sanity-check")
    aborted = read(sorted(data.glob("transactions-0/*.txnindex")))
    fetched = {
        (each["producer_id"], each["first_offset"])
        for read in left.told["committed fetch of transactions-0"]
        for each in read["aborted_transactions"]
    }
    found = re.findall(r"version: 0 producerId: (\d+) firstOffset: (\d+) ", aborted)
    assert {tuple(map(int, each)) for each in found} == fetched
    for name, decoder in INTERNAL.items():
        written = sorted(path for path in data.glob(f"{name}-*/*.log") if path.stat().st_size)
        if written:
            assert "payload" in read(written, decoder, gaps=True)
    assert left.untouched() == left.before
    said = dict(line.split("=") for line in (data / "meta.properties").read_text().split() if "=" in line)
    assert said.items() >= left.properties.items() and "directory.id" in said  # which is all that is added
