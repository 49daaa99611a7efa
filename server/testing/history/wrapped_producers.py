"""Producers of kafka-python, aiokafka and confluent-kafka that note what is sent, and what becomes of it."""

import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Self

from ottla.server.testing.history.observed import Observations, ProducerLog, SendingLog
from ottla.server.testing.history.wrappers import Wrapped, as_bytes, offset_of, setting

ALL = -1
ACKS: dict[Any, int] = {"all": ALL, None: ALL}
UNKNOWN_PARTITION = -1
ORDER = ("value", "key", "partition", "callback", "on_delivery", "timestamp", "headers")
SERIALIZING_ORDER = ("key", "value", "partition", "on_delivery", "timestamp", "headers")
"""Parameters of `produce` behind the topic: of confluent-kafka's Producer, and of its SerializingProducer."""


class _Producer(Wrapped):
    """Parts that all producers have."""

    default_idempotent = False

    def __init__(
        self, history: Observations, client: Any, name: str, *, idempotent: bool | None, acks: int | None
    ) -> None:
        super().__init__(client)
        self._history = history
        self._name = name
        self._given = idempotent, acks
        self._made: ProducerLog | None = None

    @property
    def _log(self) -> ProducerLog:
        # Settings of a client may be read when it has started.
        if self._made is None:
            self._made = self._history.producer_began(self._name, idempotent=self._is_idempotent(), acks=self._acks())
        return self._made

    def _is_idempotent(self) -> bool:
        if self._given[0] is not None:
            return self._given[0]
        found = setting(self._client, "enable_idempotence", "_txn_manager")
        return self.default_idempotent if found is None else bool(found)

    def _acks(self) -> int:
        found: Any = self._given[1]
        if found is None:
            found = setting(self._client, "acks", "_acks")
        return ACKS[found] if found in ACKS else int(found)

    def _sent(self, topic: str, value: Any, key: Any, partition: int | None) -> SendingLog:
        data = as_bytes(value, self._serializer("value", topic))
        if not isinstance(value, bytes):
            # A consumer may give the object back, or the bytes.
            self._history.same_value(as_bytes(value), data)
        return self._log.sent(topic, partition, data, as_bytes(key, self._serializer("key", topic)))

    def _serializer(self, part: str, topic: str) -> Callable[[Any], Any] | None:
        """Return the client's serializer of a record's value or key as a function; None if there is none."""
        return _function(setting(self._client, f"{part}_serializer", f"_{part}_serializer"))

    def _offsets_added(self, offsets: Mapping[Any, Any] | Iterable[Any], group: Any) -> None:
        name = group if isinstance(group, str) else getattr(group, "group_id", None)
        if callable(name):
            name = name()
        if not isinstance(name, str):
            return
        pairs = offsets.items() if isinstance(offsets, Mapping) else [(each, each.offset) for each in offsets]
        for place, offset in pairs:
            self._log.offset_added(name, place.topic, place.partition, offset_of(offset))


def _exception_under_way() -> BaseException | None:
    """Return the exception with which confluent-kafka calls back, so that calls of built-in functions fail; this one ends that."""
    try:
        time.monotonic()
    except SystemError as error:
        return error.__cause__
    return None


def _function(serializer: Any) -> Callable[[Any], Any] | None:
    """Return a serializer as a function; kafka-python also takes objects with a method `serialize`."""
    method = getattr(serializer, "serialize", None)
    if method is None:
        return serializer if callable(serializer) else None
    code = getattr(getattr(method, "__func__", method), "__code__", None)
    count = 1 if code is None else code.co_argcount - 1
    # A version of the library gives the topic before the value, a later one also headers between them.
    before: list[Any] = ["", []][: max(0, count - 1)]
    return lambda value: method(*before, value)


class _SyncTransactions(_Producer):
    """Transactions of clients that wait in their methods."""

    def begin_transaction(self) -> None:
        self._client.begin_transaction()
        self._log.transaction_began()

    def commit_transaction(self, *arguments: Any, **options: Any) -> Any:
        return self._end(True, self._client.commit_transaction, *arguments, **options)

    def abort_transaction(self, *arguments: Any, **options: Any) -> Any:
        return self._end(False, self._client.abort_transaction, *arguments, **options)

    def _end(self, commit: bool, end: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._log.end_asked(commit)
        result = end(*arguments, **options)
        self._log.ended(commit)
        return result

    def send_offsets_to_transaction(self, offsets: Any, group: Any, *arguments: Any, **options: Any) -> Any:
        self._offsets_added(offsets, group)
        return self._client.send_offsets_to_transaction(offsets, group, *arguments, **options)


class KafkaPythonProducer(_SyncTransactions):
    """Producer of kafka-python."""

    default_idempotent = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._client.close()

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        **options: Any,
    ) -> Any:
        sending = self._sent(topic, value, key, partition)
        try:
            future = self._client.send(topic, value=value, key=key, headers=headers, partition=partition, **options)
        except Exception as error:
            sending.failed(type(error).__name__, may_be_written=False)
            raise
        future.add_callback(lambda found: sending.acknowledged(found.offset, found.partition))
        future.add_errback(lambda error: sending.failed(type(error).__name__))
        return future


class ConfluentProducer(_SyncTransactions):
    """Producer of confluent-kafka."""

    def produce(self, topic: str, *arguments: Any, **options: Any) -> Any:
        names = SERIALIZING_ORDER if hasattr(self._client, "_value_serializer") else ORDER
        given = dict(zip(names, arguments, strict=False)) | options
        theirs = [given.pop(name, None) for name in ("on_delivery", "callback")]
        partition = given.get("partition", UNKNOWN_PARTITION)
        try:
            sending = self._sent(topic, given.get("value"), given.get("key"), None if partition < 0 else partition)
        except Exception:  # noqa: BLE001 - of a serializer: the client raises it in its own way
            return self._client.produce(topic, *arguments, **options)

        def delivered(error: Any, message: Any) -> None:
            under_way = _exception_under_way()
            if error is None:
                sending.acknowledged(message.offset(), message.partition())
            else:
                sending.failed(error.name())
            if call := theirs[0] or theirs[1]:
                call(error, message)
            if under_way is not None:
                raise under_way

        try:
            return self._client.produce(topic, **given, on_delivery=delivered)
        except BaseException as error:
            sending.failed(type(error).__name__, may_be_written=False)
            raise

    def _serializer(self, part: str, topic: str) -> Callable[[Any], Any] | None:
        serialize = getattr(self._client, f"_{part}_serializer", None)
        if serialize is None:
            return None
        from confluent_kafka.serialization import MessageField, SerializationContext

        field = MessageField(part)
        return lambda each: serialize(each, SerializationContext(topic, field))

    def __len__(self) -> int:
        return len(self._client)


class AiokafkaProducer(_Producer):
    """Producer of aiokafka."""

    async def __aenter__(self) -> Self:
        await self._client.start()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._client.stop()

    def _acks(self) -> int:
        found: Any = self._given[1]
        if found is None:
            found = getattr(getattr(self._client, "_sender", None), "_acks", None)
        return ACKS[found] if found in ACKS else int(found)

    async def send(
        self, topic: str, value: Any = None, key: Any = None, partition: int | None = None, **options: Any
    ) -> Any:
        sending = self._sent(topic, value, key, partition)
        try:
            future = await self._client.send(topic, value=value, key=key, partition=partition, **options)
        except Exception as error:
            sending.failed(type(error).__name__, may_be_written=False)
            raise
        future.add_done_callback(lambda done: _conclude(sending, done))
        return future

    async def send_and_wait(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> Any:
        return await (await self.send(topic, value, key, **options))

    async def begin_transaction(self) -> None:
        await self._client.begin_transaction()
        self._log.transaction_began()

    async def commit_transaction(self) -> None:
        self._log.end_asked(True)
        await self._client.commit_transaction()
        self._log.ended(True)

    async def abort_transaction(self) -> None:
        self._log.end_asked(False)
        await self._client.abort_transaction()
        self._log.ended(False)

    async def send_offsets_to_transaction(self, offsets: Any, group: Any) -> Any:
        self._offsets_added(offsets, group)
        return await self._client.send_offsets_to_transaction(offsets, group)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        await self.begin_transaction()
        try:
            yield self
        except BaseException:
            if not self._client._txn_manager.is_fatal_error():  # as aiokafka itself does
                await self.abort_transaction()
            raise
        await self.commit_transaction()


def _conclude(sending: SendingLog, done: Any) -> None:
    """Note what an asyncio future holds."""
    error = None if done.cancelled() else done.exception()
    if done.cancelled():
        sending.failed("cancelled")
    elif error is not None:
        sending.failed(type(error).__name__)
    else:
        found = done.result()
        sending.acknowledged(found.offset, found.partition)
