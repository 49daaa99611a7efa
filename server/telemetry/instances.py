"""The instances of clients that take part (Kafka's ClientMetricsInstance and the cache of ClientMetricsManager).

Theory: what an instance may do at a time
    get      if since the last get or push an interval has passed. Else THROTTLING_QUOTA_EXCEEDED, unless its last request was
             refused with UNKNOWN_SUBSCRIPTION_ID or UNSUPPORTED_COMPRESSION_TYPE, to which it has to ask again.
    push     if the last thing it did was a get, or since the last push an interval has passed. The last push of all
             (`terminating`) is taken at any time, and nothing after it (INVALID_REQUEST).
When the subscriptions change an instance is made anew: it may get and push at once.

An instance is forgotten when it has done nothing for three intervals, a minute at least, when the connection that it came in
through first ends or brings another one, so that nobody has more of them than connections, or when there are too many: then the
one that has done nothing for longest. Its id stays its own; it is found out anew with its next request.
"""

from __future__ import annotations

from collections import OrderedDict

from ottla.server.telemetry.receiver import Client
from ottla.server.telemetry.subscriptions import Wanted
from ottla.wire.errors import ErrorCode

INSTANCES_MAX = 16_384
EXPIRY_MIN_MS = 60_000
_MAY_GET_AGAIN = frozenset([ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])


class Instance:
    """One instance of a client, and what it is asked for."""

    __slots__ = (
        "client",
        "expires_ms",
        "instance_id",
        "is_terminating",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "principal",
        "subscription_id",
        "version",
        "wanted",
    )

    def __init__(
        self, instance_id: bytes, principal: str, client: Client, wanted: Wanted, subscription_id: int, version: int
    ) -> None:
        """`version`: of the subscriptions that `wanted` was found by."""
        self.instance_id = instance_id
        self.principal = principal
        self.client = client
        self.wanted = wanted
        self.subscription_id = subscription_id
        self.version = version
        self.last_get_ms = self.last_push_ms = self.expires_ms = 0
        self.is_terminating = False
        self.last_error = ErrorCode.NONE

    def may_get(self, now_ms: int) -> bool:
        """Whether a get is in time; notes it if it is."""
        if now_ms - max(self.last_get_ms, self.last_push_ms) >= self.wanted.interval_ms:
            self.last_get_ms = now_ms
            return True
        return self.last_error in _MAY_GET_AGAIN

    def may_push(self, now_ms: int) -> bool:
        """Whether a push is in time; notes it if it is."""
        if self.last_get_ms > self.last_push_ms or now_ms - self.last_push_ms >= self.wanted.interval_ms:
            self.last_push_ms = now_ms
            return True
        return False


class Instances:
    """All of them, by their ids."""

    def __init__(self, instances_max: int = INSTANCES_MAX) -> None:
        self._instances_max = instances_max
        self._known: OrderedDict[bytes, Instance] = OrderedDict()  # who did something last stands last
        self._of_connection: dict[object, Instance] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, instance_id: bytes) -> bool:
        return instance_id in self._known

    def is_of_another(self, instance_id: bytes, principal: str, now_ms: int) -> bool:
        """Whether there is an instance of this id that has not expired, and is not this principal's."""
        found = self._known.get(instance_id)
        return found is not None and found.expires_ms > now_ms and found.principal != principal

    def find(self, instance_id: bytes, now_ms: int) -> Instance | None:
        """An instance that has not expired; it has another lease of life then."""
        found = self._known.get(instance_id)
        if found is None or found.expires_ms <= now_ms:
            return None
        self._note_alive(found, now_ms)
        return found

    def put(self, instance: Instance, connection: object, now_ms: int) -> None:
        """Take up an instance, in place of what its id had before, and of what came in through this connection before."""
        before = self._of_connection.get(connection)
        if before is not None:
            self._forget(before)
        self._known[instance.instance_id] = instance
        self._of_connection[connection] = instance
        self._note_alive(instance, now_ms)
        if len(self._known) > self._instances_max:
            self._known.popitem(last=False)

    def _note_alive(self, instance: Instance, now_ms: int) -> None:
        instance.expires_ms = now_ms + max(EXPIRY_MIN_MS, 3 * instance.wanted.interval_ms)
        self._known.move_to_end(instance.instance_id)

    def leave(self, connection: object) -> None:
        """A connection has ended."""
        instance = self._of_connection.pop(connection, None)
        if instance is not None:
            self._forget(instance)

    def _forget(self, instance: Instance) -> None:
        # When it had expired its id may have become another principal's.
        if self._known.get(instance.instance_id) is instance:
            del self._known[instance.instance_id]

    def expire(self, now_ms: int) -> None:
        """Forget whose time is over. Sixteen thousand are looked at in some milliseconds."""
        for instance_id in [each.instance_id for each in self._known.values() if each.expires_ms <= now_ms]:
            del self._known[instance_id]
