"""Topics are created, extended, configured and deleted while each call to the disk fails once: each change is whole or undone.

A broker that is alone, with its journal and its logs on one disk in memory. After the fault it goes on, and is started again
in order, after a kill and after a power cut.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster import znodes
from ottla.replication.controller import partition_states
from ottla.replication.controller.topic_planner import NewTopic
from ottla.replication.log.tests.failing_calls import (
    ERRNOS,
    Case,
    FailingCalls,
    run_every_case,
    run_pairs,
    single_faults,
    some_faults,
)
from ottla.replication.log.tests.failing_calls import run_case as run_one
from ottla.replication.log.tests.logs import batch
from ottla.server.cluster.controller import decision_writer
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.server.tests.administered import opened
from ottla.wire.errors import ErrorCode, KafkaError

DATA = "/data"
OLD = 2  # partitions of the topic that is there before
NEW = 3  # more than get their states with the topic
SETTLED_S = 60.0  # by then what waited for room is done


class Life:
    """One life of a broker on a disk."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    async def start(self) -> Life:
        self.broker = await opened(Path(DATA), storage=self._storage)
        self.administration, self.configs = self.broker.administration, self.broker.configs
        self.replicas, self.coordination = self.broker.replicas, self.broker.coordination
        return self

    async def stop(self) -> None:
        await self.broker.stop()

    async def end(self) -> None:
        """After a kill: nothing reaches the disk any more."""
        self._storage.fail = lambda *_: OSError(errno.EIO, "the process is gone")
        await self.broker.stop()
        self._storage.fail = None

    def topics(self) -> dict[str, int]:
        """What clients are shown: the number of partitions by topic."""
        return {name: len(topic.partitions) for name, topic in self.broker.cluster.topics.items()}

    def hosted(self) -> dict[str, int]:
        """The number of partitions that this broker leads, by topic."""
        return dict(Counter(name for name, _ in self.broker.hosted()))

    async def in_the_tree(self) -> dict[str, int]:
        """What a restart would find."""
        found = {}
        for name, node in (await self.coordination.children_data(znodes.TOPICS)).items():
            (mark,) = await self.coordination.get_all([znodes.deleted_topic_path(name)])
            if mark is None:
                found[name] = len(znodes.decode_topic(node.data).partitions)
        return found


# ---------------------------------------------------------------------- what is done while calls fail


async def create(life: Life) -> None:
    outcomes = await life.administration.create_topics(
        [NewTopic(name="new", partition_count=NEW), NewTopic(name="two")]
    )
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            raise outcome


async def delete(life: Life) -> None:
    (error,) = await life.administration.delete_topics(["old"])
    if error is not None:
        raise error


async def extend(life: Life) -> None:
    await life.administration.create_partitions("old", NEW)


async def configure(life: Life) -> None:
    await life.administration.settings.alter_topic("old", lambda _: {"retention.ms": "77"})


Operation = Callable[[Life], Awaitable[None]]
AFTER: dict[Operation, dict[str, int]] = {
    create: {"old": OLD, "new": NEW, "two": 1},
    delete: {},
    extend: {"old": NEW},
    configure: {"old": OLD},
}
# codes that tell a client that its change was made before
AGAIN = {
    create: ErrorCode.TOPIC_ALREADY_EXISTS,
    delete: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    extend: ErrorCode.INVALID_PARTITIONS,
}


async def attempt(operation: Operation, life: Life) -> ErrorCode:
    try:
        await operation(life)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def check_visible(life: Life, operation: Operation, code: ErrorCode) -> None:
    """The topics that clients see are led, and agree with the answer. What was late is done by now."""
    assert life.topics() == life.hosted()
    if operation is create and code is ErrorCode.REQUEST_TIMED_OUT:  # another topic may have been refused
        assert life.topics().items() <= AFTER[create].items() and "new" in life.topics()
    elif code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
        assert life.topics() == AFTER[operation]
    elif operation is create:  # each topic by itself
        assert life.topics().items() <= AFTER[create].items() and life.topics() != AFTER[create]
    else:
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
        assert life.topics() == {"old": OLD}
    assert (life.configs.log_config("old").retention_ms == 77) == (operation is configure and code is ErrorCode.NONE)


Restart = Callable[[MemoryStorage, Life], Awaitable[None]]


async def in_order(storage: MemoryStorage, life: Life) -> None:
    await life.stop()


async def killed(storage: MemoryStorage, life: Life) -> None:
    storage.kill()
    await life.end()


async def powered_off(storage: MemoryStorage, life: Life) -> None:
    storage.crash(Random(1))
    await life.end()


async def run_case(operation: Operation, restart: Restart, calls: FailingCalls, *, goes_on: bool) -> None:
    storage = MemoryStorage()
    life = await Life(storage).start()
    await life.administration.create_topics([NewTopic(name="old", partition_count=OLD)])
    for index in range(OLD):
        partition = life.replicas.partition("old", index)
        assert partition is not None
        partition.append_as_leader(batch(1000 + index), required_acks=-1, now_ms=1)
        partition.log.flush()
    storage.sync_directory(DATA)
    storage.fail = calls
    code = await attempt(operation, life)
    storage.fail = None
    await trio.sleep(SETTLED_S)
    is_broken = life.coordination._journal.failure is not None
    if not is_broken and life.replicas.log_directories[0].is_online:
        check_visible(life, operation, code)
        assert await life.in_the_tree() == life.topics()
    if goes_on and not is_broken and life.replicas.log_directories[0].is_online:
        again = await attempt(operation, life)
        await trio.sleep(SETTLED_S)
        assert again in (ErrorCode.NONE, AGAIN.get(operation))
        code = ErrorCode.NONE if again is ErrorCode.NONE or code is ErrorCode.NONE else code
        if operation is not create:
            check_visible(life, operation, ErrorCode.NONE)
    shown, retention_ms = life.topics(), life.configs.log_config("old").retention_ms
    await restart(storage, life)
    after = await Life(storage).start()
    if is_broken and after.topics() != shown:  # nobody was told, and the broker has stopped
        assert after.topics().items() <= AFTER[operation].items()
        shown, retention_ms = after.topics(), after.configs.log_config("old").retention_ms
    assert after.topics() == after.hosted() == await after.in_the_tree() == shown
    assert is_broken or after.configs.log_config("old").retention_ms == retention_ms
    for index in range(OLD if "old" in shown else 0):
        survivor = after.replicas.partition("old", index)
        assert survivor is not None and survivor.log_end_offset == 1
    known = {f"{name}-{index}" for name, count in shown.items() for index in range(count)}
    present = {name for name in storage.names(DATA) if storage.is_directory(f"{DATA}/{name}") and "." not in name}
    assert present == known
    assert await attempt(operation, after) in (ErrorCode.NONE, AGAIN.get(operation))


def in_trio(operation: Operation, restart: Restart, *, goes_on: bool) -> Case:
    def case(calls: FailingCalls) -> None:
        async def run() -> None:
            await run_case(operation, restart, calls, goes_on=goes_on)

        trio.run(run, clock=MockClock(autojump_threshold=0))

    return case


EVERY = 3  # of these cases, as each starts a broker twice
SOME_OR_ALL = pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.long, id="all"), pytest.param(EVERY, id="some")]
)


@pytest.mark.thorough
@SOME_OR_ALL
@pytest.mark.parametrize("restart", [in_order, powered_off, pytest.param(killed, marks=pytest.mark.long)])
@pytest.mark.parametrize("operation", list(AFTER))
def test_every_call_fails_once(
    operation: Operation, restart: Restart, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (partition_states, decision_writer):
        monkeypatch.setattr(module, "FIRST_STATES_PER_WRITE", 2)

    count = 0
    for goes_on in (False, True) if restart is killed else (False,):
        errnos = ERRNOS if goes_on else (errno.ENOSPC,) if restart is in_order else (errno.ENOSPC, errno.EIO)
        count += run_every_case(in_trio(operation, restart, goes_on=goes_on), errnos, lasting=goes_on, every=every)
    assert count >= 4 // every


@pytest.mark.thorough
@SOME_OR_ALL
@pytest.mark.parametrize("operation", [extend, pytest.param(create, marks=pytest.mark.long)])
def test_what_undoes_a_failed_change_may_fail_too(
    operation: Operation, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (partition_states, decision_writer):
        monkeypatch.setattr(module, "FIRST_STATES_PER_WRITE", 2)
    case = in_trio(operation, killed, goes_on=True)
    made = run_one(case).made
    first = some_faults(made, list(single_faults(made, (errno.ENOSPC,))), every)
    assert run_pairs(case, first, errno.ENOSPC, within=3) > 30 // every
