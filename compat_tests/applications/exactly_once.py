"""Reads records, writes each of them on and commits where it is in the input, exactly once, while the broker is killed.

    python -m compat_tests.applications.exactly_once --runs 20
    python -m compat_tests.applications.exactly_once --records 20000 --kafka      the proof of this program: Apache Kafka 4

Two processors share a topic of 100,000 records, each a process of its own on librdkafka: a consumer of one group and a
transactional producer. Every 5 s the broker gets SIGKILL and is started again. When the group has committed the end of the
input, a reader with read_committed has to find each record in the output once. The group's protocol is the classic one in the
first run, that of KIP-848 in the second, and so on.

A processor whose transaction cannot go on aborts it and begins anew with what the group has committed, and so does one whose
group has given its partitions to somebody else. Why one may end by an alarm is told in compat_tests/history/processors.py;
another one takes its place, and ends what it left open.
"""

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from compat_tests.apache.brokers import ApacheKafka4, bound_to_us
from compat_tests.applications.streams import Pairs, make_topics, put, take
from compat_tests.support.brokers import BrokerProcess, OttlaProcess
from compat_tests.support.wire_client import WireClient
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

PARTITIONS, PROCESSORS = 4, 2
RECORDS_MAX = 20
"""In one transaction."""

PROTOCOLS = ("classic", "consumer")
KILL_EVERY_S = 5.0
PATIENCE_S = 1200.0
CALL_S = 5.0
STUCK_S = 10
MODULE, ONE = "compat_tests.applications.exactly_once", "--one"
SESSION_MS = 2000
"""A start of the broker begins all sessions anew: one that is longer than the time between two kills would never end."""

# What a processor leaves behind has to go soon, and it has to hear soon of what has changed.
SETTINGS = {
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "log_level": 0}


# --- one processor ----------------------------------------------------------------------------------------------------


class Processor:
    """Transactions one after the other, until it is told to end."""

    def __init__(self, bootstrap: str, name: str, number: str, protocol: str) -> None:
        self._input, self._output = f"{name}-input", f"{name}-output"
        self._random = random.Random(number)
        servers = QUICK | {"bootstrap.servers": bootstrap}
        group = {"group.id": name, "group.protocol": protocol, "enable.auto.commit": False}
        group |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        if protocol == "classic":
            group |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
        self._consumer = Consumer(servers | group)
        transactions = {"transactional.id": f"{name}-{number}", "transaction.timeout.ms": 10_000, "linger.ms": 1}
        self._producer = Producer(servers | transactions)

    def work(self) -> None:
        """Until something goes wrong that cannot be tried again."""
        self._insist(lambda: self._producer.init_transactions(CALL_S))
        self._consumer.subscribe([self._input])
        while True:
            signal.alarm(STUCK_S)
            found = self._consumer.consume(self._random.randint(1, RECORDS_MAX), timeout=0.2)
            messages = [message for message in found if message.error() is None]
            if messages:
                self._transact(messages)

    def _transact(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in messages:
            ends[message.partition()] = message.offset() + 1
            self._producer.produce(self._output, message.value(), key=message.key())
        offsets = [TopicPartition(self._input, index, end) for index, end in ends.items()]
        group = self._consumer.consumer_group_metadata()
        try:
            self._insist(lambda: self._producer.send_offsets_to_transaction(offsets, group, CALL_S))
            self._insist(lambda: self._producer.commit_transaction(CALL_S))
        except KafkaException as failure:
            if failure.args[0].txn_requires_abort():
                self._insist(lambda: self._producer.abort_transaction(CALL_S))
            raise

    def _insist(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise

    def close(self) -> None:
        """Leaves the group, so that the next one need not wait for this one's session to end."""
        with contextlib.suppress(KafkaException):
            self._producer.purge()
        with contextlib.suppress(KafkaException, RuntimeError):
            self._consumer.close()


def process(bootstrap: str, name: str, number: str, protocol: str) -> NoReturn:
    while True:
        processor = Processor(bootstrap, name, number, protocol)
        try:
            processor.work()
        except (KafkaException, SystemError) as failure:  # SystemError: a callback during a fatal error
            print(f"processor {number} begins anew: {failure}", file=sys.stderr, flush=True)
        processor.close()


# --- a run ------------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run came to; `wrong` says what is not exactly once."""

    records: int
    seconds: float = 0.0
    kills: int = 0
    anew: int = 0
    """How often a processor began anew."""

    wrong: str = ""

    def __str__(self) -> str:
        text = f"{self.records:,} records, {self.kills} kills, {self.anew} times anew, {self.seconds:.0f} s"
        return f"{text}: {self.wrong or 'each exactly once'}"


IsTime = Callable[[int, float], bool]
"""Whether to kill the broker: so many records are committed, and it has been up for so many seconds."""


def run(broker: BrokerProcess, name: str, records: int, protocol: str, folder: Path, is_time: IsTime) -> Outcome:
    """The broker is up, and is up afterwards."""
    outcome = Outcome(records)
    make_topics(broker.bootstrap, PARTITIONS, f"{name}-input", f"{name}-output")
    put(broker.bootstrap, f"{name}-input", ((str(number), str(number), 1_000 + number) for number in range(records)))
    began = time.monotonic()
    with processors(broker.bootstrap, name, protocol, folder) as keepers:
        _kill_until_done(broker, name, keepers, outcome, is_time)
        outcome.seconds = time.monotonic() - began
    outcome.anew = sum(keeper.said.count("begins anew") for keeper in keepers)
    outcome.wrong = problem(take(broker.bootstrap, f"{name}-output", lambda found: len(found) >= records), records)
    return outcome


def _kill_until_done(
    broker: BrokerProcess, name: str, keepers: list["Keeper"], outcome: Outcome, is_time: IsTime
) -> None:
    deadline, up_since = time.monotonic() + PATIENCE_S, time.monotonic()
    while True:
        done = committed(broker, name)
        failures = [keeper.failure for keeper in keepers if keeper.failure]
        assert not failures, failures
        assert time.monotonic() < deadline, f"{done:,} of {outcome.records:,} records in {PATIENCE_S:.0f} s"
        if is_time(done, time.monotonic() - up_since):
            broker.kill()
            outcome.kills += 1
            broker.restart()
            up_since = time.monotonic()
        elif done >= outcome.records:
            return
        time.sleep(0.05)


def committed(broker: BrokerProcess, name: str) -> int:
    """How many records the group has committed; 0 if nobody can tell now.

    librdkafka's admin client has an assertion that fails now and then when the broker goes away under such a request.
    """
    topic = OffsetFetchRequestTopics(name=f"{name}-input", partition_indexes=list(range(PARTITIONS)))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=[topic])], require_stable=True)
    try:
        with WireClient((broker.host, broker.port), client_id="exactly-once", timeout_s=CALL_S) as client:
            [group] = client.ask(request, 8).groups
    except OSError:
        return 0
    places = [place for topic in group.topics for place in topic.partitions]
    return sum(max(place.committed_offset, 0) for place in places)


def problem(found: Pairs, records: int) -> str:
    """What is not exactly once; empty if all is."""
    times = Counter(int(value) for _, value in found if value is not None)
    twice = [number for number, count in times.items() if count > 1]
    missing = [number for number in range(records) if number not in times]
    if not twice and not missing and len(times) == records:
        return ""
    return f"{len(twice)} records twice {twice[:5]}, {len(missing)} missing {missing[:5]}, {len(times)} different ones"


class Keeper(threading.Thread):
    """Keeps a processor at work; where one was ended by its alarm it starts another one."""

    def __init__(self, log: Path, arguments: list[str]) -> None:
        super().__init__(daemon=True)
        self.failure = ""
        self.log = log
        self._command = [*bound_to_us(), sys.executable, "-m", MODULE, ONE, *arguments]
        self._is_over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        with self.log.open("wb") as log:
            while not self._is_over.is_set():
                self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                if self._is_over.is_set():
                    self._process.kill()
                status = self._process.wait()
                if not self._is_over.is_set() and status != -signal.SIGALRM:
                    self.failure = f"a processor ended with status {status}: {self.said[-4000:]}"
                    return

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def finish(self) -> None:
        self._is_over.set()
        if self._process is not None:
            self._process.kill()
        self.join()


@contextlib.contextmanager
def processors(bootstrap: str, name: str, protocol: str, folder: Path) -> Iterator[list[Keeper]]:
    """All of them at work."""
    keepers = [
        Keeper(folder / f"{name}-{number}.txt", [bootstrap, name, str(number), protocol])
        for number in range(PROCESSORS)
    ]
    for keeper in keepers:
        keeper.start()
    try:
        yield keepers
    finally:
        for keeper in keepers:
            keeper.finish()


# --- the command ------------------------------------------------------------------------------------------------------


def main() -> int:
    if sys.argv[1:2] == [ONE]:
        process(*sys.argv[2:])
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--kafka", action="store_true", help="the broker is Apache Kafka 4")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that broker and folder go as well
    good = 0
    for number in range(options.runs):
        protocol = PROTOCOLS[number % len(PROTOCOLS)]
        outcome = run_alone(number, options.records, protocol, ApacheKafka4 if options.kafka else OttlaProcess)
        good += not outcome.wrong
        print(f"run {number + 1} of {options.runs}, {protocol}: {outcome}", flush=True)
    print(f"{good} of {options.runs} runs: each record exactly once")
    return 0 if good == options.runs else 1


def run_alone(number: int, records: int, protocol: str, kind: type[BrokerProcess]) -> Outcome:
    """With a broker of its own."""
    with tempfile.TemporaryDirectory(prefix="ottla-exactly-once-") as folder:
        (directory := Path(folder) / "broker").mkdir()
        broker = kind(directory, SETTINGS)
        broker.inside = bound_to_us()
        broker.start()
        try:
            return run(broker, f"run{number}", records, protocol, Path(folder), lambda _, up_s: up_s > KILL_EVERY_S)
        finally:
            broker.stop()


if __name__ == "__main__":
    sys.exit(main())
