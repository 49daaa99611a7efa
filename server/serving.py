"""A broker's life on its listeners, in any trio program: signals, limits and the interpreter are left as they are.

Start: bind the listeners (a taken port ends the start before anything is touched) -> lock the log directories -> cluster id,
settings, and load the logs, recovering what a crash left: as `Alone` or as a `ClusterMember` -> coordinators -> accept
connections -> join the cluster. No client is answered before all parts are ready.

Stop (`serving_state.py`): hand over what others can lead, stop accepting, end the connections, stop the coordinators, flush and
close the logs, leave the clean-shutdown mark, let go of the directories, and of the session. Each wait on the way has a
limit, and `immediate` ends the hand-over.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ottla.replication.cluster.coordination import CoordinationUnavailable
from ottla.replication.log.descriptors import LIMIT_MIN, Descriptors, present_limit
from ottla.replication.log.storage import ACCESS, OsStorage
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.server.broker import Broker
from ottla.server.cluster.session import JoinProblem
from ottla.server.config.broker_config import OF_SINGLE_LISTENERS, broker_value
from ottla.server.dispatch.dispatch import client_routes, served_routes
from ottla.server.environment import Environment
from ottla.server.imitation import NO_RESTRICTIONS
from ottla.server.network.calls import Calls
from ottla.server.network.connection_limits import ConnectionLimits, OwnLimits
from ottla.server.network.inbox import ReceiveBuffers
from ottla.server.network.listener import Encryption, Listener, bind
from ottla.server.network.memory_accounting import MemoryBudget
from ottla.server.network.readiness import Readiness
from ottla.server.security.quotas.client_quotas import UNLIMITED
from ottla.server.serving_state import Stop
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    import socket

    from ottla.server.config.broker_config import BrokerConfig
    from ottla.server.config.endpoint import Endpoint
    from ottla.server.config.repository import Texts
    from ottla.server.security.sasl_listener import SaslListener

    Bound = Sequence[tuple[Endpoint, socket.socket]]

logger = logging.getLogger("ottla.broker")

FIRST_TOPICS_PATIENCE_S = 60.0
"""Time in which other brokers of a cluster are expected, if a topic needs more replicas than there are brokers yet."""

HTTP_BACKLOG = 64


class StartupError(Exception):
    """Error with the reason why a broker cannot start or had to stop, although its configuration is valid.

    The text is one line for the operator.
    """


async def serve(
    config: BrokerConfig,
    *,
    stop: Stop,
    on_ready: Callable[[Broker], None],
    before_serving: Callable[[], None] = lambda: None,
    descriptors: Descriptors | None = None,
    environment: Environment | None = None,
    readiness: Readiness | None = None,
) -> None:
    """Run a broker until `stop`. Raises StartupError if the broker cannot start or all its disks fail.

    `before_serving` is called when everything is loaded, `on_ready` when clients are served; the broker's `listeners`
    then have the ports. `descriptors` limits the open descriptors; None: the limit of this process. `environment`: None
    for this machine's disks and clocks. `readiness`: that of a loop with several brokers; None: this one has its own.
    """
    bound = bind_all(config)
    http = None
    try:
        http = bind_http(config)
        environment = environment or _this_machine(config, descriptors)
        with contextlib.ExitStack() as owned:
            if readiness is None:
                readiness = Readiness()
                owned.callback(readiness.close)
            await _serve_bound(
                config, Broker(config, environment, readiness), bound, http, stop, on_ready, before_serving
            )
    except (Exception, BaseExceptionGroup) as problem:  # noqa: BLE001 - raised again
        raise _startup_problem(problem) from None
    finally:
        for sock in (*(sock for _, sock in bound), *([http] if http else [])):
            sock.close()


def _this_machine(config: BrokerConfig, descriptors: Descriptors | None) -> Environment:
    storage = OsStorage(ACCESS[config.server.log_dirs_readable_by])
    return Environment(storage=storage, descriptors=descriptors or Descriptors(checked_limit(present_limit())))


async def _serve_bound(
    config: BrokerConfig,
    broker: Broker,
    bound: Bound,
    http: socket.socket | None,
    stop: Stop,
    on_ready: Callable[[Broker], None],
    before_serving: Callable[[], None],
) -> None:
    # What a worker shares with others is no way to it alone.
    broker.register(bound[: len(config.listeners)])
    async with trio.open_nursery() as sessions:
        if http is not None:
            from ottla.server.admin.console.console import add_console  # here, because most brokers do without
            from ottla.server.admin.http.endpoint import client_metrics, serve_http

            # From now on, because a load may take long, and somebody may want to know how it goes.
            broker.http_address = http.getsockname()[:2]
            broker.receiver = client_metrics()
            sessions.start_soon(serve_http, broker, http, stop, [add_console])
        # A signal during a long recovery ends the start.
        if await stop.unless(stop.requested, partial(broker.open, sessions)):
            listen_all(bound, config.server.socket_listen_backlog_size)
            await _serve_until_stopped(broker, bound, stop, on_ready, before_serving)
        sessions.cancel_scope.cancel()
    logger.info("Broker %d is stopped", broker.node_id)


def _startup_problem(whole: BaseException) -> BaseException:
    """Return a StartupError for a problem that an operator can solve. Return any other problem, a bug, unchanged."""
    # Nurseries wrap errors into groups; the operator is to read the error itself.
    problem = whole
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
        problem = problem.exceptions[0]
    if isinstance(problem, (LogDirectoryProblem, InvalidSetting, JoinProblem)):
        return StartupError(str(problem))
    if isinstance(problem, CoordinationUnavailable):
        return StartupError(f"{problem.path or 'the coordination tree'} cannot be written; is there room on its disk?")
    if isinstance(problem, OSError):
        return StartupError(f"cannot use the data directory: {problem}")
    return problem if isinstance(problem, (StartupError, KeyboardInterrupt)) else whole


async def _serve_until_stopped(
    broker: Broker, bound: Bound, stop: Stop, on_ready: Callable[[Broker], None], before_serving: Callable[[], None]
) -> None:
    failure = ""
    try:
        async with broker.running() as nursery:
            for_brokers, for_clients = calls_of(broker)
            _listen(broker, bound, for_brokers, for_clients, nursery)
            before_serving()
            async with broker.serving_state.until_left():
                nursery.start_soon(_open_when_started, broker, [for_brokers, for_clients])
                failure = await _stopped(broker, stop, on_ready)
                # Requests are still answered while others take over. Another signal ends the wait.
                if stop.hands_over:
                    await stop.unless(stop.immediate, broker.member.leave)
    finally:
        await broker.close()
    # Raised only after everything is closed and flushed.
    if failure:
        raise StartupError(failure)


def _listen(broker: Broker, bound: Bound, for_brokers: Calls, for_clients: Calls, nursery: trio.Nursery) -> None:
    assert broker.readiness is not None
    inter_broker, between_brokers = broker.config.inter_broker_listener_name, broker.config.between_brokers
    buffers = ReceiveBuffers(MemoryBudget.of(broker.config.server.queued_max_request_bytes))
    limits = ConnectionLimits(
        lambda: broker.config.server,
        broker.environment.descriptors,
        broker.quotas,
        # Clients that open very many connections must not keep out the brokers, if these have a listener of their
        # own.
        protected=inter_broker if len(broker.config.listeners) > 1 else None,
        of_listener=lambda listener: _own_limits(broker.configs.texts_of_listener(listener)),
    )
    broker.configs.on_change(lambda _: limits.changed())
    encryptions = _encryptions(broker)
    for endpoint, sock in bound:
        calls = for_brokers if endpoint.listener in between_brokers else for_clients
        protocol, sasl = endpoint.security_protocol, broker.sasl_of(endpoint.listener)
        encryption = encryptions.get(endpoint.listener)
        listener = Listener(
            endpoint.listener,
            sock,
            broker,
            calls,
            buffers,
            broker.readiness,
            limits,
            protocol,
            sasl,
            encryption,
            broker.environment.accept,
            broker.happenings.note,
            broker.environment.clock_ms,
            broker.environment.accept_encrypted,
        )
        broker.listeners.append(listener)
        nursery.start_soon(_run, listener, sasl)


async def _run(listener: Listener, sasl: SaslListener | None) -> None:
    # Who comes before that waits in the socket.
    if sasl is not None:
        await sasl.until_ready()
    await listener.run()


def _own_limits(texts: Texts) -> OwnLimits:
    try:
        return OwnLimits(*(broker_value(texts, name) for name in OF_SINGLE_LISTENERS))
    except InvalidSetting as error:  # stored by somebody who did not look so closely
        logger.error("the limits of a listener cannot be used: %s", error)
        return OwnLimits(UNLIMITED, UNLIMITED)


def _encryptions(broker: Broker) -> dict[str, Encryption]:
    if broker.tls is None:
        return {}
    from ottla.server.network.tls_handshakes import Handshakes  # here, because many brokers do without

    # One for all: the limits of an address hold for all listeners together.
    handshakes = Handshakes(note=broker.happenings.note)
    return {each.name: Encryption(handshakes, each) for each in broker.tls}


def calls_of(broker: Broker) -> tuple[Calls, Calls]:
    """Return the call tables of inter-broker listeners and of client listeners; a broker that is alone has one for both."""
    is_in_cluster, has_receiver = broker.is_in_cluster, broker.receiver is not None
    restrictions = broker.environment.restrictions
    has_older = broker.config.server.older_api_versions_enable or restrictions.versions is not None
    routes = client_routes(is_in_cluster=is_in_cluster, has_receiver=has_receiver)
    of_clients = Calls(routes, is_open=False, has_older=has_older, restrictions=restrictions)
    if not is_in_cluster:
        return of_clients, of_clients
    # Brokers speak to each other as they are.
    between_brokers = served_routes(is_in_cluster=is_in_cluster, has_receiver=has_receiver)
    return Calls(between_brokers, is_open=False, has_older=has_older, restrictions=NO_RESTRICTIONS), of_clients


async def _open_when_started(broker: Broker, calls: Sequence[Calls]) -> None:
    # Before that the broker knows no topics. Clients that hear so may give up what they have to send.
    await broker.member.until_started()
    for each in calls:
        each.opened.set()
    broker.serving_state.begin()


async def _stopped(broker: Broker, stop: Stop, on_ready: Callable[[Broker], None]) -> str:
    """Join the cluster and wait until the broker must stop. Return "" after a stop request, else the failure's text."""
    failures: list[str] = []

    def fail(failure: str) -> None:
        logger.critical("stopping: %s", failure)
        failures.append(failure)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:

        async def watch_stop() -> None:
            await stop.requested.wait()
            nursery.cancel_scope.cancel()

        async def watch_disks() -> None:
            await broker.replicas.all_directories_failed.wait()
            fail("every log directory is offline")

        async def watch_coordination() -> None:
            fail(await broker.member.until_broken())

        async def create_first_topics(patience_s: float) -> None:
            from ottla.server.cluster import first_topics  # few starts create topics

            topics = broker.configs.started_with.first_topics
            await first_topics.create_first_topics(broker.administration, topics, patience_s=patience_s)

        async def join() -> None:
            await broker.member.join()
            listeners = ", ".join(f"{each.name} on port {each.port}" for each in broker.listeners)
            logger.info("Broker %d of cluster %s is ready: %s", broker.node_id, broker.cluster.cluster_id, listeners)
            has_topics = bool(broker.configs.started_with.first_topics)
            if has_topics and not broker.is_in_cluster:
                await create_first_topics(0.0)
            on_ready(broker)
            if has_topics and broker.is_in_cluster:
                await create_first_topics(FIRST_TOPICS_PATIENCE_S)

        nursery.start_soon(watch_disks)
        nursery.start_soon(watch_coordination)
        nursery.start_soon(join)
        await watch_stop()
    return failures[0] if failures else ""


def checked_limit(limit: int) -> int:
    """Return `limit`, the number of file descriptors allowed. Raises StartupError if it is too low for a broker."""
    if limit < LIMIT_MIN:
        raise StartupError(
            f"the system allows this process {limit} open files and connections; it needs {LIMIT_MIN} at least,"
            f" and some thousand to serve many clients (`ulimit -n`)"
        )
    return limit


def bind_all(config: BrokerConfig) -> list[tuple[Endpoint, socket.socket]]:
    """Bind the sockets of all listeners, without listening. Raises StartupError with the address that is unavailable.

    Sockets shared with other workers come last. They have the listener names of the worker's own sockets.
    """
    bound: list[tuple[Endpoint, socket.socket]] = []
    worker, buffer_bytes = config.worker, config.server.socket_receive_buffer_bytes
    for endpoint in (*config.listeners, *(worker.shared if worker else ())):
        try:
            sock = bind(endpoint.host, endpoint.port, buffer_bytes, with_others=worker is not None)
            bound.append((endpoint, sock))
        except OSError as error:
            # The start ends here, so no port may stay taken.
            for _, sock in bound:
                sock.close()
            given = "listeners" in config.static
            raise cannot_listen(str(endpoint), endpoint.port, error, "" if given else PORT_HINT) from None
    return bound


PORT_HINT: Final = "Use --port N, or stop it"


def cannot_listen(place: str, port: int, error: OSError, hint: str = "") -> StartupError:
    """Return the error of a start that cannot listen at `place`, the setting's text.

    `hint`: remedy where the port is taken and nobody chose it; empty: the place and a general remedy.
    """
    if error.errno != errno.EADDRINUSE:
        return StartupError(f"cannot listen on {place}: {error.strerror or error}")
    remedy = hint or f"Stop it, or change the port of {place}"
    return StartupError(f"port {port} is taken: is another broker running? {remedy}")


def bind_http(config: BrokerConfig) -> socket.socket | None:
    """Return a listening socket for the HTTP endpoint; None if HTTP is disabled. Early requests wait in the backlog."""
    if (address := config.http.address) is None:
        return None
    sock = None
    try:
        sock = bind(*address)
        sock.listen(HTTP_BACKLOG)
        return sock
    except OSError as error:
        if sock is not None:
            sock.close()
        told = f"http.listener={config.http.http_listener}"
        raise cannot_listen(told, address[1], error) from None


def listen_all(bound: Bound, backlog: int) -> None:
    """Start to listen on all bound sockets; connections are accepted when the broker runs. Raises StartupError."""
    for endpoint, sock in bound:
        try:
            sock.listen(backlog)
        except OSError as error:  # another broker bound the address at the same moment and was faster
            raise cannot_listen(str(endpoint), endpoint.port, error) from None
