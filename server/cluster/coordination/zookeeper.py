"""Coordination through Apache ZooKeeper: one object is one session, held by kazoo.

    coordination = ZooKeeperCoordination(config)
    await nursery.start(coordination.run)  # returns when the session is there; run() holds it until it is cancelled

The session: connecting -> connected <-> cut off -> ended. While it is cut off every call fails at once, because kazoo would
keep the request and send it later. Requests in flight fail, too, when the connection is lost. When the session has ended
(ZooKeeper says so, always after a reconnection, or `run` is cancelled) this object stays dead, and kazoo is kept from
beginning a session of its own.

Being sure: kazoo tells of a lost session only when it reaches a server again, and a server that has lost its leader still
answers pings. So the adapter probes with `sync`, which only the leader can answer and only for a living session; what follows
from the answers is in `probed_session.py`. The probe is also the first request of every connection: what is read after it
includes all that the server before may still have written for us.

Order: results of requests, watch events (`Watches` of `kazoo_handler.py`) and changes of state share one queue
(`kazoo_handler.py`), and requests one connection, so everybody sees things happen in ZooKeeper's order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import trio
from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla.replication.cluster.coordination import (
    AccessDenied,
    BadVersion,
    Check,
    CoordinationError,
    CoordinationUnavailable,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    OnChange,
    Operation,
    SessionExpired,
    SetData,
    TooLarge,
)
from ottla.replication.system import boot_time
from ottla.server.cluster.coordination.kazoo_handler import LoopHandler, Watches
from ottla.server.cluster.coordination.probed_session import PROBE_SHARE, ProbedSession
from ottla.server.config.coordination_config import ZooKeeperConfig, parse_connect, sasl_options, tls_context

logger = logging.getLogger("ottla.zookeeper")

REQUEST_BYTES_MAX = 0xFFFFF  # ZooKeeper's jute.maxbuffer; a server closes connections that send more
# All readers together, so that a probe never waits behind more, and no turn of the loop is spent on sending more.
READS_IN_FLIGHT = 200
READS_PER_PIECE = 100  # in one call, after which others get their turn
# To connect to one server, which while it is starting may take a connection and never answer.
ATTEMPT_S_MIN, ATTEMPT_S_MAX = 0.3, 3.0
WAIT_TOLD_S = 1.0  # how long a session may take to begin before the log says that it is waited for
GOODBYE_S = 3.0  # a server that does not answer must not hold up the stop

WORLD_WRITABLE_PATH = "/consumers"  # as in Kafka: its old consumers write there themselves
# Passwords and tokens, which Kafka lets no other user read, and a secret of Ottla's.
SECRET_PATHS = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/ottla/login_secret")

_ERRORS: dict[type[Exception], type[CoordinationError]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoChildrenForEphemeralsError: NotEmpty,
    kazoo_errors.NoAuthError: AccessDenied,
    kazoo_errors.InvalidACLError: AccessDenied,
    kazoo_errors.AuthFailedError: AccessDenied,
    kazoo_errors.SessionClosedRequireSaslError: AccessDenied,
    kazoo_errors.SessionExpiredError: SessionExpired,
}


class _PendingCall:
    """Group of requests to ZooKeeper, with one task that awaits all responses.

    kazoo's response objects refer to this object. It drops its own references to them after the wait, so that all are
    freed.
    """

    __slots__ = ("answers", "landed", "missing")

    def __init__(self, size: int) -> None:
        self.answers: list[Any] | None = [None] * size
        self.missing = size
        self.landed = trio.Event()

    def land(self, index: int, answer: Any) -> None:
        if self.answers is None:
            return  # nobody waits any more
        self.answers[index] = answer
        self.missing -= 1
        if not self.missing:
            self.landed.set()


class ZooKeeperCoordination(ProbedSession):
    """Session with ZooKeeper that implements the `Coordination` port. The constructor raises InvalidSetting."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        super().__init__(config.zookeeper_session_timeout_ms / 1000)
        self._servers, self._root = parse_connect(config.zookeeper_connect)
        self._tls = tls_context(config)
        self._sasl = sasl_options(config)
        self._config = config
        self._client: Any = None
        self._connected = False
        self._end_reason = ""
        self._pending: set[_PendingCall] = set()  # so that a lost connection can wake everybody who waits
        self._readers = trio.CapacityLimiter(READS_IN_FLIGHT // READS_PER_PIECE)
        self._watches = Watches(self._absolute)
        # Trio's clock stands still while the machine is suspended. ZooKeeper goes on to count, and ends the session.
        self._trio_ahead = trio.current_time() - boot_time()

    # ------------------------------------------------------------------ the port

    def session_now(self) -> float:
        """Return trio's time plus the seconds that the machine was suspended since this session was created."""
        return boot_time() + self._trio_ahead

    async def get(self, path: str) -> Node:
        (answer,) = await self._ask([partial(self._client_now().get_async, self._absolute(path))])
        return _node(self._value(answer, path))

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        found: list[Node | None] = []
        for start in range(0, len(paths), READS_PER_PIECE):
            some = paths[start : start + READS_PER_PIECE]
            # Limited for all readers together: the probe waits behind
            # what was sent before, and late probes cost the session.
            async with self._readers:
                # Asked for again with each piece, because the session may have ended while this waited for its turn.
                read = self._client_now().get_async
                answers = await self._ask([partial(read, self._absolute(path)) for path in some])
            found += map(self._node_or_none, answers, some)
        return found

    async def children(self, path: str) -> list[str]:
        (answer,) = await self._ask([partial(self._client_now().get_children_async, self._absolute(path))])
        names: list[str] = self._value(answer, path)
        return names

    async def children_data(self, path: str) -> Mapping[str, Node]:
        names = await self.children(path)
        parent = "" if path == "/" else path
        nodes = await self.get_all([f"{parent}/{name}" for name in names])
        return {name: node for name, node in zip(names, nodes, strict=True) if node is not None}

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        # Even an empty multi must fail on a dead session, so this comes before the look at `operations`.
        transaction = self._client_now().transaction()
        for operation in operations:
            self._add(transaction, operation)
        if not operations:
            return []
        # ZooKeeper closes a connection that sends more, and everybody's requests would be lost with the connection.
        _check_size(transaction.operations)
        (answer,) = await self._ask([transaction.commit_async])
        outcomes = self._value(answer)
        for operation, outcome in zip(operations, outcomes, strict=True):
            # The operations before the failed one were rolled back, those after it were not tried.
            if isinstance(outcome, Exception) and not isinstance(outcome, kazoo_errors.RolledBackError):
                raise self._error(outcome, _subject(operation, outcome))
        return list(map(self._result, operations, outcomes))

    def watch_node(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watches.watch(path, False, on_change)

    def watch_children(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watches.watch(path, True, on_change)

    # ------------------------------------------------------------------ the life of the session

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Begin the session and hold it until it ends; when cancelled, end it.

        Raises CoordinationUnavailable or AccessDenied, with a line for the operator, if the session cannot begin.
        """
        token = trio.lowlevel.current_trio_token()
        # All servers have to be tried before the session may be in doubt, so the time is shared among them.
        attempt_s = max(ATTEMPT_S_MIN, min(ATTEMPT_S_MAX, self._timeout_s * PROBE_SHARE / len(self._servers)))
        self._handler = LoopHandler(token, self._tls, attempt_s)
        self._client = self._new_client()
        try:
            self._client.start_async()
            # A connection alone proves nothing. With a wrong password
            # kazoo reports one as well, and it is closed afterwards.
            await self._open()
            task_status.started()
            await self._keep_sure()
        finally:
            await self._close()

    def _new_client(self) -> Any:
        kazoo_logger = logging.getLogger("ottla.zookeeper.kazoo")
        kazoo_logger.setLevel(logging.ERROR)  # it tells of every attempt to connect; what matters is logged here
        client = KazooClient(
            ",".join(self._servers),
            timeout=self._timeout_s,
            handler=self._handler,
            # It tries on without end: how long a broker waits is decided by `_open` and by the session.
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=1.5, max_delay=1.0),
            sasl_options=self._sasl,
            logger=kazoo_logger,
        )
        client.add_listener(self._on_kazoo_state)
        return client

    async def _open(self) -> None:
        problem: CoordinationError = CoordinationUnavailable()
        try:
            with trio.move_on_after(self._config.connection_timeout_s):
                with trio.move_on_after(WAIT_TOLD_S):
                    await self._until_open()
                    return
                logger.warning(
                    "This broker waits for ZooKeeper at %s: %s", self._config.zookeeper_connect, self._trouble()
                )
                await self._until_open()
                return
        except (AccessDenied, SessionExpired) as error:
            problem = error
        denied = isinstance(problem, AccessDenied) or self._end_reason == KeeperState.AUTH_FAILED
        what = self._end_reason or (problem.path and f"{problem.path} may not be made or read")
        line = f"ZooKeeper at {self._config.zookeeper_connect}: {what or self._trouble()}"
        raise (AccessDenied if denied else CoordinationUnavailable)(line) from None

    async def _until_open(self) -> None:
        # Any change of the connection or of the session is a reason to look again.
        while not await self._is_open():
            await self._changed.wait()

    def _trouble(self) -> str:
        """Return the reason why there is no connection. If there are several servers, name the last one tried."""
        problem, server = self._handler.last_problem, self._handler.last_server
        if not problem:
            return "no answer"
        return f"{problem} ({server})" if len(self._servers) > 1 else problem

    async def _is_open(self) -> bool:
        """Create the root node if it is missing; return True if the session is certainly valid."""
        try:
            await self._make_root()
        except CoordinationUnavailable:  # not yet, or lost again; the next change leads to another look
            return False
        return self.session_now() < self.session_sure_until

    async def _make_root(self) -> None:
        """Create the missing nodes of the chroot path, which ends zookeeper.connect."""
        (answer,) = await self._ask([partial(self._client_now().exists_async, self._root or "/")])
        names = [] if self._value(answer) else self._root.split("/")[1:]
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            (answer,) = await self._ask([partial(self._client_now().create_async, path, b"", self._acl(""))])
            # Another broker that starts at the same time may be faster.
            if not isinstance(answer.exception, kazoo_errors.NodeExistsError):
                self._value(answer, path)

    async def _close(self) -> None:
        """Close the session in ZooKeeper if a server is reachable, so that its ephemeral nodes go immediately."""
        # Else kazoo would go on to look for a server while it is being stopped.
        if not self._connected:
            self._give_up()
        # Before the goodbye: users of this object must not rely on a session that is about to end.
        self._end("closed")
        with trio.CancelScope(shield=True):
            with trio.move_on_after(GOODBYE_S) as patience:
                # kazoo's `stop` waits for its own thread. On the event loop that would hold everybody.
                await trio.to_thread.run_sync(self._stop_client, abandon_on_cancel=True)
            if patience.cancelled_caught:
                self._give_up()  # its threads end as soon as they see that

    def _stop_client(self) -> None:
        self._client.stop()
        self._client.close()

    def _give_up(self) -> None:
        self._handler.refuse_connections()
        self._handler.cut_connection()

    def _on_kazoo_state(self, state: str) -> None:
        """Process a change of kazoo's connection state; called on kazoo's thread."""
        change: Callable[[], None]
        # At once and on kazoo's thread. kazoo begins a session of
        # its own right after this, with none of the ephemeral nodes.
        if state == KazooState.LOST:
            self._handler.refuse_connections()
            change = partial(self._end, self._client.client_state)
        elif state == KazooState.SUSPENDED:
            change = self._cut_off
        else:
            change = partial(self._resume, self._client.client_id[0])  # read here, on the thread that sets it
        # Through the queue of all answers: a watcher of the change has all answers from before it.
        self._handler.callback_queue.put(change)

    def _resume(self, session_id: int) -> None:
        if self._ended:
            return
        self.session_id = session_id
        # ZooKeeper may grant less than was asked for. What is sure rests on what it granted.
        self._timeout_s = self._handler.granted_ms / 1000
        self._connected = True
        logger.info("Connected to ZooKeeper, session 0x%x, timeout %d ms", session_id, self._handler.granted_ms)
        # The probe is the first request of the connection, and the watches come before any read. Only so do
        # later reads show all that the former server may still have written, and no change falls in between.
        self._probe()
        self._watches.resume(self._client)
        self._session_changed()

    def _cut_off(self) -> None:
        # Heard of twice where this side gave up the connection: from here and from kazoo.
        if not self._connected:
            return
        self._connected = self._probe_open = False
        if not self._ended:
            logger.warning("The connection to ZooKeeper is lost")
        self._watches.cut_off()
        # No task waits for kazoo to notice. Whether a request was carried out is open, and `_ask` says so.
        for pending in self._pending:
            pending.landed.set()
        self._session_changed()

    def _end(self, reason: str) -> None:
        # kazoo, an answer and `_close` may all bring the news.
        if self._ended:
            return
        self._no_longer_sure()
        self._end_reason = reason
        if self.session_id:
            logger.log(
                logging.INFO if reason == "closed" else logging.WARNING,
                "The session 0x%x with ZooKeeper has ended: %s",
                self.session_id,
                reason,
            )
        # First everybody's requests fail, then the listeners hear why.
        self._cut_off()
        self._session_changed()
        self._call_session_listeners()

    # ------------------------------------------------------------------ being sure of the session

    @property
    def _is_connected(self) -> bool:
        return self._connected

    async def _give_up_connection(self) -> None:
        await trio.lowlevel.checkpoint()  # if it was this loop that was late, the answer is waiting
        # kazoo reports the loss only when it notices. Everybody else may not wait that long.
        if self._connected and self._probe_open:
            logger.warning("ZooKeeper does not answer")
            self._handler.cut_connection()
            self._cut_off()

    def _send_probe(self, sent: float) -> None:
        # Only the leader can answer `sync`. A server that has lost its leader still answers pings.
        self._client.sync_async(self._root or "/").rawlink(partial(self._probed, sent))

    def _probed(self, sent: float, answer: Any) -> None:
        if answer.successful():
            self._probe_answered(sent)

    # ------------------------------------------------------------------ requests

    def _client_now(self) -> Any:
        """Return kazoo's client. Raises an error of the `Coordination` port while the client cannot be called."""
        if self._ended:
            raise SessionExpired
        # kazoo would keep the request and send it after the connection
        # is back, even if the caller was cancelled by then.
        if not self._connected:
            raise CoordinationUnavailable
        return self._client

    async def _ask(self, requests: Sequence[Callable[[], Any]]) -> list[Any]:
        """Send requests together; return each value or error. Raises CoordinationUnavailable or SessionExpired."""
        pending = _PendingCall(len(requests))
        self._pending.add(pending)
        try:
            # Sent without an await in between: one round trip for all of them, and nobody else's request in the middle.
            for index, request in enumerate(requests):
                request().rawlink(partial(pending.land, index))
            await pending.landed.wait()
        finally:
            # Also when the caller is cancelled. An answer that comes later finds nobody, which `land` expects.
            self._pending.discard(pending)
            answers, pending.answers = pending.answers, None
        # The connection was lost. Some of the answers may be there, but nothing is known of the others.
        if pending.missing:
            self._client_now()  # raises if the session has ended
            raise CoordinationUnavailable
        assert answers is not None
        return answers

    def _value(self, answer: Any, path: str = "") -> Any:
        if answer.successful():
            return answer.value
        raise self._error(answer.exception, path)

    def _error(self, error: Exception, path: str) -> CoordinationError:
        # kazoo derives errors from each other, so the nearest known class decides.
        for kind in type(error).__mro__:
            if (known := _ERRORS.get(kind)) is not None:
                if known is SessionExpired:
                    # As in `_on_kazoo_state`: kazoo must not begin another session.
                    self._handler.refuse_connections()
                    self._end("expired")
                return known(path)
        if not isinstance(error, kazoo_errors.ConnectionLoss):
            logger.warning("ZooKeeper could not answer a request for %s: %r", path, error)
        return SessionExpired(path) if self._ended else CoordinationUnavailable(path)

    def _node_or_none(self, answer: Any, path: str) -> Node | None:
        if isinstance(answer.exception, kazoo_errors.NoNodeError):
            return None
        return _node(self._value(answer, path))

    def _absolute(self, path: str) -> str:
        return (self._root or "/") if path in ("", "/") else self._root + path

    def _acl(self, path: str) -> list[Any]:
        """Return the ACL of a new node, as Kafka would set it."""
        if not self._config.zookeeper_set_acl or path == WORLD_WRITABLE_PATH:
            return list(OPEN_ACL_UNSAFE)
        return list(CREATOR_ALL_ACL if path.startswith(SECRET_PATHS) else CREATOR_ALL_ACL + READ_ACL_UNSAFE)

    def _add(self, transaction: Any, operation: Operation) -> None:
        path = self._absolute(operation.path)
        match operation:
            case Create(data=data, ephemeral=ephemeral, sequential=sequential):
                transaction.create(path, data, self._acl(operation.path), ephemeral, sequential)
            case SetData(data=data, version=version):
                transaction.set_data(path, data, version)
            case Delete(version=version):
                transaction.delete(path, version)
            case Check(version=version):
                transaction.check(path, version)

    def _result(self, operation: Operation, outcome: Any) -> str | int | None:
        match operation:
            case Create():
                return str(outcome[len(self._root) :])
            case SetData():
                return int(outcome.version)
        return None


def _node(found: tuple[bytes | None, Any]) -> Node:
    data, stat = found
    return Node(data or b"", stat.version, stat.czxid, stat.ephemeralOwner, stat.ctime)


def _subject(operation: Operation, error: Exception) -> str:
    """Return the path of the node that `error` concerns: the operation's node, or its parent."""
    about_parent = (kazoo_errors.NoNodeError, kazoo_errors.NoChildrenForEphemeralsError)
    if isinstance(operation, Create) and isinstance(error, about_parent):
        return operation.path.rpartition("/")[0]
    return operation.path


def _check_size(operations: Sequence[Any]) -> None:
    """Raise TooLarge for a request that would make ZooKeeper close the connection."""
    # Looking closely means encoding twice, so it is done only where the sum of lengths comes near.
    estimate = sum(200 + 4 * len(each.path) + len(getattr(each, "data", b"")) for each in operations)
    if estimate > REQUEST_BYTES_MAX:
        size = 17 + sum(9 + len(each.serialize()) for each in operations)
        if size > REQUEST_BYTES_MAX:
            raise TooLarge(max(operations, key=lambda each: len(each.serialize())).path)
