"""Coordinators with one very large group, of which every step of the event loop is counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
import trio.testing

from ottla.groupcoord.manager import MetadataManager
from ottla.groupcoord.runtime.answers import Caller, finished
from ottla.groupcoord.shard import Shard
from ottla.groupcoord.tests.conversation import GROUP
from ottla.groupcoord.tests.fakes import FORMATS, Coordination, FakeTopics
from ottla.groupcoord.tests.steps import Lines

MEMBERS = PARTITIONS = 10_000
OFFSETS = 100_000
LINES_MAX = 200_000
"""Of one step: about 8 ms of processor time on a machine where nothing else runs, and less than 25 ms on one of half its speed.
Ten lines for each of 10,000 members fit, and twenty do not."""

RECORDS_PER_BATCH = 500


class Measured:
    """What was handled while steps were counted, and the steps that were too long."""

    def __init__(self) -> None:
        self.handled: set[str] = set()
        self.lines: dict[str, int] = {}
        self.too_long: dict[str, str] = {}
        self._is_counting = False

    @contextmanager
    def counting(self, name: str) -> Iterator[None]:
        """Count the lines of each step of this block."""
        lines = Lines(LINES_MAX)
        self._is_counting = True
        try:
            with lines.counting():
                yield
        finally:
            self._is_counting = False
            self.lines[name] = max(lines.most, self.lines.get(name, 0))
            if lines.most > LINES_MAX:
                self.too_long[name] = f"{lines.most} lines: {lines.where}"

    def report(self) -> str:
        """The longest step of each thing that was counted."""
        told = sorted(self.lines.items(), key=lambda each: -each[1])
        return "\n".join(f"{count:>9,} {name}  {self.too_long.get(name, '')}" for name, count in told)

    def watch(self, table: dict[Any, Any], name_of: Callable[[Any], str] = lambda key: key.__name__) -> None:
        """Note which entries of a shard's table are called while steps are counted."""
        for key, function in list(table.items()):
            table[key] = self._noting(name_of(key), function)

    def _noting(self, name: str, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if self._is_counting:
                self.handled.add(name)
            return function(*arguments)

        return call


async def in_a_thread(function: Callable[[], Any]) -> Any:
    """What a thread does holds no step of the loop, so it is not counted."""
    await trio.lowlevel.checkpoint()
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        return function()
    finally:
        sys.settrace(trace)


class LargeGroups(Coordination):
    """A group coordinator with all kinds of groups."""

    def __init__(self, measured: Measured, **config: Any) -> None:
        super().__init__(**({"group_initial_rebalance_delay_ms": 0} | config))
        self.measured = measured
        self.counts = {f"t{number}": PARTITIONS for number in range(OFFSETS // PARTITIONS)}
        self.topics = FakeTopics(**self.counts)
        for name, count in self.counts.items():
            self.images.put(name, count)
        self.groups = self.new_coordinator()
        self.groups._runtime._run_in_thread = in_a_thread

    async def begin(self, nursery: trio.Nursery, records: Iterable[Any] = ()) -> None:
        """Load these records, with every kind of groups."""
        written = list(records)
        partition = self.groups.partition_for(GROUP)
        for start in range(0, len(written), RECORDS_PER_BATCH):
            self.log.append(partition, FORMATS.encode_records(written[start : start + RECORDS_PER_BATCH], 1))
        _ = self.groups.consumer, self.groups.share, self.groups.streams
        await self.start(nursery)
        shard = self.shard
        for table in (shard._requests, shard._reads):
            self.measured.watch(table)
        for request, adopters in (*shard._adopted.items(), *shard._adopted_reads.items()):
            self.measured.watch(adopters, lambda group_type, request=request: f"{request.__name__} of {group_type}")
        self.measured.watch(shard._timers, str)

    @property
    def shard(self) -> Shard:
        return self.partition.shard(self.groups._runtime.now_ms())

    @property
    def partition(self) -> Any:
        return self.groups._runtime.led_partition(self.groups.partition_for(GROUP))

    def part(self, kind: type) -> MetadataManager:
        return next(each for each in self.shard._managers if isinstance(each, kind))

    def counting(self, name: str) -> Any:
        return self.measured.counting(name)

    def submit(self, request: Any, version: int = 9) -> Any:
        """Hand a request to the shard."""
        caller = Caller(lambda error: error, api_version=version, client_id="client", client_host="/127.0.0.1")
        return self.partition.submit(request, caller)

    async def ask(self, request: Any, version: int = 9) -> Any:
        return await finished(self.submit(request, version))

    async def asked(self, name: str, answer: Callable[[], Any]) -> Any:
        """The answer of a request to the coordinator's services, with its steps counted."""
        with self.counting(name):
            response = await finished(answer())
            await trio.testing.wait_all_tasks_blocked()
        return response

    async def wait(self, name: str, seconds: float) -> None:
        """Let time pass, with what is due on the way counted."""
        with self.counting(name):
            await trio.sleep(seconds)
            await trio.testing.wait_all_tasks_blocked()


def names_of(part: MetadataManager) -> set[str]:
    """All that a part registers: requests, reads and deadlines."""
    names = {each.__name__ for table in (part.requests, part.reads) for each in table}
    names |= {f"{each.__name__} of {part.group_type}" for table in (part.adopted, part.adopted_reads) for each in table}
    return names | set(part.timers)
