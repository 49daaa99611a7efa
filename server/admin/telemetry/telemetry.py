"""GetTelemetrySubscriptions and PushTelemetry, answered as Kafka's ClientMetricsManager does.

A request finds the instance that it names, or makes it, by matching the client against all subscriptions. If the subscriptions
have changed since, the instance is created again first. Then it is judged in Kafka's order (`subscriptions.py` says what is in
time):

    push   reserved id INVALID_REQUEST, after the last push INVALID_REQUEST, not in time THROTTLING_QUOTA_EXCEEDED,
           other subscription id UNKNOWN_SUBSCRIPTION_ID, unknown codec UNSUPPORTED_COMPRESSION_TYPE,
           longer than telemetry.max.bytes TELEMETRY_TOO_LARGE, unreadable for the receiver INVALID_RECORD

A push is also THROTTLING_QUOTA_EXCEEDED if too many others wait for the receiver, which reads one after the other: waiting pushes
take memory. An owner of clients (a principal that has logged in, or else an address) may have as much waiting as is free. So one
alone has half of the room, two a third each, and each newcomer finds the same.

An instance belongs to the principal that it came with first. Another principal that asks with its id is given a new id, and its
pushes are UNKNOWN_SUBSCRIPTION_ID, after which it asks.

As in Kafka INVALID_RECORD also answers a push that becomes too large when it is decompressed, no authorization is needed, and the
broker itself keeps nothing that was pushed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.admin.telemetry.subscriptions import (
    ATTRIBUTE_CHARACTERS_MAX,
    BadMetrics,
    Client,
    Instance,
    Instances,
    Push,
    Subscriptions,
    Wanted,
    is_dear,
    subscription_id,
    wanted_of,
)
from ottla.server.dispatch.context import ANONYMOUS
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from ottla.wire.schema import ZERO_UUID
from ottla.wire.text import uuid_text

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ottla.server.admin.telemetry.subscriptions import Receiver
    from ottla.server.config.repository import ConfigRepository
    from ottla.server.dispatch.context import RequestContext
    from ottla.wire.answers import Worked


class FairLock:
    """Lock that is fair to owners: only one task of each owner waits in the common queue."""

    def __init__(self) -> None:
        self._line = trio.Lock()  # first come, first served
        self._of_owner: dict[str, trio.Lock] = {}

    def __len__(self) -> int:
        """Number of owners that hold the lock or wait."""
        return len(self._of_owner)

    @asynccontextmanager
    async def hold(self, owner: str) -> AsyncIterator[None]:
        """Hold the lock for `owner` during the block."""
        own = self._of_owner.setdefault(owner, trio.Lock())
        try:
            async with own, self._line:
                yield
        finally:
            statistics = own.statistics()
            if not statistics.locked and not statistics.tasks_waiting:
                self._of_owner.pop(owner, None)


logger = logging.getLogger("ottla.telemetry")

ONE_UUID = bytes(15) + b"\1"
RESERVED = (ZERO_UUID, ONE_UUID)
ACCEPTED = (
    Compression.ZSTD,
    Compression.LZ4,
    Compression.GZIP,
    Compression.SNAPPY,
)  # in the order in which Kafka prefers them
BYTES_MAX = 1024 * 1024
"""The default of telemetry.max.bytes, and an upper limit of it: an unauthenticated peer can have so much decompressed and read."""
WAITING_MAX, WAITING_BYTES_MAX = 64, 4 * 1024 * 1024  # pushes at the receiver at a time
SWEEP_S = 10.0

_matching_threads = trio.CapacityLimiter(1)  # of its own: disks keep the threads that all share


class Telemetry:
    """Manager of client metrics. The counters are plain integers, which /metrics reads."""

    def __init__(
        self,
        configs: ConfigRepository,
        receiver: Receiver,
        random_bytes: Callable[[int], bytes],
        clock_ms: Callable[[], int],
    ) -> None:
        self.instances = Instances()
        self._configs, self._receiver = configs, receiver
        self._random_bytes, self._clock_ms = random_bytes, clock_ms
        self._subscriptions = Subscriptions()
        self._seen = -1  # of the changes of subscriptions, the last that was taken up
        self._waiting = Waiting()
        self._matching = FairLock()
        self.unknown_subscriptions = self.throttled = self.taken = self.refused = 0

    def start_in(self, nursery: trio.Nursery) -> None:
        """Start the task that removes expired instances; it ends with the nursery."""
        nursery.start_soon(self._sweep)

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_S)
            self.instances.expire(self._clock_ms())

    @property
    def bytes_max(self) -> int:
        """Maximal size of a push, in bytes."""
        return min(BYTES_MAX, self._configs.current.server.telemetry_max_bytes)

    # ------------------------------------------------------------------ the two requests

    def get(
        self, request: GetTelemetrySubscriptionsRequest, context: RequestContext[Any]
    ) -> Worked[GetTelemetrySubscriptionsResponse]:
        """Answer a GetTelemetrySubscriptions request. Raises KafkaError."""
        instance_id = request.client_instance_id
        if instance_id == ZERO_UUID or self.instances.is_of_another(instance_id, context.principal, context.now_ms):
            instance_id = self._new_id()
        answer = partial(self._subscriptions_of, context.now_ms)
        found = self._instance(instance_id, context)
        return answer(found) if isinstance(found, Instance) else _then(found, answer)

    def _subscriptions_of(self, now_ms: int, instance: Instance) -> GetTelemetrySubscriptionsResponse:
        if not instance.may_get(now_ms):
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return GetTelemetrySubscriptionsResponse(
            error_code=ErrorCode.NONE,
            client_instance_id=instance.instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=list(ACCEPTED),
            push_interval_ms=instance.wanted.interval_ms,
            telemetry_max_bytes=self.bytes_max,
            delta_temporality=True,
            requested_metrics=list(instance.wanted.metrics),
        )

    async def push(self, request: PushTelemetryRequest, context: RequestContext[Any]) -> PushTelemetryResponse:
        """Answer a PushTelemetry request. Raises KafkaError."""
        if request.client_instance_id in RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        now_ms, owner = context.now_ms, _owner(context)
        if self.instances.is_of_another(request.client_instance_id, context.principal, now_ms):
            self.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        found = self._instance(request.client_instance_id, context)
        instance = found if isinstance(found, Instance) else await found
        try:
            self._check_push(request, instance, now_ms)
            if request.metrics:
                await self._hand_over(request, instance, owner)
            instance.last_error = ErrorCode.NONE
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminating = request.terminating
        return PushTelemetryResponse(error_code=ErrorCode.NONE)

    def _check_push(self, request: PushTelemetryRequest, instance: Instance, now_ms: int) -> None:
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(now_ms) and not request.terminating:
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if request.subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if not 0 <= request.compression_type < len(Compression):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self.bytes_max:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)

    async def _hand_over(self, request: PushTelemetryRequest, instance: Instance, owner: str) -> None:
        push = Push(
            instance_id=uuid_text(instance.instance_id),
            owner=owner,
            client=instance.client,
            data=request.metrics,
            compression=Compression(request.compression_type),
            bytes_max=self.bytes_max,
            metrics=instance.wanted.metrics,
            interval_ms=instance.wanted.interval_ms,
        )
        if not self._waiting.has_room(owner, len(push.data)):
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        try:
            with self._waiting.held(owner, len(push.data)):
                await self._receiver.take(push)
        except BadMetrics as error:
            self.refused += 1
            logger.debug("what client instance %s has pushed cannot be read: %s", push.instance_id, error)
            raise KafkaError(ErrorCode.INVALID_RECORD) from None
        self.taken += 1

    # ------------------------------------------------------------------ instances

    def _instance(self, instance_id: bytes, context: RequestContext[Any]) -> Worked[Instance]:
        """Return the client's instance with its wanted metrics; a coroutine if matching them takes long."""
        if self._seen != self._configs.client_metrics_changes:
            self._seen = self._configs.client_metrics_changes
            self._subscriptions.take(self._configs.client_metrics)
        known = self.instances.find(instance_id, context.now_ms)
        version = self._subscriptions.version
        if known is not None and known.version == version:
            return known
        # As in Kafka an instance keeps what was known of its client when it was first seen.
        client = _client(context) if known is None else known.client
        subscriptions = self._subscriptions.all()
        matched = partial(wanted_of, subscriptions, client, uuid_text(instance_id))
        made = partial(self._made, instance_id, client, version, context, context.now_ms)
        return self._in_thread(_owner(context), matched, made) if is_dear(subscriptions) else made(matched())

    async def _in_thread(
        self, owner: str, matched: Callable[[], Wanted], made: Callable[[Wanted], Instance]
    ) -> Instance:
        async with self._matching.hold(owner):
            return made(await trio.to_thread.run_sync(matched, limiter=_matching_threads))

    def _made(
        self,
        instance_id: bytes,
        client: Client,
        version: int,
        context: RequestContext[Any],
        now_ms: int,
        wanted: Wanted,
    ) -> Instance:
        principal = context.principal
        # Another one may have come with the id while this one was matched.
        if self.instances.is_of_another(instance_id, principal, now_ms):
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        instance = Instance(instance_id, principal, client, wanted, subscription_id(wanted, instance_id), version)
        self.instances.put(instance, context, now_ms)
        context.on_close(self.instances.leave)
        return instance

    def _new_id(self) -> bytes:
        while True:
            random = bytearray(self._random_bytes(16))
            # A random UUID of RFC 4122, as Java makes them.
            random[6], random[8] = random[6] & 0x0F | 0x40, random[8] & 0x3F | 0x80
            made = bytes(random)
            if made not in self.instances and not uuid_text(made).startswith("-"):
                return made


class Waiting:
    """Counter of the pushes that wait for the receiver, and of their bytes, by owner."""

    def __init__(self) -> None:
        self._count = self._bytes = 0
        self._count_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()

    def has_room(self, owner: str, size: int) -> bool:
        """Tell whether `owner` may add a push of `size` bytes. Each owner may use as much as is still free."""
        return (
            self._count_of[owner] < WAITING_MAX - self._count
            and self._bytes_of[owner] + size <= WAITING_BYTES_MAX - self._bytes
        )

    @contextmanager
    def held(self, owner: str, size: int) -> Iterator[None]:
        """Count a push of `size` bytes during the block."""
        self._add(owner, 1, size)
        try:
            yield
        finally:
            self._add(owner, -1, -size)

    def _add(self, owner: str, count: int, size: int) -> None:
        self._count += count
        self._bytes += size
        self._count_of[owner] += count
        self._bytes_of[owner] += size
        if not self._count_of[owner]:
            del self._count_of[owner], self._bytes_of[owner]


async def _then(
    found: Coroutine[Any, Any, Instance], answer: Callable[[Instance], GetTelemetrySubscriptionsResponse]
) -> GetTelemetrySubscriptionsResponse:
    return answer(await found)


def _owner(context: RequestContext[Any]) -> str:
    """Return the client's principal; for an anonymous client its address, which never looks like a principal."""
    return context.client_host if context.principal == ANONYMOUS else context.principal


def _client(context: RequestContext[Any]) -> Client:
    port = context.client_port
    # Whoever connects chooses these texts, and many instances are remembered. What is cut is still too long to be matched.
    client_id, name, version = (
        each[: ATTRIBUTE_CHARACTERS_MAX + 1] for each in (context.client_id, *context.client_software)
    )
    return Client(client_id, name, version, context.client_host.removeprefix("/"), "" if port is None else str(port))
