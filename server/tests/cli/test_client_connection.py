"""Peers that are no brokers, or hang: what a command says of them, and that foreign bytes are read or refused."""

import http.server
import io
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.server.cli.cli import main
from ottla.server.cli.client.cluster import Cluster, parse_bootstrap, release_of
from ottla.server.cli.client.connection import (
    FIRST_BYTES_MAX,
    HTTP_PROBE,
    Address,
    BrokerConnection,
    NoResponse,
    _speaks_http,
    connect,
)
from ottla.server.cli.client.output import ConnectionLost, RequestFailed, UsageError
from ottla.server.cli.client.security import Security, read_properties, security_of
from ottla.server.network.protocol_detection import detect_protocol
from ottla.server.tests.cli.commanded import broker_in_thread
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.schema import VersionRange
from ottla.wire.tests.effort import examples

PATIENT_S = 60.0


@contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Somebody who serves each connection in this way, and closes it then. Serving ends when the client has hung up."""
    talks: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                talks.append(threading.Thread(target=talk, args=[sock], daemon=True))
                talks[-1].start()

        def talk(sock: socket.socket) -> None:
            with sock, suppress(OSError):
                serve(sock)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield Address("127.0.0.1", listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
    for each in (thread, *talks):
        each.join(PATIENT_S)
        assert not each.is_alive()


def says(answer: bytes) -> Callable[[socket.socket], None]:
    def serve(sock: socket.socket) -> None:
        sock.recv(65536)
        sock.sendall(answer)
        sock.recv(65536)

    return serve


def waits_for_a_line(sock: socket.socket) -> None:
    got = b""
    while piece := sock.recv(65536):
        got += piece
        if b"\r\n\r\n" in got:
            sock.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            return


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "speaks HTTP"),
        (says(b"\x15\x03\x03\x00\x02\x02\x50"), "security.protocol=SSL"),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "does not speak Kafka's protocol"),
        (says(struct.pack(">ii", 4, 77)), "another request"),
        (says(struct.pack(">iih", 6, 1, 0)), "cannot be read"),
        # Of what a broker may send later a other_protocol could make millions of objects.
        (says(struct.pack(">ii", FIRST_BYTES_MAX + 1, 1) + bytes(FIRST_BYTES_MAX)), "does not speak Kafka's protocol"),
        (lambda sock: None, "without an answer"),
        (lambda sock: sock.recv(1), "without an answer"),
    ],
)
def test_who_is_no_broker_is_told_so(serve, words, capsys):
    with peer(serve) as address:
        assert main(["status", "-b", str(address), "--timeout", "60"]) == 1
    streams = capsys.readouterr()
    assert streams.out == ""
    assert words in streams.err and streams.err.count("\n") == 1


@pytest.mark.parametrize(
    ("serve", "probe_s", "words"),
    [
        (lambda sock: sock.recv(65536) and sock.recv(65536), 0.3, "does not answer"),
        (waits_for_a_line, PATIENT_S, "speaks HTTP"),
    ],
)
def test_who_hangs_is_given_up(serve, probe_s, words, capsys, monkeypatch):
    monkeypatch.setattr("ottla.server.cli.client.connection.HTTP_PROBE_S", probe_s)
    with peer(serve) as address:
        assert main(["topics", "-b", str(address), "--timeout", "0.2"]) == 1
    assert words in capsys.readouterr().err


def test_a_slow_broker_gets_no_foreign_bytes_on_its_connection(capsys):
    """Whether it is a server of HTTP is asked on another one, by what is no frame and no wrong one either."""
    got: list[bytes] = []

    def serve(sock: socket.socket) -> None:
        said = b""
        while piece := sock.recv(65536):
            said += piece
        got.append(said)

    with peer(serve) as address:
        assert main(["topics", "-b", str(address), "--timeout", "0.2"]) == 1
        deadline_s = time.monotonic() + PATIENT_S
        while len(got) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)
    assert "does not answer" in capsys.readouterr().err
    request, probe = sorted(got, key=len, reverse=True)
    assert len(request) == 4 + struct.unpack(">i", request[:4])[0]
    assert probe == HTTP_PROBE
    assert detect_protocol(probe) == "Kafka's protocol without TLS"
    assert 0 < struct.unpack(">i", probe[:4])[0] < 100_000


def test_a_broker_logs_nothing_of_the_probe(tmp_path, caplog):
    with broker_in_thread(tmp_path) as (_, bootstrap):
        caplog.clear()
        [address] = parse_bootstrap(bootstrap)
        assert not _speaks_http(address, Security())
        connect(address, Security(), PATIENT_S).close()
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_server_of_http_answers_the_probe():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with redirect_stderr(io.StringIO()):
        assert _speaks_http(Address("127.0.0.1", server.server_port), Security())
    server.shutdown()
    server.server_close()
    thread.join(PATIENT_S)


def test_where_nobody_listens(capsys, monkeypatch):
    with socket.socket() as held:  # which does not listen, and keeps the port from others
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", address)
        assert main(["status", "--timeout", "60"]) == 1
    assert f"no broker listens on {address}" in capsys.readouterr().err
    assert main(["status", "-b", "no-such-host.invalid", "--timeout", "0.5"]) == 1
    assert main(["status", "-b", "a" * 300, "--timeout", "5"]) == 1


def test_another_broker_is_asked_when_one_hangs():
    with (
        peer(lambda sock: sock.recv(65536) and sock.recv(65536)) as silent,
        peer(a_broker()) as broker,
    ):
        cluster = Cluster.reached([silent, broker], Security(), 4.0)
        assert cluster.first.address == broker
        assert cluster.brokers() == [7]
        cluster.close()


def a_broker(metadata_version: int = 12) -> Callable[[socket.socket], None]:
    """Who knows nothing but Metadata; asked for newer versions of ApiVersions it answers as an old broker."""

    def serve(sock: socket.socket) -> None:
        while header := sock.recv(4):
            (size,) = struct.unpack(">i", header)
            frame = sock.recv(size, socket.MSG_WAITALL)
            key, version, correlation_id = struct.unpack_from(">hhi", frame)
            if key == ApiVersionsRequest.api_key:
                body = versions_answer(version, metadata_version)
            else:
                broker = MetadataResponse.structs()["MetadataResponseBroker"](node_id=7, host="127.0.0.1", port=1)
                answer = MetadataResponse(brokers=[broker], topics=[])
                body = (b"\0" if version >= 9 else b"") + answer.encode(version)
            sock.sendall(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    return serve


def versions_answer(version: int, metadata_version: int) -> bytes:
    known = ApiVersionsResponse.structs()["ApiVersion"]
    keys = [
        known(api_key=18, min_version=0, max_version=2),
        known(api_key=3, min_version=0, max_version=metadata_version),
    ]
    code = ErrorCode.UNSUPPORTED_VERSION if version > 2 else ErrorCode.NONE
    return ApiVersionsResponse(error_code=code, api_keys=keys).encode(0 if code else version)


def test_an_old_broker_says_what_it_understands():
    with peer(a_broker(metadata_version=4)) as address:
        connection = connect(address, Security(), PATIENT_S)
        assert connection.version_of(MetadataRequest) == 4
        assert connection.ask(MetadataRequest(topics=[])).brokers[0].node_id == 7
        with pytest.raises(RequestFailed, match="serves no version of ApiVersions that is needed: 0-2, not 0--1"):
            connection.version_of(ApiVersionsRequest, at_most=-1)
        connection.close()


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_foreign_bytes_are_read_or_refused(data, in_frame):
    """As the answer to a Metadata request, in a frame of their own or bare."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = BrokerConnection(ours, Address("test", 1))
        connection.versions = {3: VersionRange(0, 12), 18: VersionRange(0, 3)}
        connection.send(MetadataRequest(topics=[]))
        theirs.sendall(struct.pack(">ii", 4 + len(data), 1) + data if in_frame else data)
        theirs.shutdown(socket.SHUT_WR)
        try:
            assert isinstance(connection.receive(PATIENT_S), MetadataResponse)
        except ConnectionLost as failure:
            assert "test:1" in str(failure)
        assert len(connection._buffer) <= 65536


def test_a_length_costs_no_memory_before_its_bytes_come():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = BrokerConnection(ours, Address("test", 1))
        connection.versions = {3: VersionRange(0, 12)}
        connection.send(MetadataRequest(topics=[]))
        theirs.sendall(struct.pack(">i", 90 << 20) + bytes(70_000))
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionLost):
            connection.receive(PATIENT_S)
        assert len(connection._buffer) <= 1 << 18


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", ["a:1"]),
        ("a", ["a:9092"]),
        ("a:1, b , PLAINTEXT://c:3,", ["a:1", "b:9092", "c:3"]),
        ("[::1]:5,::1,[::2]", ["[::1]:5", "[::1]:9092", "[::2]:9092"]),
    ],
)
def test_addresses(text, found):
    assert [str(each) for each in parse_bootstrap(text)] == found


@settings(max_examples=examples(60), deadline=None)
@given(st.text(max_size=30))
@example("[")
def test_any_text_is_addresses_or_refused(text):
    with suppress(UsageError):
        assert all(0 < each.port < 65536 and each.host for each in parse_bootstrap(text))


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS: must be one of"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism=GSSAPI: must be one of"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "PLAIN needs a user"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"},
            "sasl.jaas.config: Login module control flag",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/no/such"}, "/no/such"),
    ],
)
def test_client_settings_that_cannot_be_used(texts, words):
    with pytest.raises(UsageError, match=words):
        security_of(texts)


def test_client_settings():
    assert security_of({}) == Security()
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    texts = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas,
        "group.id": "x",
    }
    login = security_of(texts).login
    assert (login.name, login.password) == ("u", "p")
    assert read_properties(None, ["a=b", "a = c=d"]) == {"a": "c=d"}
    with pytest.raises(UsageError, match="must be NAME=VALUE"):
        read_properties(None, ["a"])


def test_the_release_is_told_by_what_is_served():
    assert release_of({0: VersionRange(0, 13), 93: VersionRange(0, 0)}) == "4.4"
    assert release_of({0: VersionRange(0, 13), 1: VersionRange(4, 17)}) == "4.1"
    assert release_of({}) == "2.6 or older"


def test_a_wait_that_ends_a_moment_before_its_deadline_says_nothing(monkeypatch: pytest.MonkeyPatch, capfd):
    class Early:
        """Socket whose time limits end early, as those of a system may."""

        def settimeout(self, seconds: float) -> None:
            times.append(times[-1] + seconds - 0.0001 if seconds > 0.01 else times[-1] + seconds)

        def recv_into(self, view: memoryview) -> int:
            raise TimeoutError

    times = [0.0]
    monkeypatch.setattr("ottla.server.cli.client.connection.time.monotonic", lambda: times[-1])
    waiting = BrokerConnection.__new__(BrokerConnection)
    waiting.socket, waiting.address, waiting._answers = Early(), Address("127.0.0.1", 9092), 0  # type: ignore[assignment]
    with pytest.raises(NoResponse):
        waiting._received(memoryview(bytearray(1)), 1.0)
    assert capfd.readouterr().err == ""
