"""Consumers of kafka-python, aiokafka and confluent-kafka that note what they are given and what they commit.

A consumer that goes back breaks a promise, unless it was set back, or got the partition anew from its group. Of the latter the
rebalance listener tells, which is given to the client in `subscribe`. A client that was subscribed before it was wrapped tells
its generation (kafka-python, aiokafka), or else every step back or ahead counts as a new assignment.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Self

from ottla.server.testing.history.observed import ConsumerLog, Observations
from ottla.server.testing.history.wrappers import Wrapped, as_bytes, offset_of, setting

Place = tuple[str, int]
READ_COMMITTED = ("read_committed", 1)


class _Consumer(Wrapped):
    """Parts that all consumers have."""

    default_committed_only = False

    def __init__(
        self, history: Observations, client: Any, name: str, *, group: str | None, committed_only: bool | None
    ) -> None:
        super().__init__(client)
        self._group = group or setting(client, "group_id", "_group_id")
        if committed_only is None:
            level = setting(client, "isolation_level", "_isolation_level")
            committed_only = self.default_committed_only if level is None else level in READ_COMMITTED
        self._log: ConsumerLog = history.consumer_began(name, self._group, committed_only=committed_only)
        self._positions: dict[Place, int] = {}
        self._is_told_of_assignments = False
        self._generation: Any = None

    # ------------------------------------------------------------------ records

    def _take(self, records: Iterable[tuple[Place, int, Any]]) -> None:
        """Note records that the client gives to the test, as (place, offset, value)."""
        by_place: dict[Place, list[tuple[int, bytes | None]]] = defaultdict(list)
        for place, offset, value in records:
            by_place[place].append((offset, as_bytes(value)))
        self._look_at_generation()
        for place, found in by_place.items():
            position = self._positions.get(place)
            if position is None or (found[0][0] != position and self._may_be_assigned_anew()):
                self._log.began(*place, found[0][0])
            self._positions[place] = found[-1][0] + 1
            self._log.read(*place, found, self._positions[place])

    def _look_at_generation(self) -> None:
        """Forget positions if the group has had another generation."""
        if self._group is None or self._is_told_of_assignments:
            return
        generation = self._generation_now()
        if generation != self._generation:
            self._generation = generation
            self._positions.clear()

    def _generation_now(self) -> Any:
        """Return the generation of the consumer's group; None if the client does not tell it."""
        ask = getattr(self._client, "group_metadata", None)
        return None if ask is None else getattr(ask(), "generation_id", None)

    def _may_be_assigned_anew(self) -> bool:
        return self._group is not None and not self._is_told_of_assignments and self._generation is None

    def _forget(self, places: Iterable[Any]) -> None:
        for each in places:
            self._positions.pop((each.topic, each.partition), None)

    def _set(self, place: Any, offset: int) -> None:
        self._positions[place.topic, place.partition] = offset
        self._log.began(place.topic, place.partition, offset)

    # ------------------------------------------------------------------ commits

    def _chosen(self, offsets: Any) -> dict[Place, int]:
        """Return the offsets that a call commits, as far as they are known."""
        if isinstance(offsets, Mapping):
            return {(each.topic, each.partition): offset_of(offset) for each, offset in offsets.items()}
        if offsets is not None:
            return {(each.topic, each.partition): int(each.offset) for each in offsets}
        return dict(self._positions)

    def _committing(self, offsets: Any) -> dict[Place, int]:
        chosen = {} if self._group is None else self._chosen(offsets)
        self._log.offsets_sent(chosen)
        return chosen


class KafkaPythonConsumer(_Consumer):
    """Consumer of kafka-python."""

    def poll(self, *arguments: Any, **options: Any) -> Any:
        found = self._client.poll(*arguments, **options)
        for each, records in found.items():
            self._take(((each.topic, each.partition), record.offset, record.value) for record in records)
        return found

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        record = next(self._client)
        self._take([((record.topic, record.partition), record.offset, record.value)])
        return record

    def subscribe(self, topics: Any = (), pattern: Any = None, listener: Any = None) -> Any:
        self._is_told_of_assignments = True
        return self._client.subscribe(topics, pattern, _listener_of("kafka", listener, self._forget))

    def assign(self, partitions: Any) -> Any:
        self._positions.clear()
        return self._client.assign(partitions)

    def seek(self, partition: Any, offset: Any) -> Any:
        result = self._client.seek(partition, offset)
        self._set(partition, offset_of(offset))
        return result

    def seek_to_beginning(self, *partitions: Any) -> Any:
        self._forget(partitions or self._client.assignment())
        return self._client.seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: Any) -> Any:
        self._forget(partitions or self._client.assignment())
        return self._client.seek_to_end(*partitions)

    def commit(self, offsets: Any = None, *arguments: Any, **options: Any) -> Any:
        chosen = self._committing(offsets)
        try:
            result = self._client.commit(offsets, *arguments, **options)
        except Exception as error:
            self._log.offsets_failed(chosen, type(error).__name__)
            raise
        self._log.offsets_committed(chosen)
        return result

    def commit_async(self, offsets: Any = None, *arguments: Any, **options: Any) -> Any:
        self._committing(offsets)
        return self._client.commit_async(offsets, *arguments, **options)


class ConfluentConsumer(_Consumer):
    """Consumer of confluent-kafka."""

    default_committed_only = True

    def poll(self, *arguments: Any, **options: Any) -> Any:
        message = self._client.poll(*arguments, **options)
        self._take_messages([message])
        return message

    def consume(self, *arguments: Any, **options: Any) -> Any:
        messages = self._client.consume(*arguments, **options)
        self._take_messages(messages)
        return messages

    def _take_messages(self, messages: Iterable[Any]) -> None:
        self._take(
            ((message.topic(), message.partition()), message.offset(), message.value())
            for message in messages
            if message is not None and message.error() is None
        )

    def subscribe(self, topics: Any, on_assign: Any = None, on_revoke: Any = None, on_lost: Any = None) -> Any:
        def assigned(consumer: Any, partitions: Any) -> None:
            self._forget(partitions)
            if on_assign is not None:
                on_assign(consumer, partitions)

        self._is_told_of_assignments = True
        others = {"on_revoke": on_revoke, "on_lost": on_lost}
        given = {name: call for name, call in others.items() if call is not None}
        return self._client.subscribe(topics, on_assign=assigned, **given)

    def assign(self, partitions: Any) -> Any:
        self._positions.clear()
        return self._client.assign(partitions)

    def incremental_assign(self, partitions: Any) -> Any:
        self._forget(partitions)
        return self._client.incremental_assign(partitions)

    def seek(self, partition: Any) -> Any:
        result = self._client.seek(partition)
        if partition.offset >= 0:
            self._set(partition, partition.offset)
        else:
            self._forget([partition])
        return result

    def commit(self, message: Any = None, offsets: Any = None, asynchronous: bool = True) -> Any:
        given: dict[str, Any] = {}
        if message is not None:
            given, known = {"message": message}, {(message.topic(), message.partition()): message.offset() + 1}
        elif offsets is not None:
            given, known = {"offsets": offsets}, self._chosen(offsets)
        else:
            known = dict(self._positions)
        self._log.offsets_sent(known)
        try:
            result = self._client.commit(**given, asynchronous=asynchronous)
        except Exception as error:
            self._log.offsets_failed(known, type(error).__name__)
            raise
        if not asynchronous:
            self._log.offsets_committed({place: offset for place, offset in known.items() if _is_good(result, place)})
        return result


def _is_good(answers: Any, place: Place) -> bool:
    """Return True if the answers to a commit name a place without an error."""
    return any((each.topic, each.partition) == place and each.error is None for each in answers or ())


class AiokafkaConsumer(_Consumer):
    """Consumer of aiokafka."""

    def _generation_now(self) -> Any:
        return getattr(getattr(self._client, "_coordinator", None), "generation", None)

    async def __aenter__(self) -> Self:
        await self._client.start()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._client.stop()

    async def getone(self, *partitions: Any) -> Any:
        record = await self._client.getone(*partitions)
        self._take([((record.topic, record.partition), record.offset, record.value)])
        return record

    async def getmany(self, *partitions: Any, **options: Any) -> Any:
        found = await self._client.getmany(*partitions, **options)
        for each, records in found.items():
            self._take(((each.topic, each.partition), record.offset, record.value) for record in records)
        return found

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        record = await anext(self._client)
        self._take([((record.topic, record.partition), record.offset, record.value)])
        return record

    def subscribe(self, topics: Any = (), pattern: Any = None, listener: Any = None) -> Any:
        self._is_told_of_assignments = True
        return self._client.subscribe(topics, pattern, _listener_of("aiokafka", listener, self._forget))

    def assign(self, partitions: Any) -> Any:
        self._positions.clear()
        return self._client.assign(partitions)

    def seek(self, partition: Any, offset: int) -> Any:
        result = self._client.seek(partition, offset)
        self._set(partition, offset)
        return result

    async def seek_to_beginning(self, *partitions: Any) -> Any:
        self._forget(partitions or self._client.assignment())
        return await self._client.seek_to_beginning(*partitions)

    async def seek_to_end(self, *partitions: Any) -> Any:
        self._forget(partitions or self._client.assignment())
        return await self._client.seek_to_end(*partitions)

    async def seek_to_committed(self, *partitions: Any) -> Any:
        self._forget(partitions or self._client.assignment())
        return await self._client.seek_to_committed(*partitions)

    async def commit(self, offsets: Any = None) -> Any:
        chosen = self._committing(offsets)
        try:
            result = await self._client.commit(offsets)
        except Exception as error:
            self._log.offsets_failed(chosen, type(error).__name__)
            raise
        self._log.offsets_committed(chosen)
        return result


def _listener_of(library: str, theirs: Any, forget: Callable[[Iterable[Any]], None]) -> Any:
    """Return a rebalance listener of a library that forgets positions first, then calls the test's own."""
    import importlib

    base = importlib.import_module(library).ConsumerRebalanceListener

    def on_partitions_assigned(self: Any, partitions: Any) -> Any:
        forget(partitions)
        return None if theirs is None else theirs.on_partitions_assigned(partitions)

    def on_partitions_revoked(self: Any, partitions: Any) -> Any:
        return None if theirs is None else theirs.on_partitions_revoked(partitions)

    methods: dict[str, Any] = {
        "on_partitions_assigned": on_partitions_assigned,
        "on_partitions_revoked": on_partitions_revoked,
    }
    if hasattr(theirs, "on_partitions_lost"):
        methods["on_partitions_lost"] = lambda self, partitions: theirs.on_partitions_lost(partitions)
    return type("Listener", (base,), methods)()
