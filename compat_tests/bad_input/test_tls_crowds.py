"""Thousands of handshakes that nobody finishes, and bytes that are none: clients are served meanwhile, on either listener."""

import contextlib
import random
import resource
import socket
import ssl
import struct

import pytest
from compat_tests.bad_input.bystander import MEGABYTE, is_served
from compat_tests.support.brokers import OttlaProcess, free_port, wait_until
from compat_tests.support.raw import Peer, receive_frame, request

from ottla.server.launch.certificates_command import make_certificates
from ottla.server.network.tls_handshakes import HANDSHAKES_MAX, PER_ADDRESS_MAX

HALF_OPEN = 3000
PER_ADDRESS = 600  # more than one address may have


class OnBothListeners(OttlaProcess):
    def __init__(self, directory, files):
        store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(files / "localhost.pem")}
        super().__init__(directory, {"inter.broker.listener.name": "PLAINTEXT"} | store)
        self.port, self.tls_port = free_port(), free_port()
        self.settings["listeners"] = f"PLAINTEXT://{self.host}:{self.port},SSL://{self.host}:{self.tls_port}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """Not the one that others share; the bystander of this folder is one of its clients."""
    files = tmp_path_factory.mktemp("stores")
    make_certificates(files, ["localhost"], days=2)
    broker = OnBothListeners(tmp_path_factory.mktemp("tls"), files)
    yield broker.start()
    broker.stop()


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, HALF_OPEN + 1000)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def client_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def client_hello():
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = client_context().wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def is_served_over_tls(broker):
    plain = socket.create_connection((broker.host, broker.tls_port), timeout=30)
    with client_context().wrap_socket(plain) as connection:
        connection.sendall(request("ApiVersions", 0))
        return receive_frame(connection) is not None


def test_thousands_of_half_open_handshakes_keep_nobody_out(broker, many_files):
    hello, before = client_hello(), broker.resident_bytes
    peers = []
    try:
        for number in range(HALF_OPEN):
            source = f"127.0.1.{1 + number // PER_ADDRESS}", 0
            peer = socket.create_connection((broker.host, broker.tls_port), timeout=30, source_address=source)
            peers.append(peer)
            # Some say nothing, some stop in the middle of their hello, and some do not answer the broker's.
            with contextlib.suppress(ConnectionError):  # the oldest are ended meanwhile
                peer.sendall(hello[: (0, 100, len(hello))[number % 3]])
            if number % 25 == 0:  # the kernel keeps few that wait to be accepted
                with Peer((broker.host, broker.port)) as other:
                    assert is_served(other)
        assert is_served_over_tls(broker)
        assert broker.resident_bytes - before < min(HALF_OPEN, HANDSHAKES_MAX) * 60_000
        # Of each address the oldest were ended, so that others come in.
        assert has_ended(peers[0])
        assert PER_ADDRESS > PER_ADDRESS_MAX
    finally:
        for peer in peers:
            peer.close()
    wait_until(lambda: is_served_over_tls(broker), "it is served as before")


def has_ended(peer):
    with contextlib.suppress(ConnectionError):
        while peer.recv(65536):
            pass
    return True  # else it would have been a TimeoutError


def test_bytes_that_are_no_handshake_end_the_connection(broker):
    dice, hello = random.Random(20261), client_hello()
    for turn in range(300):
        data = bytearray(hello if turn % 3 else dice.randbytes(dice.randrange(1, 2000)))
        for _ in range(dice.randrange(5)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        with socket.create_connection((broker.host, broker.tls_port), timeout=30) as peer:
            with contextlib.suppress(OSError):  # closed meanwhile
                peer.sendall(data[: dice.randrange(1, len(data) + 1)])
                peer.shutdown(socket.SHUT_WR)
            assert has_ended(peer)
    assert is_served_over_tls(broker)


def test_a_huge_handshake_is_not_gathered(broker):
    """A record of TLS says that a message of 16 MB follows."""
    before = broker.resident_bytes
    message = b"\1" + (0xFFFFFF).to_bytes(3, "big") + bytes(16_000)
    record = b"\x16\3\1" + struct.pack(">H", len(message)) + message
    for _ in range(20):
        with socket.create_connection((broker.host, broker.tls_port), timeout=30) as peer:
            with contextlib.suppress(OSError):  # closed meanwhile
                for _ in range(200):
                    peer.sendall(record)
                peer.shutdown(socket.SHUT_WR)
            assert has_ended(peer)
    assert broker.resident_bytes - before < 20 * MEGABYTE
