"""A history from requests and their answers, for clients in any language.

    history = History()
    tell(history, exchanges)      # of a wire tap: `exchanges_of(kafka.wire.requests())`
    history.check()

A producer is known by its id and epoch, or by its connection if it is not idempotent; a batch that is sent again has the same
sequence number. A consumer is a connection that fetches: where it goes on is in its requests, so that it may go anywhere.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.server.testing.history.history import UNKNOWN_OFFSET
from ottla.server.testing.history.observed import ConsumerLog, Observations, ProducerLog, SendingLog
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import Record, iter_batches

Place = tuple[str, int]
NameOf = Callable[[bytes], str | None]
NO_TOPIC_ID = bytes(16)
ALL = -1


def shown_records(records: bytes, aborted: Sequence[tuple[int, int]], position: int) -> tuple[list[Record], int]:
    """Return the records of a fetch from `position` on, and where to go on.

    `aborted`: first offsets and producer ids of transactions whose records are left out, as a response to a read_committed
    fetch names them.
    """
    found: list[Record] = []
    hidden: set[int] = set()
    left = sorted(aborted)
    for header, start, _ in iter_batches(records):
        while left and left[0][0] < header.next_offset:
            hidden.add(left.pop(0)[1])
        if header.is_control:
            hidden.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in hidden):
            found += [each for each in decode_records(records, start) if each.offset >= position]
        position = max(position, header.next_offset)
    return found, position


class Exchange(NamedTuple):
    """A request and its answer. `connection`: anything that tells connections apart. `answered_at` and `response`: None if there is none."""

    asked_at: float
    answered_at: float | None
    client_id: str | None
    connection: Any
    request: Any
    response: Any
    name_of: NameOf = lambda topic_id: None
    """Returns the name of a topic id, None if it is not known."""


def exchanges_of(requests: Iterable[Any]) -> Iterator[Exchange]:
    """Return the exchanges of a wire tap's requests; those that it has not kept whole are left out."""
    from ottla.server.testing.errors import LabError

    for each in requests:
        try:
            request, response = each.request, each.response
        except LabError:
            continue
        if not each.left_out and not each.is_of_broker:
            connection = each.connection.number
            yield Exchange(each.time, each.answer_time, each.client_id, connection, request, response, each.name_of)


def tell(history: Observations, exchanges: Iterable[Exchange], offsets_retention_s: float = math.inf) -> None:
    """Note what exchanges say, in the order of their times. `offsets_retention_s`: so long a group has its offsets at least."""
    teller = _Teller(history, offsets_retention_s)
    moments: list[tuple[float, int, bool, Exchange]] = []
    for number, each in enumerate(exchanges):
        moments.append((each.asked_at, number, False, each))
        if each.answered_at is not None and each.response is not None:
            moments.append((each.answered_at, number, True, each))
    # Of one moment the requests come first: whoever was shown what they caused was shown it later.
    for at, number, is_answer, each in sorted(moments, key=lambda moment: (moment[0], moment[2], moment[1])):
        with history.at(at):
            (teller.answered if is_answer else teller.asked)(number, each)


class _Producer:
    """A producer by its id and epoch: its log, and its batches by partition, sequence number and hash of the values.

    A producer may give the sequence number of a batch that was refused to another one.
    """

    def __init__(self, log: ProducerLog) -> None:
        self.log = log
        self.is_in_transaction = False
        self.is_ending = False  # the end of its transaction is asked for, so that the next batch belongs to another one
        self.batches: dict[tuple[Place, int, int], Sequence[SendingLog]] = {}


class _Teller:
    """Notes of requests and answers, of the kinds in the tables at the end of `__init__`."""

    def __init__(self, history: Observations, offsets_retention_s: float) -> None:
        self._history = history
        self._offsets_retention_s = offsets_retention_s
        self._producers: dict[Any, _Producer] = {}
        self._transactional: dict[str, _Producer] = {}
        self._epochs: dict[int, int] = {}  # of producer ids, the latest one that a transactional id was given
        self._readers: dict[tuple[Any, bool], ConsumerLog] = {}
        self._groups: dict[str, ConsumerLog] = {}
        self._committed: dict[str, dict[Place, float]] = {}  # when the latest commit was asked for
        self._changed: dict[
            str, tuple[float, int]
        ] = {}  # when the latest commit of a group was answered, and its number
        self._positions: dict[tuple[Any, bool, Place], int] = {}
        self._fetching: dict[tuple[Any, Place], int] = {}
        self._ending: dict[int, tuple[_Producer, int | None]] = {}
        self._sent: dict[int, list[tuple[Place, Sequence[SendingLog]]]] = {}
        self._asked: dict[type, Callable[[int, Exchange], None]] = {
            ProduceRequest: self._produce,
            EndTxnRequest: self._end,
            FetchRequest: self._fetch,
            DeleteTopicsRequest: self._delete_topics,
            OffsetCommitRequest: self._commit,
            TxnOffsetCommitRequest: self._add_offsets,
        }
        self._answered: dict[type, Callable[[int, Exchange], None]] = {
            ProduceRequest: self._produced,
            EndTxnRequest: self._ended,
            FetchRequest: self._fetched,
            OffsetCommitRequest: self._committed_offsets,
            OffsetFetchRequest: self._fetched_offsets,
            InitProducerIdRequest: self._initialized,
            DeleteGroupsRequest: self._deleted_groups,
            OffsetDeleteRequest: self._deleted_offsets,
            DeleteTopicsRequest: self._deleted_topics,
        }

    def asked(self, number: int, exchange: Exchange) -> None:
        if (take := self._asked.get(type(exchange.request))) is not None:
            take(number, exchange)

    def answered(self, number: int, exchange: Exchange) -> None:
        if (take := self._answered.get(type(exchange.request))) is not None:
            take(number, exchange)

    # ------------------------------------------------------------------ producing

    def _produce(self, number: int, exchange: Exchange) -> None:
        for place, part in _parts(exchange, exchange.request.topic_data, "partition_data", "index"):
            data = bytes(part.records or b"")
            try:
                batches = [(header, decode_records(data, start)) for header, start, _ in iter_batches(data)]
            except (KafkaError, ProtocolViolation):  # the broker refuses it, too
                continue
            for header, records in batches:
                sendings = self._batch(place, header, records, exchange)
                self._sent.setdefault(number, []).append((place, sendings))

    def _batch(self, place: Place, header: Any, records: Iterable[Any], exchange: Exchange) -> Sequence[SendingLog]:
        producer = self._producer(header, exchange)
        records = list(records)
        key = place, header.base_sequence, hash(tuple(each.value for each in records))
        known = producer.batches.get(key) if header.producer_id >= 0 else None
        if known is not None:
            return known
        if header.producer_epoch < self._epochs.get(header.producer_id, header.producer_epoch):
            producer.log.fenced()
        if header.is_transactional:
            self._begin(producer, exchange.request.transactional_id)
        sendings = [producer.log.sent(*place, each.value, each.key) for each in records]
        producer.batches[key] = sendings
        return sendings

    def _producer(self, owner: Any, exchange: Exchange) -> _Producer:
        """Return the producer of a batch or a request. `owner`: has its id and epoch."""
        is_idempotent = owner.producer_id >= 0
        key = (owner.producer_id, owner.producer_epoch) if is_idempotent else exchange.connection
        if key not in self._producers:
            whose = f"id {key[0]}, epoch {key[1]}" if is_idempotent else f"connection {exchange.connection}"
            acks = getattr(exchange.request, "acks", ALL)
            log = self._history.producer_began(f"{exchange.client_id} ({whose})", idempotent=is_idempotent, acks=acks)
            self._producers[key] = _Producer(log)
        return self._producers[key]

    def _begin(self, producer: _Producer, transactional_id: str | None) -> None:
        """Begin a transaction unless one is open."""
        if producer.is_ending or not producer.is_in_transaction:
            producer.is_in_transaction, producer.is_ending = True, False
            producer.log.transaction_began()
            if transactional_id:
                self._transactional[transactional_id] = producer

    def _produced(self, number: int, exchange: Exchange) -> None:
        answers = dict(_parts(exchange, exchange.response.responses, "partition_responses", "index"))
        for place, sendings in self._sent.pop(number, ()):
            answer = answers.get(place)
            if answer is None or answer.error_code not in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                continue  # it may come again, and an earlier attempt may have been written
            is_known = not answer.error_code and answer.base_offset >= 0
            for index, each in enumerate(sendings):
                each.acknowledged(answer.base_offset + index if is_known else None)

    # ------------------------------------------------------------------ transactions

    def _of(self, request: Any) -> _Producer | None:
        return self._producers.get((request.producer_id, request.producer_epoch))

    def _initialized(self, number: int, exchange: Exchange) -> None:
        key, response = exchange.request.transactional_id, exchange.response
        if key is None or response.error_code:
            return
        self._epochs[response.producer_id] = response.producer_epoch
        before = self._transactional.pop(key, None)
        if before is not None and self._producers.get((response.producer_id, response.producer_epoch)) is not before:
            before.log.fenced()

    def _end(self, number: int, exchange: Exchange) -> None:
        producer = self._of(exchange.request)
        if producer is not None and producer.is_in_transaction:
            producer.is_ending = True
            self._ending[number] = producer, producer.log.transaction
            producer.log.end_asked(exchange.request.committed)

    def _ended(self, number: int, exchange: Exchange) -> None:
        producer, transaction = self._ending.pop(number, (None, None))
        if producer is None or transaction is None or exchange.response.error_code:
            return
        producer.log.ended(exchange.request.committed, transaction)
        if producer.log.transaction is None:
            producer.is_in_transaction = producer.is_ending = False

    def _add_offsets(self, number: int, exchange: Exchange) -> None:
        producer = self._producer(exchange.request, exchange)
        self._begin(producer, exchange.request.transactional_id)
        for place, offset in _offsets(exchange):
            self._committed.setdefault(exchange.request.group_id, {})[place] = exchange.asked_at
            producer.log.offset_added(exchange.request.group_id, *place, offset)

    # ------------------------------------------------------------------ consuming

    def _fetch(self, number: int, exchange: Exchange) -> None:
        if _is_of_replica(exchange.request):
            return
        if exchange.request.session_epoch in (0, -1):  # a new session, or none: all partitions are named
            for key in [each for each in self._fetching if each[0] == exchange.connection]:
                del self._fetching[key]
        for place, part in _parts(exchange, exchange.request.topics, "partitions", "partition"):
            self._fetching[exchange.connection, place] = part.fetch_offset

    def _fetched(self, number: int, exchange: Exchange) -> None:
        if _is_of_replica(exchange.request):
            return
        committed_only = exchange.request.isolation_level == 1
        for place, part in _parts(exchange, exchange.response.responses, "partitions", "partition_index"):
            asked = self._fetching.get((exchange.connection, place))
            if asked is not None and not part.error_code:
                self._take(exchange, committed_only, place, asked, part)

    def _take(self, exchange: Exchange, committed_only: bool, place: Place, asked: int, part: Any) -> None:
        aborted = [(each.first_offset, each.producer_id) for each in part.aborted_transactions or ()]
        try:
            records, position = shown_records(bytes(part.records or b""), aborted if committed_only else [], asked)
        except (KafkaError, ProtocolViolation):
            return
        reader = self._reader(exchange, committed_only)
        key = (exchange.connection, committed_only, place)
        if self._positions.get(key) != asked:
            reader.began(*place, asked)
        self._positions[key] = position
        if position > asked:
            reader.read(*place, [(each.offset, each.value) for each in records], position)

    def _reader(self, exchange: Exchange, committed_only: bool) -> ConsumerLog:
        key = (exchange.connection, committed_only)
        if key not in self._readers:
            name = f"{exchange.client_id} (connection {exchange.connection})"
            self._readers[key] = self._history.consumer_began(name, committed_only=committed_only)
        return self._readers[key]

    # ------------------------------------------------------------------ offsets of groups

    def _group(self, name: str) -> ConsumerLog:
        if name not in self._groups:
            self._groups[name] = self._history.consumer_began(f"members of {name}", name)
        return self._groups[name]

    def _commit(self, number: int, exchange: Exchange) -> None:
        group = exchange.request.group_id
        offsets = dict(_offsets(exchange))
        self._committed.setdefault(group, {}).update(dict.fromkeys(offsets, exchange.asked_at))
        self._group(group).offsets_sent(offsets)

    def _committed_offsets(self, number: int, exchange: Exchange) -> None:
        parts = _parts(exchange, exchange.response.topics, "partitions", "partition_index")
        codes = {place: part.error_code for place, part in parts}
        self._changed[exchange.request.group_id] = _answered_at(exchange), number
        for place, offset in _offsets(exchange):
            if codes.get(place) == 0:
                self._group(exchange.request.group_id).offsets_committed({place: offset})

    def _fetched_offsets(self, number: int, exchange: Exchange) -> None:
        response = exchange.response
        if response.groups:
            answers = [(each.group_id, each.error_code, each.topics) for each in response.groups]
        else:
            answers = [(exchange.request.group_id, response.error_code, response.topics)]
        for group, code, topics in answers:
            changed_at, change = self._changed.get(group, (exchange.asked_at, -1))
            # The answer may be older than a commit that was under way together. The clock tells milliseconds.
            if code or changed_at > exchange.asked_at or change > number:
                continue
            for place, part in _parts(exchange, topics, "partitions", "partition_index"):
                # Other offsets may be older than what was seen here.
                committed_at = self._committed.get(group, {}).get(place)
                if part.error_code or committed_at is None:
                    continue
                is_kept = _answered_at(exchange) - committed_at < self._offsets_retention_s
                if part.committed_offset >= 0 or is_kept:
                    offset = None if part.committed_offset < 0 else part.committed_offset
                    self._group(group).offset_fetched(*place, offset)

    # ------------------------------------------------------------------ what is deleted

    def _deleted_groups(self, number: int, exchange: Exchange) -> None:
        for each in exchange.response.results:
            if not each.error_code:
                self._forget_offsets(each.group_id, list(self._committed.get(each.group_id, ())))

    def _deleted_offsets(self, number: int, exchange: Exchange) -> None:
        parts = _parts(exchange, exchange.response.topics, "partitions", "partition_index")
        self._forget_offsets(exchange.request.group_id, [place for place, part in parts if not part.error_code])

    def _forget_offsets(self, group: str, places: Iterable[Place]) -> None:
        for place in places:
            if self._committed.get(group, {}).pop(place, None) is not None:
                self._group(group).offsets_sent({place: UNKNOWN_OFFSET})
                self._group(group).offsets_committed({place: UNKNOWN_OFFSET})

    def _delete_topics(self, number: int, exchange: Exchange) -> None:
        if exchange.response is None:  # nobody knows when
            names = [_name_of(exchange, each) for each in exchange.request.topics]
            for topic in (*filter(None, names), *exchange.request.topic_names):
                self._history.topic_deleted(topic, is_sure=False)

    def _deleted_topics(self, number: int, exchange: Exchange) -> None:
        for each in exchange.response.responses:
            topic = _name_of(exchange, each)
            if topic is None or each.error_code not in (0, ErrorCode.REQUEST_TIMED_OUT):
                continue
            self._history.topic_deleted(topic)
            self._positions = {key: offset for key, offset in self._positions.items() if key[2][0] != topic}
            for group, places in self._committed.items():
                self._committed[group] = {place: at for place, at in places.items() if place[0] != topic}
            for producer in self._producers.values():
                producer.batches = {key: found for key, found in producer.batches.items() if key[0][0] != topic}


def _answered_at(exchange: Exchange) -> float:
    assert exchange.answered_at is not None
    return exchange.answered_at


def _parts(exchange: Exchange, topics: Iterable[Any], parts: str, index: str) -> Iterator[tuple[Place, Any]]:
    """Return places and partitions of a message's topics, of those whose names are known.

    `parts` and `index`: the fields that hold a topic's partitions, and a partition's number.
    """
    for topic in topics:
        if (name := _name_of(exchange, topic)) is not None:
            for part in getattr(topic, parts):
                yield (name, getattr(part, index)), part


def _name_of(exchange: Exchange, topic: Any) -> str | None:
    """Return the name of a topic in a message; None if nobody knows it."""
    name = getattr(topic, "name", "") or getattr(topic, "topic", "")
    return name or exchange.name_of(bytes(getattr(topic, "topic_id", NO_TOPIC_ID)))


def _offsets(exchange: Exchange) -> Iterator[tuple[Place, int]]:
    """Return the places and offsets of a commit."""
    for place, part in _parts(exchange, exchange.request.topics, "partitions", "partition_index"):
        yield place, part.committed_offset


def _is_of_replica(request: Any) -> bool:
    return bool(request.replica_id >= 0 or request.replica_state.replica_id >= 0)
