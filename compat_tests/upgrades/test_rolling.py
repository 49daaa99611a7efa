"""Three brokers go from the release before to this one and back, one after the other, while clients write and read.

The release before knows no levels of features in a cluster. So the first time this one raises them when all three brokers are
of it, the way back begins with lowering transaction.version, and what was lowered stays so until it is raised by hand.
"""

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
from compat_tests.files.portrait import Asker
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.feed import Feed, read_all
from compat_tests.upgrades.before import Release, this_release
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.server.cluster.features import SAFE_DOWNGRADE, TRANSACTION_VERSION, UPGRADE
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest

pytestmark = [pytest.mark.may_be_skipped, pytest.mark.long, pytest.mark.timeout(900)]

TOPIC, TRANSACTIONAL = "rolled", "transactional"
PARTITIONS = 3
PACE_S = 0.02  # much of it is the CPU time of three brokers, and that the machine has only so much of
SETTLE_S = 90.0
SOON = {"reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "topic.metadata.refresh.interval.ms": 5000}


class InThread:
    """Does `_run` in a thread, as long as the context lasts or until `_stopping` is set."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stopping.set()
        self._thread.join()


class Reader(InThread):
    """A member of a group that reads all the time, in a thread, and commits as it goes."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        settings = {"group.id": "readers", "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 2, **SOON, **settings})
        self._consumer.subscribe([TOPIC])
        self.seen: list[set[int]] = [set() for _ in range(PARTITIONS)]

    @property
    def count(self) -> int:
        return sum(map(len, self.seen))

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self.seen[message.partition()].add(int(message.value()))

    def __exit__(self, *failure: object) -> None:
        super().__exit__(*failure)
        self._consumer.close()


class Transactions(InThread):
    """Transactions one after the other, in a thread: every third is aborted."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        settings = {"transactional.id": "rolled", "log_level": 2}
        self._producer = Producer({"bootstrap.servers": bootstrap, **SOON, **settings})
        self.committed: list[bytes] = []
        self._begun = 0
        self._failure: KafkaException | AssertionError | None = None

    def _run(self) -> None:
        try:
            _until_done(self._producer.init_transactions)
            while not self._stopping.wait(0.2):
                self._one()
        except (KafkaException, AssertionError) as failure:  # for `finish`, which is in another thread
            self._failure = failure

    def _one(self) -> None:
        number, self._begun = self._begun, self._begun + 1
        values = [b"%d-%d" % (number, each) for each in range(3)]
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(TRANSACTIONAL, value, partition=0)
        assert self._producer.flush(SETTLE_S) == 0
        if number % 3 == 2:
            _until_done(self._producer.abort_transaction)
        else:
            _until_done(self._producer.commit_transaction)
            self.committed += values

    def finish(self) -> None:
        self.__exit__()
        if self._failure is not None:
            raise self._failure


def _until_done(end: object) -> None:
    """librdkafka says of some failures that the same call may be given again."""

    def is_done() -> bool:
        try:
            end(10)
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
            return False
        return True

    wait_until(is_done, "the transaction ends", SETTLE_S)


def make_topics(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    safe = {"min.insync.replicas": "2"}
    new = [NewTopic(TOPIC, PARTITIONS, 3, config=safe), NewTopic(TRANSACTIONAL, 1, 3, config=safe)]
    for created in admin.create_topics(new).values():
        created.result(60)
    wait_until(lambda: _is_whole(cluster), "all brokers have the topics", SETTLE_S)


def _is_whole(cluster: Cluster) -> bool:
    """Whether each broker knows every partition of the tests' topics with three brokers in sync."""
    for broker in cluster.brokers:
        told = cluster.metadata(broker, TOPIC, TRANSACTIONAL)
        if told is None or any(topic.error_code for topic in told.topics):
            return False
        parts = [part for topic in told.topics for part in topic.partitions]
        if len(parts) != PARTITIONS + 1 or any(len(part.isr_nodes) != 3 for part in parts):
            return False
    return True


class Rolling:
    def __init__(self, cluster: Cluster, feeds: Sequence[Feed], reader: Reader, transactions: Transactions) -> None:
        self._cluster, self._feeds, self._reader, self._transactions = cluster, feeds, reader, transactions

    def roll(self, release: Release, level: str) -> None:
        """One broker after the other ends and comes back as that release; the next one only when all is well.

        `level`: of transaction.version, as every broker of this release tells it until the last one has come.
        """
        for broker in self._cluster.brokers:
            broker.stop()
            # Those that are left serve all partitions: a minimum of two is in sync.
            self.work_goes_on()
            # Nobody knows yet as what the third one comes back.
            assert {*levels(self._cluster), level} <= {level, ""}
            release.runs(broker)
            self._start_again(broker)
            self.work_goes_on()

    def _start_again(self, broker: BrokerProcess) -> None:
        broker.restart()
        self._cluster.wait_until_whole(SETTLE_S)
        wait_until(lambda: _is_whole(self._cluster), "all replicas are in sync", SETTLE_S)

    def work_goes_on(self) -> None:
        acknowledged = [len(feed.acknowledged) for feed in self._feeds]
        seen, committed = self._reader.count, len(self._transactions.committed)

        def has_gone_on() -> bool:
            more = all(len(feed.acknowledged) > count for feed, count in zip(self._feeds, acknowledged, strict=True))
            return more and self._reader.count > seen and len(self._transactions.committed) > committed

        wait_until(has_gone_on, "records are acknowledged and read, and transactions committed", SETTLE_S)


def levels(cluster: Cluster) -> list[str]:
    """The level of transaction.version that each running broker tells of; "": it tells of no features."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    found = []
    for broker in cluster.running:
        with Asker((broker.host, broker.port)) as asker:
            answer = asker.ask(request, 4)
        told = {each.name: str(each.max_version_level) for each in answer.finalized_features}
        found.append(told.get(TRANSACTION_VERSION, "0") if answer.supported_features else "")
    return found


def set_level(cluster: Cluster, level: int, kind: int) -> None:
    update = FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level, upgrade_type=kind)
    controller = cluster.controller()
    with Asker((controller.host, controller.port)) as asker:
        answer = asker.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
    assert (answer.error_code, answer.error_message) == (0, None)


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_rolling_upgrade_and_back_loses_and_doubles_nothing(before: Release, tmp_path: Path, rounds: int) -> None:
    cluster = Cluster(tmp_path / "cluster")
    for broker in cluster.brokers:
        before.runs(broker)
    with cluster, contextlib.ExitStack() as running:
        make_topics(cluster)
        feeds = [Feed(cluster.bootstrap, TOPIC, number, PACE_S, acks="all", **SOON) for number in range(PARTITIONS)]
        work = [*feeds, reader := Reader(cluster.bootstrap), transactions := Transactions(cluster.bootstrap)]
        for each in work:
            running.enter_context(each)
        rolling = Rolling(cluster, feeds, reader, transactions)
        rolling.work_goes_on()
        for turn in range(rounds):
            rolling.roll(this_release(), "0" if turn else "")
            if turn:
                set_level(cluster, 2, UPGRADE)
            wait_until(lambda: levels(cluster) == ["2"] * 3, "all brokers tell of the newest transactions", SETTLE_S)
            rolling.work_goes_on()
            set_level(cluster, 0, SAFE_DOWNGRADE)
            wait_until(lambda: levels(cluster) == ["0"] * 3, "all brokers have heard of it", SETTLE_S)
            rolling.work_goes_on()
            rolling.roll(before, "0")
        transactions.finish()
        for feed in feeds:
            feed.finish()
        wait_until(lambda: reader.count == sum(feed.produced for feed in feeds), "all is read", SETTLE_S)
        for number, feed in enumerate(feeds):
            numbers = range(feed.produced)
            assert len(feed.acknowledged) == feed.produced
            # In order, once each, and each at the offset that its acknowledgement named.
            assert read_all(cluster.bootstrap, TOPIC, number) == [(each, b"%d" % each) for each in numbers]
            assert feed.acknowledged == {each: each for each in numbers}
            assert reader.seen[number] == set(numbers)
        assert _committed(cluster.bootstrap, len(transactions.committed)) == transactions.committed


def test_a_broker_that_goes_back_without_that_is_left_out(before: Release, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    with cluster:
        make_topics(cluster)
        assert levels(cluster) == ["2"] * 3
        controller = cluster.controller()
        other = next(broker for broker in cluster.brokers if broker is not controller)
        number = cluster.brokers.index(other)
        other.stop()
        before.runs(other)
        other.launch()
        line = (
            f"Broker {number} is left out: its release does not support transaction.version=2, which this cluster uses"
        )
        wait_until(lambda: line in controller.log, "the controller says so", SETTLE_S)
        told = cluster.metadata(controller, TOPIC)
        assert told is not None and number not in [each.node_id for each in told.brokers]
        assert all(part.leader_id not in (number, -1) for topic in told.topics for part in topic.partitions)
        # It comes as soon as it may.
        set_level(cluster, 0, SAFE_DOWNGRADE)
        wait_until(lambda: _is_whole(cluster), "all replicas are in sync", SETTLE_S)


def _committed(bootstrap: str, at_least: int) -> list[bytes]:
    """What a reader of what is committed finds up to the end, which is no earlier than that many."""
    settings = {"group.id": "unused", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **settings})
    consumer.subscribe([TRANSACTIONAL])
    found: list[bytes] = []
    ended = False
    while not ended:
        message = wait_until(lambda: consumer.poll(1), "there is more, or an end", SETTLE_S)
        ended = message.error() is not None and len(found) >= at_least
        if message.error() is None:
            found.append(message.value())
    consumer.close()
    return found
