"""Delegation tokens as the coordination tree has them, and their changes (Kafka 3.9's DelegationTokenManagerZk).

Any broker changes tokens. A change is decided from the tree's present state and written on condition of the version read.
The same write adds a notification for other brokers. Then the change is in force on this broker. If another broker was faster
the change is decided again. A broker that is alone keeps the same nodes and needs no notices.

At the start of every session all tokens are read; after that only those that a notice names. A node that holds no token is
left aside with one line in the log, and so is one beyond the limits below. While the tree is out of reach the tokens that are
known go on to be good, until they expire.

The controller removes tokens that have expired, every delegation.token.expiry.check.interval.ms.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.cluster.coordination import (
    BadVersion,
    CoordinationError,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
)
from ottla.replication.cluster.znodes import MalformedNode
from ottla.server.cluster.config_notifications import ChangeNotices, Signal, follow, persistently
from ottla.server.cluster.session import make_missing
from ottla.server.security.tokens import (
    CHANGE_PREFIX,
    CHANGES,
    PATHS,
    TOKENS,
    DelegationToken,
    decode_token,
    encode_token,
    expired,
    is_token_id,
    new_token,
    renewed,
    token_path,
)
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ottla.replication.cluster.coordination import Coordination, Node
    from ottla.server.config.security_config import TokenConfig
    from ottla.server.security.tokens import DelegationTokens

logger = logging.getLogger("ottla.tokens")

TOKENS_MAX = 20_000  # Kafka has no limit; each takes about two kilobytes
TOKENS_OF_REQUESTER_MAX = 5_000  # so that no client uses up all of them
NODE_BYTES_MAX = 64 * 1024  # ZooKeeper takes no request of more than about a megabyte
TRIES = 11
RETRY_S = 0.1
NODES_PER_SLICE = 200
REMOVED_AT_ONCE = 100
DERIVED_AT_ONCE = 8  # tokens whose credentials one call of a thread makes: 25 ms

Change = Callable[[DelegationToken], DelegationToken | None]


class TokenStore:
    """Store of delegation tokens in the coordination tree. `refusal` converts write errors for the client."""

    def __init__(
        self,
        table: DelegationTokens,
        config: TokenConfig,
        coordination: Coordination,
        *,
        refusal: Callable[[CoordinationError], KafkaError],
        is_controller: Callable[[], bool],
        has_readers: bool,
        clock_ms: Callable[[], int],
        run_in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        """Create the store; `has_readers`: other brokers read the same tree and must be notified of changes."""
        self.table, self._config, self._coordination = table, config, coordination
        self._refusal, self._is_controller, self._has_readers = refusal, is_controller, has_readers
        self._clock_ms, self._run_in_thread = clock_ms, run_in_thread
        # Only one task reads or writes tokens at a time: what was read before a write must not come into force after it.
        self._lock = trio.Lock()
        self._notices = ChangeNotices(coordination, CHANGES, CHANGE_PREFIX, clock_ms)
        self._noticed, self._is_new = Signal(), Signal()

    # ------------------------------------------------------------------ changing

    async def create(
        self, requester: str, owner: str, renewers: tuple[str, ...], lifetime_ms: int
    ) -> tuple[DelegationToken, bytes]:
        """Create a token; return it and its HMAC. Raises KafkaError."""
        token = new_token(requester, owner, renewers, lifetime_ms, self._config, self._clock_ms())
        data = _checked(token)
        async with self._lock:
            if len(self.table) >= TOKENS_MAX or self.table.count_of(requester) >= TOKENS_OF_REQUESTER_MAX:
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "There are too many delegation tokens.")
            try:
                await self._write(Create(token_path(token.token_id), data), token.token_id)
            except CoordinationError as error:
                raise self._refused(error) from None
            self._put(token)
        logger.info("Created the delegation token %s of %.300r", token.token_id, owner)
        return token, self.table.hmac(token.token_id)

    async def renew(self, hmac: bytes, principal: str, period_ms: int) -> int:
        """Set a token's expiry to `period_ms` from now, and return it in ms. Raises KafkaError.

        `period_ms` 0 or less: the configured period.
        """
        now_ms = self._clock_ms()
        changed = await self._change(hmac, lambda token: renewed(token, principal, period_ms, self._config, now_ms))
        assert changed is not None
        return changed.expires_ms

    async def expire(self, hmac: bytes, principal: str, period_ms: int) -> int:
        """Set a token's expiry to `period_ms` from now, and return it in ms. Raises KafkaError.

        `period_ms` negative: remove the token now.
        """
        now_ms = self._clock_ms()
        changed = await self._change(hmac, lambda token: expired(token, principal, period_ms, now_ms))
        return now_ms if changed is None else changed.expires_ms

    async def _change(self, hmac: bytes, change: Change) -> DelegationToken | None:
        known = self.table.by_hmac(hmac)
        if known is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        # Without a look at the tree: who may not do it costs no more than this.
        change(known)
        for attempt in range(TRIES):
            if attempt:
                await trio.sleep(RETRY_S)
            async with self._lock:
                try:
                    return await self._changed(known.token_id, change)
                except (BadVersion, NoNode):
                    continue  # another broker was faster
                except CoordinationError as error:
                    raise self._refused(error) from None
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The token could not be changed in {TRIES} tries")

    async def _changed(self, token_id: str, change: Change) -> DelegationToken | None:
        path = token_path(token_id)
        (node,) = await self._coordination.get_all([path])
        token = self._take(token_id, node)
        if node is None or token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        changed = change(token)
        if changed is None:
            await self._write(Delete(path, node.version), token_id)
            self.table.remove(token_id)
            logger.info("Removed the delegation token %s of %.300r", token_id, token.owner)
        elif changed != token:
            await self._write(SetData(path, encode_token(changed), node.version), token_id)
            self._put(changed)
            logger.info("The delegation token %s of %.300r expires at another time", token_id, token.owner)
        return changed

    async def _write(self, operation: Operation, token_id: str) -> None:
        await self._coordination.multi([operation, *self._notice(token_id)])

    def _notice(self, token_id: str) -> list[Operation]:
        return [self._notices.of(token_id.encode())] if self._has_readers else []

    def _refused(self, error: CoordinationError) -> KafkaError:
        logger.error("A delegation token cannot be written: %r", error)
        if isinstance(error, (NoNode, NodeExists)):  # of a node that every session makes, or of a random name
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return self._refusal(error)

    def _put(self, token: DelegationToken) -> None:
        self.table.put(token)
        self._is_new.set()

    # ------------------------------------------------------------------ reading, and hearing of changes

    async def read_all(self) -> None:
        """Load all tokens from the coordination tree. Raises CoordinationError."""
        await make_missing(self._coordination, PATHS)
        async with self._lock:
            nodes = await self._coordination.children_data(TOKENS)
            for token_id in [each.token_id for each in self.table if each.token_id not in nodes]:
                self.table.remove(token_id)
            await self._take_all(nodes)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Apply other brokers' changes; report `started` when all tokens are read. Raises SessionExpired at the end."""
        await persistently(self._coordination, lambda: make_missing(self._coordination, PATHS))
        # Before anything is read, so that no notice is missed in between.
        ends = [self._coordination.watch_children(CHANGES, self._noticed.set)]
        reads = (self._read_everything, self._read_what_changed)
        await follow(self._coordination, self._noticed, ends, *reads, task_status=task_status)

    async def _read_everything(self) -> None:
        # First: what is changed while the tokens are read is then read once more, and not missed.
        await self._notices.pass_over()
        await self.read_all()

    async def _read_what_changed(self) -> None:
        held, number = await self._notices.read()
        named = [text for text in dict.fromkeys(each.decode(errors="replace") for each in held) if is_token_id(text)]
        for start in range(0, len(named), NODES_PER_SLICE):
            some = named[start : start + NODES_PER_SLICE]
            async with self._lock:
                nodes = await self._coordination.get_all([token_path(each) for each in some])
                await self._take_all(dict(zip(some, nodes, strict=True)))
        # Only now: if reading fails, the same tokens are read again.
        await self._notices.heeded(number)

    async def _take_all(self, nodes: Mapping[str, Node | None]) -> None:
        for number, (token_id, node) in enumerate(nodes.items(), 1):
            self._take(token_id, node)
            if number % NODES_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()

    def _take(self, token_id: str, node: Node | None) -> DelegationToken | None:
        """Load a token from its node; return it, or None if the node is missing, unreadable, or beyond TOKENS_MAX."""
        token = None
        if node is not None:
            try:
                token = decode_token(token_id, node.data)
            except MalformedNode as error:
                logger.error("Left aside a delegation token that cannot be read: %s", error)
        if token is not None and self.table.get(token_id) is None and len(self.table) >= TOKENS_MAX:
            logger.error("Left aside the delegation token %s, because there are %d others", token_id, TOKENS_MAX)
            return None
        if token is None:
            self.table.remove(token_id)
        elif token != self.table.get(token_id):
            self._put(token)
        return token

    # ------------------------------------------------------------------ in the background

    async def work(self) -> None:
        """Delete expired tokens and prepare login credentials, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._derive)
            nursery.start_soon(self._remove_expired)

    async def _derive(self) -> None:
        while True:
            await self._is_new.wait()
            # Only if somebody may log in by SCRAM is there a salt.
            while self.table.salt_of is not None and (some := self.table.underived(DERIVED_AT_ONCE)):
                self.table.take(await self._run_in_thread(self.table.derive, some))

    async def _remove_expired(self) -> None:
        while True:
            await trio.sleep(self._config.delegation_token_expiry_check_interval_ms / 1000)
            if self._is_controller():
                try:
                    await self.remove_expired()
                except CoordinationError as error:
                    logger.warning("Delegation tokens that have expired cannot be removed yet: %r", error)

    async def remove_expired(self) -> None:
        """Delete all tokens that are past their lifetime or expiry time. Raises CoordinationError."""
        now_ms = self._clock_ms()
        over = [token.token_id for token in self.table if token.is_over(now_ms)]
        for start in range(0, len(over), REMOVED_AT_ONCE):
            async with self._lock:
                await self._remove_some(over[start : start + REMOVED_AT_ONCE], now_ms)

    async def _remove_some(self, token_ids: Sequence[str], now_ms: int) -> None:
        nodes = await self._coordination.get_all([token_path(each) for each in token_ids])
        operations: list[Operation] = []
        removed = []
        for token_id, node in zip(token_ids, nodes, strict=True):
            # It may have been renewed, or removed, by a broker whose notice has not been read yet.
            token = self._take(token_id, node)
            if node is not None and token is not None and token.is_over(now_ms):
                operations += [Delete(token_path(token_id), node.version), *self._notice(token_id)]
                removed.append(token)
        if not operations:
            return
        try:
            await self._coordination.multi(operations)
        except (BadVersion, NoNode, NodeExists):
            return  # another broker was faster; the rest has time until the next look
        for token in removed:
            self.table.remove(token.token_id)
            logger.info("The delegation token %s of %.300r has expired", token.token_id, token.owner)


def _checked(token: DelegationToken) -> bytes:
    """Return the encoded node of a new token. Raises KafkaError if the node is too large or cannot be decoded again."""
    data = encode_token(token)
    try:
        if len(data) > NODE_BYTES_MAX or decode_token(token.token_id, data) != token:
            raise MalformedNode("too long")
    except MalformedNode:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "The names of owner and renewers are too long.") from None
    return data
