"""The environment of a broker: disks, clocks, threads, other brokers, ZooKeeper. A simulation brings its own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.log.descriptors import Descriptors
from ottla.replication.system import system_clock_ms
from ottla.server.imitation import NO_RESTRICTIONS, Restrictions
from ottla.server.network.transport import PlainTransport

if TYPE_CHECKING:
    import socket

    from ottla.replication.cluster.peers import Peers
    from ottla.replication.log.storage import Storage
    from ottla.server.cluster.session import Session
    from ottla.server.config.coordination_config import ZooKeeperConfig
    from ottla.server.network.readiness import Readiness
    from ottla.server.network.transport import Transport
    from ottla.server.peers.tcp import PeerConnectionConfig


def _open_zookeeper_session(config: ZooKeeperConfig) -> Session:
    from ottla.server.cluster.coordination.zookeeper import (
        ZooKeeperCoordination,  # here, because most brokers do without
    )

    return ZooKeeperCoordination(config)


def tcp_peers(readiness: Readiness, config: PeerConnectionConfig) -> Peers:
    """Return the connections of a broker to others over TCP, with TLS and login as configured."""
    from ottla.server.peers.tcp import TcpPeers

    # Most brokers do without both.
    encrypt = log_in = None
    if config.encryption is not None:
        from ottla.server.peers.encryption import PeerEncryption

        encrypt = PeerEncryption(config.encryption, readiness).encrypted
    if config.login is not None:
        from ottla.server.security.peer_login import PeerLogin

        log_in = PeerLogin(config.login).log_in
    return TcpPeers(
        serve=readiness.serve,
        receive_buffer_bytes=config.receive_buffer_bytes,
        connect_timeout_s=config.connect_timeout_s,
        connect_timeout_max_s=config.connect_timeout_max_s,
        encrypt=encrypt,
        log_in=log_in,
    )


@dataclass(frozen=True, kw_only=True)
class Environment:
    """External resources of a broker. `storage`: None for the disks of this machine."""

    storage: Storage | None = None
    descriptors: Descriptors = field(default_factory=Descriptors)
    clock_ms: Callable[[], int] = system_clock_ms
    run_in_thread: Callable[..., Awaitable[Any]] = trio.to_thread.run_sync
    open_session: Callable[[ZooKeeperConfig], Session] = _open_zookeeper_session
    make_peers: Callable[[Readiness, PeerConnectionConfig], Peers] = tcp_peers
    accept: Callable[[socket.socket], Transport] = PlainTransport
    """Makes the transport of an accepted connection without TLS. A test's stands between the client and the broker."""
    accept_encrypted: Callable[[Transport], Transport] | None = None
    """Makes the transport of a connection with TLS from that which encrypts; None: there is nothing between them."""
    random_bytes: Callable[[int], bytes] = os.urandom
    """Source of ids that must not be guessable: the operating system's, as for `secrets`."""
    restrictions: Restrictions = NO_RESTRICTIONS
    """Differences from Ottla as it is, by which a test's broker passes for another one."""
