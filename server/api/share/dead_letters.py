"""The dead-letter queues of share groups (KIP-1191): records that no member could process go to a topic of the group.

A record was rejected by a member, or delivered as often as is allowed. Its letter has headers with the record's origin and
the reason; with errors.deadletterqueue.copy.record.enable it has the record's key and value, too. It goes to the
partition of the queue that has the number of the record's partition, modulo how many there are.

| the topic errors.deadletterqueue.topic.name                               | what follows                    |
|---------------------------------------------------------------------------|---------------------------------|
| has errors.deadletterqueue.group.enable                                   | letters are written             |
| does not exist, and errors.deadletterqueue.auto.create.topics.enable is on | it is made, with that setting  |
| anything else; or its name begins with __ or not with the prefix that the  | nothing is written              |
| broker asks for                                                           |                                 |

However that ends, the records are archived afterwards: a queue that does not work must not hold up a share group. A leader
that stops in between leaves records that are on their way; the next leader writes their letters, perhaps once more.

One task per share partition writes its dead letters; letters that arrive during a write go into the next batch.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.groupcoord.share.partition.in_flight import DeadLetter
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.log.storage import FileRegion, NotCached, only_cached
from ottla.replication.reminders import Reminders
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch, encode_record
from ottla.wire.records import Record, iter_batches

if TYPE_CHECKING:
    from ottla.groupcoord.share.partition.state import ShareGroupSettings
    from ottla.replication.partition.partition import Partition
    from ottla.server.api.share.persister import Background
    from ottla.server.api.share.share_partition_leader import SharePartitionLeader
    from ottla.server.ports import BrokerParts

logger = logging.getLogger("ottla.share")
_reminders = Reminders()

ENABLED = "errors.deadletterqueue.group.enable"
REJECTED = b"Offset rejected by client."
DELIVERED_TOO_OFTEN = b"Offset delivery count exceeded the threshold."
READ_BYTES = 1 << 20
BATCH_OVERHEAD = 61
ALL_REPLICAS = -1
CREATE_VERSION, PRODUCE_VERSION = 5, 9
TIMEOUT_S = 30.0
WAITS_S = (0.1, 0.5, 1.0, 2.0, 4.0)
"""Pauses between tries."""
RETRIABLE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)

_threads = trio.CapacityLimiter(2)


class Source(NamedTuple):
    """Partition and share group from which dead letters come."""

    topic: str
    partition: int
    group_id: str


Originals = Mapping[int, tuple[bytes | None, bytes | None]]
"""Keys and values of records, by offset."""


class DeadLetterQueues:
    """Writer of dead letters for all share groups. `start` runs a function in the background."""

    def __init__(
        self, broker: BrokerParts, start: Background, settings_of: Callable[[str], ShareGroupSettings]
    ) -> None:
        self._broker, self._start, self._settings_of = broker, start, settings_of
        self._letters: dict[SharePartitionLeader, deque[DeadLetter]] = {}

    def send(self, share: SharePartitionLeader, letter: DeadLetter) -> None:
        """Write dead letters for the records that `letter` describes, then archive these records."""
        letters = self._letters.get(share)
        if letters is None:
            letters = self._letters[share] = deque()
            self._start(partial(self._work, share, letters))
        letters.append(letter)

    async def _work(self, share: SharePartitionLeader, letters: deque[DeadLetter]) -> None:
        try:
            while letters:
                taken = list(letters)
                letters.clear()
                try:
                    await self._write(share, taken)
                except (KafkaError, PeerUnavailable) as error:
                    text = "Records of %s are archived without a dead letter: %s"
                    _reminders.tell(share.key, logger.warning, text, share.key, error)
                except Exception:
                    # The records would wait for their letter for ever. The next fetch begins again with them.
                    logger.exception("bug: dead letters of %s", share.key)
                    share.fence(ErrorCode.UNKNOWN_SERVER_ERROR)
                if share.machine.is_active:
                    for letter in taken:
                        share.machine.on_dead_letter(letter)
                    share.after()
        finally:
            del self._letters[share]

    async def _write(self, share: SharePartitionLeader, letters: list[DeadLetter]) -> None:
        settings = self._settings_of(share.key.group_id)
        name = settings.dead_letter_topic
        self._check(name)
        await _retried(partial(self._ensure, name))
        source = Source(share.partition.topic, share.partition.index, share.key.group_id)
        limit = self._broker.configs.log_config(name).max_message_bytes
        pending = deque(letters)
        while pending:
            originals: Originals = {}
            taken = pending
            if settings.copies_dead_letters:
                # The records of one letter at a time, and of those as many as are read at once.
                letter = pending.popleft()
                originals = await self._originals(share.partition, letter.first_offset, letter.last_offset)
                if originals and (last := max(originals)) < letter.last_offset:
                    pending.appendleft(letter._replace(first_offset=last + 1))
                    letter = letter._replace(last_offset=last)
                taken = deque([letter])
            while taken:
                now_ms = self._broker.now_ms()
                batch = await trio.to_thread.run_sync(_batch, source, taken, originals, limit, now_ms, limiter=_threads)
                await _retried(partial(self._produce, name, source.partition, batch))

    def _check(self, name: str) -> None:
        """Raise KafkaError if the topic `name` may not be a dead-letter queue."""
        config = self._broker.config.dead_letters
        prefix = config.errors_deadletterqueue_topic_name_prefix
        problem = None
        if not name or name.startswith("__") or not name.startswith(prefix):
            problem = f"{name!r} is no name for a dead-letter queue"
        elif self._broker.cluster.topics.get(name) is None:
            if not config.errors_deadletterqueue_auto_create_topics_enable:
                problem = f"there is no topic {name}"
        elif not self._broker.configs.log_config(name).errors_deadletterqueue_group_enable:
            problem = f"topic {name} has not set {ENABLED}"
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, problem)

    async def _ensure(self, name: str) -> None:
        """Create the dead-letter topic `name` if it does not exist."""
        if self._broker.cluster.topics.get(name) is not None:
            return
        settings = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[],
            configs=[CreatableTopicConfig(name=each, value=value) for each, value in settings.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=int(TIMEOUT_S * 1000))
        response = await self._broker.member.ask_controller(request, CREATE_VERSION, timeout_s=TIMEOUT_S)
        error = ErrorCode.of(response.topics[0].error_code)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(error, response.topics[0].error_message)
        if self._broker.cluster.topics.get(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # this broker does not know it yet

    async def _originals(self, partition: Partition, first: int, last: int) -> Originals:
        """Return the keys and values of the records from `first` to `last`, by offset; later ones may be missing.

        An empty result means that the log cannot be read; dead letters are then written without keys and values.
        """
        try:
            region: Any = b""
            for _ in range(100):
                try:
                    with only_cached:
                        region = partition.read(first, READ_BYTES, at_least_one_batch=True).records
                    break
                except NotCached as cold:
                    await trio.to_thread.run_sync(cold.warm, limiter=_threads)
            return await trio.to_thread.run_sync(_decoded, region, first, last, limiter=_threads)
        except (KafkaError, OSError) as error:
            name = partition.topic, partition.index
            _reminders.tell(name, logger.warning, "Dead letters of %s-%d come without records: %s", *name, error)
            return {}

    async def _produce(self, name: str, source_partition: int, batch: bytes) -> None:
        broker = self._broker
        topic = broker.cluster.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        index = source_partition % len(topic.partitions)
        leader = topic.partitions[index].leader
        if leader == broker.node_id:
            partition, records = broker.partition(name, index), memoryview(bytearray(batch))
            # The checks of the topic look at each record.
            check = partial(partition.log.check_thoroughly, records, now_ms=broker.now_ms())
            checked = await trio.to_thread.run_sync(check, limiter=_threads)
            info = partition.append_as_leader(
                records, required_acks=ALL_REPLICAS, now_ms=broker.now_ms(), checked=checked
            )
            error = await broker.replicas.wait_committed(partition, info.last_offset + 1, timeout_s=TIMEOUT_S)
        else:
            error = await self._produce_elsewhere(leader, name, index, batch)
        if error is not ErrorCode.NONE:
            raise KafkaError(error)

    async def _produce_elsewhere(self, leader: int, name: str, index: int, batch: bytes) -> ErrorCode:
        peer = self._broker.member.peer(leader, purpose=f"broker-{self._broker.node_id}-dead-letters")
        data = TopicProduceData(
            name=name, partition_data=[PartitionProduceData(index=index, records=memoryview(batch))]
        )
        request = ProduceRequest(acks=ALL_REPLICAS, timeout_ms=int(TIMEOUT_S * 1000), topic_data=[data])
        try:
            response = await peer.ask(request, PRODUCE_VERSION, timeout_s=TIMEOUT_S)
        finally:
            await peer.aclose()
        return ErrorCode.of(response.responses[0].partition_responses[0].error_code)


async def _retried(work: Callable[[], Any]) -> None:
    """Run `work`; retry after transient failures."""
    for wait_s in WAITS_S:
        try:
            await work()
        except PeerUnavailable:
            pass
        except KafkaError as error:
            if error.code not in RETRIABLE:
                raise
        else:
            return
        await trio.sleep(wait_s)
    await work()


def _decoded(records: FileRegion | bytes, first: int, last: int) -> Originals:
    data = records.read() if isinstance(records, FileRegion) else records
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    size = 0
    for header, start, end in iter_batches(data):
        if header.base_offset > last or size > READ_BYTES:
            break
        if header.is_control or header.last_offset < first:
            continue
        for record in decode_records(data[start:end], headers_max=0):  # a letter has headers of its own
            if first <= record.offset <= last:
                found[record.offset] = record.key, record.value
                size += len(record.key or b"") + len(record.value or b"")
    return found


def _batch(source: Source, pending: deque[DeadLetter], originals: Originals, limit: int, now_ms: int) -> bytes:
    """Encode one batch of dead letters, of at least one record; remove them from `pending`. Return the batch.

    `limit`: greatest size in bytes; `originals`: keys and values to copy, by offset.
    """
    records: list[Record] = []
    size = BATCH_OVERHEAD
    for offset, letter in _offsets(pending):
        key, value = originals.get(offset, (None, None))
        record = Record(len(records), now_ms, key, value, tuple(_headers(source, offset, letter)))
        size += len(encode_record(len(records), 0, key, value, record.headers))
        if size > limit and records:
            break
        records.append(record)
        _take(pending, offset)
    return bytes(encode_batch(records))


def _offsets(pending: deque[DeadLetter]) -> Iterator[tuple[int, DeadLetter]]:
    for letter in tuple(pending):
        for offset in range(letter.first_offset, letter.last_offset + 1):
            yield offset, letter


def _take(pending: deque[DeadLetter], offset: int) -> None:
    """Remove the record at `offset`, the first one of the first pending letter."""
    if pending[0].last_offset == offset:
        pending.popleft()
    else:
        pending[0] = pending[0]._replace(first_offset=offset + 1)


def _headers(source: Source, offset: int, letter: DeadLetter) -> Iterator[tuple[bytes, bytes | None]]:
    yield b"__dlq.errors.topic", source.topic.encode()
    yield b"__dlq.errors.partition", b"%d" % source.partition
    yield b"__dlq.errors.offset", b"%d" % offset
    yield b"__dlq.errors.group", source.group_id.encode()
    yield b"__dlq.errors.delivery.count", b"%d" % letter.delivery_count
    yield b"__dlq.errors.message", REJECTED if letter.is_rejected else DELIVERED_TOO_OFTEN
