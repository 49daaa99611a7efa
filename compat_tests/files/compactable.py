"""Logs that give a cleaner something to decide: written by Ottla's own log, batch by batch, from a seed.

A `Filler` goes on with a log that is there. It overwrites and deletes keys, with and without producer ids, in all codecs;
has transactions that overlap, commit and abort, with markers that raise the epoch and markers that do not; and rolls now and
then. A transaction may be left open, until the next `fill` ends it. Some producers wrote so long ago that a start forgets them.
"""

from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ottla.replication.config import DAY_MS, LogConfig
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory, OsStorage
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.wire.compression import Compression
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.legacy_records import encode_message_set
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

IDEMPOTENT = (1, 2, 3)
FORGOTTEN = (3,)
TRANSACTIONAL = (11, 12, 13)
LEFT_OPEN = 19
SEGMENT_BYTES = 1 << 20  # the smallest that Kafka allows


class Case(NamedTuple):
    """One topic: its settings, and what is written to it."""

    seed: int
    config: dict[str, str]
    steps: int = 60
    keys: int = 12
    value_bytes: int = 40
    magic: int = 2
    leaves_open: bool = False
    ends_empty: bool = False

    @property
    def log_config(self) -> LogConfig:
        return LogConfig().with_overrides(self.config)


def load(data: Path, topic: str, config: LogConfig, *, now_ms: int, first_dirty_offset: int = -1) -> PartitionLog:
    """The log in a directory that was left in order."""
    options = LoadOptions(had_clean_shutdown=True, now_ms=now_ms, first_dirty_offset=first_dirty_offset)
    log = PartitionLog.load(LogDirectory(str(data), OsStorage()), f"{topic}-0", config, options)
    log.first_dirty_offset = first_dirty_offset
    return log


class Filler:
    """See the module's docstring."""

    def __init__(self, log: PartitionLog, case: Case, now_ms: int, generation: int) -> None:
        self.log = log
        self.case = case
        self.random = Random(case.seed * 100 + generation)
        self.now_ms = now_ms

    def fill(self) -> None:
        """Write what the case says, and leave the log in order."""
        if self._is_open(LEFT_OPEN):
            self.end(LEFT_OPEN)
        for _ in range(self.case.steps):
            self.step()
        for producer_id in TRANSACTIONAL:
            if self._is_open(producer_id):
                self.end(producer_id)
        if self.case.leaves_open and not self._is_open(LEFT_OPEN):
            self.log.roll(self.now_ms)
            self.put(LEFT_OPEN, is_transactional=True)
            for _ in range(self.case.steps // 2):
                self.step()
        # The last segment is never cleaned.
        self.log.roll(self.now_ms)
        if not self.case.ends_empty:
            self.put(-1)
        self.log.flush()
        self.log.close()

    def step(self) -> None:
        what = self.random.choices(
            ("put", "idempotent", "transactional", "end", "roll"),
            (5, 3, 5, 2, 1) if self.case.magic == 2 else (9, 0, 0, 0, 1),
        )[0]
        if what == "put":
            self.put(-1)
        elif what == "idempotent":
            self.put(self.random.choice(IDEMPOTENT))
        elif what == "transactional":
            self.put(self.random.choice(TRANSACTIONAL), is_transactional=True)
        elif what == "end":
            self.end(self.random.choice(TRANSACTIONAL))
        else:
            self.log.roll(self.now_ms)

    def _is_open(self, producer_id: int) -> bool:
        entry = self.log.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0

    def records(self, producer_id: int) -> list[Record]:
        random, at = self.random, self.now_ms - (2 * DAY_MS if producer_id in FORGOTTEN else 60_000)
        found = []
        for index in range(random.randint(1, 5)):
            key = b"key %d" % random.randrange(self.case.keys)
            value = None if random.random() < 0.2 else random.randbytes(random.randint(0, self.case.value_bytes))
            headers = ((b"name", random.randbytes(3)),) if self.case.magic == 2 and random.random() < 0.2 else ()
            found.append(Record(index, at + random.randint(-5000, 5000), key, value, headers))
        return found

    def put(self, producer_id: int, *, is_transactional: bool = False) -> None:
        records = self.records(producer_id)
        codecs = list(Compression) if self.case.magic == 2 else [Compression.NONE, Compression.GZIP, Compression.SNAPPY]
        codec = self.random.choice(codecs) if self.random.random() < 0.5 else Compression.NONE
        if self.case.magic < 2:
            start = self.log.log_end_offset
            placed = [record._replace(offset=start + index) for index, record in enumerate(records)]
            data = encode_message_set(placed, self.case.magic, compression=codec)
            self.log.append_as_follower(memoryview(bytearray(data)), now_ms=self.now_ms)
            return
        options: dict[str, Any] = {}
        if producer_id >= 0:
            entry = self.log.producers.get(producer_id)
            epoch, sequence = (0, 0) if entry is None else (max(entry.epoch, 0), entry.last_sequence + 1)
            options = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        batch = memoryview(
            bytearray(encode_batch(records, compression=codec, is_transactional=is_transactional, **options))
        )
        checked = self.log.check_thoroughly(batch, now_ms=self.now_ms)
        self.log.append_as_leader(batch, leader_epoch=0, now_ms=self.now_ms, checked=checked, guard=NOT_REQUIRED)

    def end(self, producer_id: int) -> None:
        """A marker; where no transaction is open it ends an empty one."""
        entry = self.log.producers.get(producer_id)
        version = self.random.choice((0, 2))
        epoch = (0 if entry is None else entry.epoch) + (1 if version == 2 else 0)
        kind = self.random.choice((ControlType.COMMIT, ControlType.ABORT))
        marker = encode_end_txn_marker(
            EndTxnMarker(kind, 0), timestamp_ms=self.now_ms, producer_id=producer_id, producer_epoch=epoch
        )
        self.log.append_as_leader(
            memoryview(bytearray(marker)),
            leader_epoch=0,
            now_ms=self.now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=version,
        )
        self.log.on_high_watermark(self.log.log_end_offset)
