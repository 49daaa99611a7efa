"""The small load of the Learn tab: a topic, a producer of a few records a second, and up to three readers.

    asleep --start--> makes the topic, writes and reads --stop, LOAD_S over, or a problem--> asleep

It begins with a click, only with `http.console.write`, and costs next to nothing: RECORDS_PER_S records of a hundred bytes. All its
partitions are led here, and its group is one that this broker coordinates, so that the page sees everything; in a cluster other brokers
hold replicas.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.console import questions
from ottla.server.console.learning_reader import Reader
from ottla.server.console.partitioning import partition_of_key
from ottla.server.console.writing import produced
from ottla.server.http.routes import Refused
from ottla.server.serving_state import NotServing
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import Record

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.console.records import Records
    from ottla.server.http.routes import Request

logger = logging.getLogger("ottla.console")

TOPIC, GROUP = "ottla-learn", "ottla-learn-readers"
PARTITIONS, REPLICAS_MAX, READERS_MAX = 3, 3, 3
RECORDS_PER_S, LOAD_S, PATIENCE_S = 4, 600.0, 30.0
GROUP_NAMES_TRIED = 500
CONFIGS = {"retention.ms": "600000", "segment.ms": "60000"}
KEYS = ("apple", "banana", "cherry", "fig", "grape", "lemon", "lime", "mango", "pear")  # three of each partition


class Learning:
    """See the module's docstring."""

    def __init__(self, broker: Broker, records: Records, *, may_start: bool) -> None:
        self._broker, self._records, self._may_start = broker, records, may_start
        self._started = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._readers: list[Reader] = []
        self._written = 0
        self._ends_at = 0.0
        self._problem = ""
        self.group_id = GROUP

    async def run(self) -> None:
        """Sleep until somebody starts the load, again and again, until cancelled."""
        while True:
            await self._started.wait()
            self._problem = ""
            try:
                with self._broker.serving_state.work():
                    await self._load()
            except NotServing:
                self._problem = "The broker stops."
            except (Refused, KafkaError) as error:
                self._problem = str(error)
            except Exception:  # it would end the endpoint, and with it the broker
                logger.exception("bug: the load of the Learn tab")
                self._problem = "It has a bug, which the log of the broker tells of."
            self._nursery, self._readers = None, []
            self._started = trio.Event()

    # ------------------------------------------------------------------ what the page asks

    async def told(self, request: Request) -> dict[str, Any]:
        """How it goes."""
        left = max(0.0, self._ends_at - trio.current_time()) if self._started.is_set() else 0.0
        return {
            "mayStart": self._may_start,
            "isRunning": self._started.is_set(),
            "secondsLeft": round(left),
            "topic": TOPIC,
            "topicExists": TOPIC in self._broker.cluster.topics,
            "group": self.group_id,
            "written": self._written,
            "recordsPerSecond": RECORDS_PER_S,
            "readers": [{"member": each.member_id, "read": each.read_count} for each in self._readers],
            "readersMax": READERS_MAX,
            "problem": self._problem,
        }

    async def change(self, request: Request) -> dict[str, Any]:
        """`action`: start, stop, add-reader, remove-reader, lose-reader."""
        action = questions.posted(request).get("action")
        if action == "start":
            if not self._started.is_set():
                self._ends_at = trio.current_time() + LOAD_S
                self._started.set()
        elif action in ("stop", "add-reader", "remove-reader", "lose-reader"):
            if self._nursery is None:
                raise Refused(409, "The load does not run.")
            self._change(self._nursery, action)
        else:
            raise Refused(400, "action must be start, stop, add-reader, remove-reader or lose-reader.")
        return await self.told(request)

    def _change(self, nursery: trio.Nursery, action: str) -> None:
        if action == "stop":
            nursery.cancel_scope.cancel()
        elif action == "add-reader":
            if len(self._readers) >= READERS_MAX:
                raise Refused(409, f"There are {READERS_MAX} readers already.")
            self._add_reader(nursery)
        elif not self._readers:
            raise Refused(409, "There is no reader.")
        else:
            reader = self._readers.pop()
            reader.is_lost = action == "lose-reader"
            reader.cancel_scope.cancel()

    # ------------------------------------------------------------------ the load

    async def _load(self) -> None:
        await self._ensure_topic()
        await self._broker.ensure_internal_topic("__consumer_offsets")
        self.group_id = self._own_group()
        problems: list[Exception] = []
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.cancel_scope.deadline = self._ends_at

            async def guarded(work: Any) -> None:
                # A nursery would wrap what is raised in it.
                try:
                    await work()
                except (Refused, KafkaError) as error:
                    problems.append(error)
                    nursery.cancel_scope.cancel()

            self._guarded = guarded
            nursery.start_soon(guarded, self._write)
            self._add_reader(nursery)
        if problems:
            raise problems[0]

    def _add_reader(self, nursery: trio.Nursery) -> None:
        reader = Reader(self._broker, self._records, self.group_id, TOPIC)
        self._readers.append(reader)
        nursery.start_soon(self._guarded, reader.run)

    async def _ensure_topic(self) -> None:
        """All partitions are led here."""
        if TOPIC in self._broker.cluster.topics:
            return
        others = [each for each in sorted(self._broker.cluster.brokers) if each != self._broker.node_id]
        replicas = [self._broker.node_id, *others][:REPLICAS_MAX]
        topic = NewTopic(name=TOPIC, assignments=[(index, replicas) for index in range(PARTITIONS)], configs=CONFIGS)
        heard = trio.Event()
        refusals: list[KafkaError] = []

        def hear(name: str, error: KafkaError | None) -> None:
            if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                refusals.append(error)
            heard.set()

        self._broker.administration.request_topics([topic], hear)
        with trio.move_on_after(PATIENCE_S):
            await heard.wait()
            while not refusals and TOPIC not in self._broker.cluster.topics:
                await trio.sleep(0.05)
        if refusals:
            raise refusals[0]
        if TOPIC not in self._broker.cluster.topics:
            raise Refused(409, f"The topic {TOPIC} was not made in time.")

    def _own_group(self) -> str:
        """The name of a group that this broker coordinates."""
        names = (GROUP, *(f"{GROUP}-{number}" for number in range(2, GROUP_NAMES_TRIED)))
        for name in names:
            state = self._broker.cluster.partition("__consumer_offsets", self._broker.groups.partition_for(name))
            if state is not None and state.leader == self._broker.node_id:
                return name
        raise Refused(409, "This broker coordinates no groups.")

    async def _write(self) -> None:
        while True:
            number = self._written
            key, value = record_of(number)
            topic = self._broker.cluster.topic(TOPIC)
            if topic is None:
                raise Refused(409, f"The topic {TOPIC} was deleted.")
            partition = partition_of_key(key, len(topic.partitions))
            await produced(self._broker, TOPIC, partition, [Record(0, self._broker.now_ms(), key, value)])
            self._written += 1
            await trio.sleep(1 / RECORDS_PER_S)


def record_of(number: int) -> tuple[bytes, bytes]:
    """Key and value of a sale in a fruit shop."""
    fruit = KEYS[number * 5 % len(KEYS)]
    sale: Mapping[str, object] = {"sale": number, "fruit": fruit, "grams": 100 + number * 37 % 900}
    return fruit.encode(), json.dumps(sale).encode()
