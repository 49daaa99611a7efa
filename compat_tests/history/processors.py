"""Transactional clients of the load: each takes an offset of its group on and writes to several partitions, in one transaction.

What becomes of a transaction is left to chance: it is committed, aborted, or another producer of the same transactional id
takes over and the old one, a zombie from then on, tries to go on. What a producer cannot go on after ends it, and a new one takes
over, as in an application that is restarted. The offset of a transaction is its number, so that it tells which one it is of.

When all is over a last producer takes over, so that every transaction has ended.

Each is a process of its own with a history of its own. librdkafka 2.16 may wait for ever in send_offsets_to_transaction when the
coordinator went away between the two requests of it, and the binding keeps the whole process waiting. Such a process is ended by
an alarm, and another one goes on from what is in the history: one more way in which an application dies.
"""

import contextlib
import itertools
import random
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from compat_tests.history.clients import QUICK, REFUSALS, Client, consumer_of
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from ottla.server.testing.history.history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    EndAsked,
    Ended,
    Event,
    Failed,
    Fenced,
    HistoryFile,
    OffsetAdded,
    OffsetFetched,
    ProducerBegan,
    Recorder,
    Sent,
)

TIMEOUT_MS = 10_000
CALL_S = 5.0
PATIENCE_S = 180.0
"""A new producer begins again after each outage of all brokers, and several of these may follow one another."""
PAUSE_S = 0.03
STUCK_S = 2 * CALL_S
MODULE, ONE, ALARM = "compat_tests.history.processors", "--one", -signal.SIGALRM
NEWEST = "compat_tests.history.newest_processors"
Place = tuple[str, str, int, str]
"""A producer, a topic, a partition and a value."""

RECORDS_MAX = 8


class RecordedProcessor(Client):
    """One transaction a turn, by one producer until another one takes over."""

    def __init__(
        self, name: str, record: Recorder, bootstrap: str, topic: str, partitions: int, before: Sequence[Event] = ()
    ) -> None:
        """`before`: what processes did that had the name before."""
        super().__init__(name, record)
        began = [event.producer for event in before if isinstance(event, ProducerBegan)]
        known = (event.transaction or 0 for event in before if isinstance(event, Sent | EndAsked | OffsetAdded))
        last = max(known, default=0)
        self._random = random.Random(name)
        self._servers, self._topic, self._partitions = bootstrap, topic, partitions
        self._incarnations, self._transactions = itertools.count(len(began)), itertools.count(last + 1)
        self._values = itertools.count()
        self._stable = consumer_of(bootstrap, True, **{"group.id": name})
        self._unstable = consumer_of(bootstrap, False, **{"group.id": name})
        self._producer: Producer | None = None
        self._told: deque[tuple[Place, KafkaError | None, Message]] = deque()
        self._has_dropped = False  # the client has dropped records that it may have sent
        self._incarnation = began[-1] if began else ""

    def turn(self) -> None:
        if self._producer is None:
            self._take_over()
        transaction = next(self._transactions)
        try:
            self._transact(transaction)
        except KafkaException as failure:
            self._give_up(transaction, failure.args[0])
        except SystemError:  # a callback that was called with the exception of a fatal error set already
            self._give_up(transaction, KafkaError(KafkaError._FATAL))
        self.is_over.wait(self._random.random() * PAUSE_S)

    def close(self) -> None:
        self._take_over()
        self._stable.close()
        self._unstable.close()

    # --- producers ----------------------------------------------------------------------------------------------------

    def _take_over(self) -> None:
        """A new producer, which ends what the one before it had begun."""
        if self._producer is not None:
            self._close(self._producer)
        before, self._incarnation = self._incarnation, f"{self.name}/{next(self._incarnations)}"
        self.add(ProducerBegan, self._incarnation, True, -1)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self._producer = Producer(
                QUICK
                | {
                    "bootstrap.servers": self._servers,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": TIMEOUT_MS,
                    "linger.ms": 1,
                }
            )
            with contextlib.suppress(KafkaException):  # of this attempt, which an earlier one may have fenced
                self._insist(lambda producer: producer.init_transactions(CALL_S))
                break
            self._close(self._producer)
            assert time.monotonic() < deadline, f"{self.name} gets no producer id in {PATIENCE_S} s"
        if before:
            self.add(Fenced, before)
        self._fetch(self._stable)

    def _insist(self, call: Callable[[Producer], None]) -> None:
        """Until the client says that it is done, or that it can't be."""
        assert self._producer is not None
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                call(self._producer)
                self._note()
                return
            except KafkaException as failure:
                error = failure.args[0]
                self._note()
                if not error.retriable():
                    raise
                assert time.monotonic() < deadline, f"{self.name}: {error} for {PATIENCE_S} s"

    def _close(self, producer: Producer) -> None:
        """Not when its memory is cleared away, which may be in the middle of anything."""
        with contextlib.suppress(KafkaException, SystemError):
            producer.purge()
            producer.poll(0)
            producer.close()
        self._note()
        self._has_dropped = False  # that is over with it

    # --- transactions -------------------------------------------------------------------------------------------------

    def _transact(self, transaction: int) -> None:
        assert self._producer is not None
        self._producer.begin_transaction()
        for _ in range(self._random.randint(0, RECORDS_MAX)):
            self._send(self._producer, self._incarnation, transaction)
            self._producer.poll(self._random.choice((0, 0, 0.005)))
            self._note()
        if self._random.random() < 0.4:
            self._add_offset(transaction)
        fate = self._random.random()
        if fate < 0.04:
            self._be_replaced(transaction)
        else:
            self._end(transaction, commit=fate > 0.25)

    def _send(self, producer: Producer, incarnation: str, transaction: int) -> None:
        partition, value = self._random.randrange(self._partitions), f"{incarnation} {next(self._values)}"
        where = (incarnation, self._topic, partition, value)
        self.add(Sent, *where, None, transaction)

        # It may be called with the exception of a fatal error set already: who took a lock here would never give it back.
        told = self._told
        producer.produce(
            self._topic,
            value.encode(),
            partition=partition,
            on_delivery=lambda error, message: told.append((where, error, message)),
        )

    def _note(self) -> None:
        """Write down what was told of records."""
        while self._told:
            where, error, message = self._told.popleft()
            if error is None:
                offset = message.offset()
                self.add(Acknowledged, *where, UNKNOWN_OFFSET if offset is None else offset)
            else:
                self._has_dropped |= error.code() == KafkaError._PURGE_QUEUE
                self.add(Failed, *where, error.name(), error.code() not in REFUSALS)

    def _add_offset(self, transaction: int) -> None:
        self.add(OffsetAdded, self._incarnation, transaction, self.name, self._topic, 0, transaction)
        offsets = [TopicPartition(self._topic, 0, transaction)]
        group = self._stable.consumer_group_metadata()
        signal.setitimer(signal.ITIMER_REAL, STUCK_S)
        self._insist(lambda producer: producer.send_offsets_to_transaction(offsets, group, CALL_S))
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._random.random() < 0.2:
            self._fetch(self._unstable)  # the transactions before have ended, or this one had no offset

    def _end(self, transaction: int, *, commit: bool) -> None:
        self.add(EndAsked, self._incarnation, transaction, commit)
        if commit:
            self._insist(lambda producer: producer.commit_transaction(CALL_S))
        else:
            self._abort()
        self.add(Ended, self._incarnation, transaction, commit)
        # librdkafka gives the sequence numbers of records that an abort has dropped to the next ones. If a broker has
        # appended the former, whose answer was lost, it takes the next ones for the same. A new producer has a new epoch.
        if self._has_dropped and self._producer is not None:
            self._close(self._producer)
            self._producer = None

    def _abort(self) -> None:
        assert self._producer is not None
        if self._random.random() < 0.5:
            self._producer.flush(CALL_S)
        self._insist(lambda producer: producer.abort_transaction(CALL_S))

    def _give_up(self, transaction: int, error: KafkaError) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if error.txn_requires_abort():
            with contextlib.suppress(KafkaException):
                self._end(transaction, commit=False)
                return
        if self._producer is not None:
            self._close(self._producer)
            self._producer = None

    def _be_replaced(self, transaction: int) -> None:
        zombie, incarnation = self._producer, self._incarnation
        assert zombie is not None
        self._producer = None
        self._take_over()
        with contextlib.suppress(KafkaException, SystemError):
            for _ in range(self._random.randint(1, RECORDS_MAX)):
                self._send(zombie, incarnation, transaction)
            zombie.flush(1)
            self.add(EndAsked, incarnation, transaction, True)
            zombie.commit_transaction(1)
            self.add(Ended, incarnation, transaction, True)
        self._close(zombie)

    # --- offsets ------------------------------------------------------------------------------------------------------

    def _fetch(self, consumer: Consumer) -> None:
        with contextlib.suppress(KafkaException):  # nothing was learned
            [answer] = consumer.committed([TopicPartition(self._topic, 0)], timeout=CALL_S)
            if answer.error is None:
                self.add(OffsetFetched, self.name, self._topic, 0, max(answer.offset, UNKNOWN_OFFSET))


class Processor:
    """A RecordedProcessor in a process of its own, which looks like a client to those who start and finish it."""

    def __init__(
        self, name: str, file: Path, bootstrap: str, topic: str, partitions: int, *, is_newest: bool = False
    ) -> None:
        """`is_newest`: it is one of `newest_processors.py`."""
        self.name = name
        self.history = HistoryFile(file)
        self.is_over = _Over(self)
        self.committed = self.aborted = self.in_doubt = self.fenced = 0
        """How its transactions came out, once it has finished."""

        self._is_finished = False
        self._command = [
            sys.executable,
            "-m",
            NEWEST if is_newest else MODULE,
            name,
            str(file),
            bootstrap,
            topic,
            str(partitions),
        ]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    @property
    def failure(self) -> BaseException | None:
        """Before it was told to finish it has no reason to end."""
        ended = self._process is not None and not self._is_finished and self._process.poll() is not None
        return RuntimeError(f"{self.name} ended: {self._output()[1][-4000:]}") if ended else None

    def _output(self) -> tuple[str, str]:
        assert self._process is not None
        try:
            return self._process.communicate(timeout=2 * PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    def be_over(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
                self._process.stdin = None

    def finish(self) -> None:
        self.be_over()
        _, errors = self._output()
        assert self._process is not None
        assert self._process.returncode == 0, f"{self.name}: {errors[-4000:]}"
        self._is_finished = True
        self._count()

    def _count(self) -> None:
        asked, ended = set(), {}
        for event in self.history:
            if isinstance(event, EndAsked) and event.commit:
                asked.add((event.producer, event.transaction))
            elif isinstance(event, Ended):
                ended[event.producer, event.transaction] = event.committed
            self.fenced += isinstance(event, Fenced)
        self.committed = sum(ended.values())
        self.aborted = len(ended) - self.committed
        self.in_doubt = len(asked - set(ended))


class _Over:
    def __init__(self, processor: Processor) -> None:
        self.set = processor.be_over


def main(command: Sequence[str]) -> int:
    """Processes one after the other, each until its input ends or an alarm ends it."""
    while (ended := subprocess.run([sys.executable, "-m", MODULE, ONE, *command], check=False).returncode) == ALARM:
        pass
    return ended


def work(name: str, file: str, bootstrap: str, topic: str, partitions: str) -> None:
    history = HistoryFile(Path(file))
    before = tuple(history) if history.path.exists() else ()

    def note(event: Event) -> None:
        history.append(event)
        history.flush()

    processor = RecordedProcessor(name, Recorder(note), bootstrap, topic, int(partitions), before)
    processor.start()
    sys.stdin.read()
    processor.finish()
    history.close()


if __name__ == "__main__":
    if sys.argv[1] == ONE:
        work(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
