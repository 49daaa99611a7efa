"""Certificates and encrypted sockets for tests."""

import socket
import ssl
from pathlib import Path

import pytest

from ottla.server.launch.certificates_command import Authority
from ottla.server.network.tls_batches import BatchedTlsTransport
from ottla.server.network.tls_session import Bios, TlsSession
from ottla.server.network.tls_transport import Pieces
from ottla.server.security.tls_listener import TlsListener

AUTHORITY = Authority("test authority", days=2)
BROKER = AUTHORITY.issue("broker", ["localhost", "127.0.0.1"], is_server=True, organization="Ottla")
CLIENT = AUTHORITY.issue("client", is_server=False, organization="Ottla")

INLINE = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": BROKER.key_pem.decode(),
    "ssl.keystore.certificate.chain": BROKER.certificate_pem.decode(),
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": AUTHORITY.certified.certificate_pem.decode(),
}


def listener(**settings: str) -> TlsListener:
    """One that shows BROKER, with more settings (`_` stands for `.`)."""
    own = {name.replace("_", "."): text for name, text in settings.items()}
    return TlsListener("SSL", "SSL", INLINE | own)


def client_context(directory: Path | None = None, **versions: ssl.TLSVersion) -> ssl.SSLContext:
    """What a client has that trusts AUTHORITY; with a directory to write to it shows CLIENT."""
    context = ssl.create_default_context(cadata=AUTHORITY.certified.certificate_pem.decode())
    for name, version in versions.items():
        setattr(context, name, version)
    if directory is not None:
        path = directory / "client.pem"
        path.write_bytes(CLIENT.key_pem + CLIENT.certificate_pem)
        context.load_cert_chain(path)
    return context


def step_both(ours: ssl.SSLSocket | TlsSession, theirs: ssl.SSLSocket) -> None:
    """Shake hands on both ends of a pair, in turns."""
    waiting: list[ssl.SSLSocket | TlsSession] = [ours, theirs]
    while waiting:
        for each in list(waiting):
            try:
                each.do_handshake()
                waiting.remove(each)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """The broker's and the client's end of a connection of TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        return server.accept()[0], theirs


def pair_of(
    server_context: ssl.SSLContext,
    client_context: ssl.SSLContext,
    host: str = "localhost",
    ends: tuple[socket.socket, socket.socket] | None = None,
) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """The broker's and the client's end of one connection to that host, after the handshake; neither blocks."""
    # Not over TCP unless `ends` are: what one end has sent is at the other one when the call returns.
    ours, theirs = ends or socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    server = server_context.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
    client = client_context.wrap_socket(theirs, server_hostname=host, do_handshake_on_connect=False)
    try:
        step_both(server, client)
    except BaseException:
        server.close()
        client.close()
        raise
    return server, client


def encrypted_pair(**versions: ssl.TLSVersion) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """The same between BROKER and a client without a certificate."""
    return pair_of(listener().context, client_context(**versions))


def batched_pair(
    pieces: Pieces,
    bios: Bios | None = None,
    ends: tuple[socket.socket, socket.socket] | None = None,
    **versions: ssl.TLSVersion,
) -> tuple[BatchedTlsTransport, ssl.SSLSocket]:
    """The broker's transport over buffers in memory, and its client without a certificate."""
    ours, theirs = ends or socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    session = TlsSession(listener().context, ours, bios or pieces.bios)
    client = client_context(**versions).wrap_socket(theirs, server_hostname="localhost", do_handshake_on_connect=False)
    step_both(session, client)
    return BatchedTlsTransport(session, pieces), client


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
