"""A process that keeps a log on real files while descriptors or room run out: `python -m ... descriptors|room DIRECTORY`.

It writes down what it acknowledged, loses everything it holds in memory, loads the log again as after a kill and as after an
orderly end, and compares. It ends with an exception where something is lost, doubled or made up, and prints its counts.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from ottla.replication.config import LogConfig
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory, OsStorage
from ottla.replication.log.tests.logs import read_records
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

NOW_MS = 1_000_000
DESCRIPTORS_MAX = 64
CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500)


class Keeper:
    """A log, and what of it was acknowledged."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.acknowledged: dict[int, bytes] = {}
        self.refused: set[bytes] = set()
        self.directory = LogDirectory(root, OsStorage(), open_files_max=2)
        self.log = PartitionLog.create(self.directory, "topic", 0, CONFIG, topic_id=bytes(16), now_ms=NOW_MS)
        self.failures = 0
        self._count = 0

    def append(self, size: int) -> bool:
        self._count += 1
        value = b"record %d." % self._count
        batch = encode_batch([Record(0, NOW_MS + self._count, b"key", value + b"x" * size)])
        try:
            offset = self.log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=1, now_ms=NOW_MS).first_offset
        except KafkaError as error:
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR, error
            assert self.directory.is_online, self.directory.failure
            self.refused.add(value)
            self.failures += 1
            return False
        assert offset not in self.acknowledged, f"offset {offset} twice"
        self.acknowledged[offset] = value
        return True

    def attempt(self, operation: Callable[[], object]) -> None:
        try:
            operation()
        except KafkaError as error:
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR, error
            assert self.directory.is_online, self.directory.failure
            self.failures += 1

    def cut(self) -> None:
        """Drop the last two records, as a follower does."""
        offset = max(0, self.log.log_end_offset - 2)
        self.attempt(lambda: self.log.truncate_to(offset, now_ms=NOW_MS))
        if self.log.log_end_offset == offset:
            for each in [each for each in self.acknowledged if each >= offset]:
                del self.acknowledged[each]

    def load(self, *, is_clean: bool) -> None:
        if is_clean:
            self.log.flush()
            self.log.close()
        log_start_offset, recovery_point = self.log.log_start_offset, self.log.recovery_point
        self.log.release_files()  # those that were removed keep their room until the collector finds the old log
        self.directory = LogDirectory(self._root, OsStorage(), open_files_max=2)
        options = LoadOptions(log_start_offset, recovery_point, is_clean, NOW_MS)
        self.log = PartitionLog.load(self.directory, "topic-0", CONFIG, options)

    def check(self) -> None:
        found = {record.offset: (record.value or b"").rstrip(b"x") for record in read_records(self.log)}
        assert found == self.acknowledged, (
            f"lost {self.acknowledged.items() - found.items()}, too many {found.items() - self.acknowledged.items()}"
        )
        assert not self.refused.intersection(found.values())
        assert self.log.log_end_offset == max(found, default=-1) + 1


@contextmanager
def used_up_descriptors(spare: int) -> Iterator[None]:
    """Nothing but `spare` files can be opened."""
    held: list[int] = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        for descriptor in held[len(held) - spare :]:
            os.close(descriptor)
    try:
        yield
    finally:
        for descriptor in held[: len(held) - spare]:
            os.close(descriptor)


@contextmanager
def used_up_room(root: str, spare: int) -> Iterator[None]:
    """Nothing but about `spare` bytes can be written."""
    path = f"{root}/ballast"
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(max(0, file.tell() - spare))
    try:
        yield
    finally:
        os.unlink(path)


def keep_on(keeper: Keeper, scarce: Callable[[int], AbstractContextManager[None]], step: int) -> None:
    """With more and more to spare: all that a log does, then the same without want, then a restart."""
    for number in range(24):
        with scarce(number // 2 * step):
            for size in (3000, 50, 6000, 10):
                keeper.log.release_files()  # as the cache does with files of logs that are seldom used
                keeper.append(size)
            keeper.attempt(lambda: keeper.log.roll(NOW_MS))
            keeper.append(20)
            keeper.attempt(keeper.log.flush)
            keeper.cut()
            keeper.append(100)
            keeper.attempt(lambda: keeper.log.roll(NOW_MS + 1))
        assert keeper.directory.is_online, keeper.directory.failure
        assert keeper.append(100), "it does not serve again"
        keeper.check()
        keeper.load(is_clean=number % 2 == 0)
        keeper.check()
        if len(keeper.log.segments) > 4:  # room for the next ones
            keeper.attempt(lambda: keeper.log.increase_log_start_offset(keeper.log.segments[-1].base_offset))
            keeper.log.delete_old_segments(NOW_MS, keeper.log.log_end_offset)
            for path in keeper.directory.removals_due(2**62):
                keeper.directory.storage.remove(path)
            start = keeper.log.log_start_offset
            keeper.acknowledged = {each: value for each, value in keeper.acknowledged.items() if each >= start}


def main(kind: str, root: str) -> None:
    keeper = Keeper(root)
    if kind == "descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        keep_on(keeper, used_up_descriptors, 1)
    else:
        keep_on(keeper, lambda spare: used_up_room(root, spare), 4096)
    print("failures", keeper.failures)


if __name__ == "__main__":
    main(*sys.argv[1:])
