"""`ottla ping`: one question, and an end within its time whoever answers."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli import ping
from ottla.server.cli.cli import main
from ottla.server.cli.on_cluster import BOOTSTRAP_VARIABLE

PATIENT = ("--timeout", "60")
GOOD = struct.pack(">iihi", 10, ping.CORRELATION_ID, 0, 0)


@contextlib.contextmanager
def peer(act: Callable[[socket.socket], object]) -> Iterator[str]:
    """Somebody who takes one connection; gives the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    act(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(60)
        assert not thread.is_alive()


def answering(data: bytes) -> Callable[[socket.socket], object]:
    def act(connection: socket.socket) -> None:
        assert len(connection.recv(100)) == 14
        for byte in data:  # in pieces, as a network may bring it
            connection.send(bytes([byte]))

    return act


def test_a_broker_that_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with peer(answering(GOOD)) as address:
        assert main(["ping", address, *PATIENT]) == 0
    assert capsys.readouterr().out == f"{address} answers\n"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "the connection was closed"),
        (GOOD[:9], "the connection was closed"),
        (b"HTTP/1.1 400 Bad Request", "this is no Kafka broker"),
        (struct.pack(">iihi", 10, ping.CORRELATION_ID + 1, 0, 0), "this is no Kafka broker"),
        (struct.pack(">iihi", -1, ping.CORRELATION_ID, 0, 0), "this is no Kafka broker"),
        (struct.pack(">iihi", 10, ping.CORRELATION_ID, 41, 0), "error code 41"),
    ],
)
def test_whoever_else_answers(capsys: pytest.CaptureFixture[str], data: bytes, why: str) -> None:
    with peer(answering(data)) as address:
        assert main(["ping", address, *PATIENT]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"ottla: {address} does not answer: {why}")
    assert error.count("\n") == 1


@given(st.binary(max_size=40))
def test_any_bytes_are_an_answer_or_none(data: bytes) -> None:
    with peer(answering(data)) as address:
        status = main(["ping", address, *PATIENT])
    assert status == 1 or data[4:10] == GOOD[4:10]


def test_a_peer_that_says_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    asked = threading.Event()
    with peer(lambda connection: (connection.recv(100), asked.wait(60))) as address:
        assert main(["ping", address, "--timeout", "0.05"]) == 1
        asked.set()
    assert "timed out" in capsys.readouterr().err


def test_a_peer_that_sends_slowly_is_left_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Each byte would begin the time anew."""
    left = threading.Event()

    def act(connection: socket.socket) -> None:
        connection.recv(100)
        while not left.wait(0.02):
            connection.send(b"\0")

    with peer(act) as address:
        # Ten bytes would be complete after 0.2 s.
        assert main(["ping", address, "--timeout", "0.1"]) == 1
        left.set()


def test_a_plain_peer_is_not_encrypted(capsys: pytest.CaptureFixture[str]) -> None:
    with peer(lambda connection: (connection.recv(1000), connection.send(GOOD))) as address:
        assert main(["ping", address, "--tls", *PATIENT]) == 1
    assert "does not answer" in capsys.readouterr().err


def test_a_broker_that_starts_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    asked: list[float] = []

    def ask(host: str, port: int, timeout_s: float, *, encrypted: bool) -> None:
        asked.append(timeout_s)
        if len(asked) < 3:
            raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(ping, "_ask", ask)
    assert main(["ping", address, "--wait", "--timeout", "60"]) == 0
    assert len(asked) == 3
    assert main(["ping", address, "--timeout", "60"]) == 0
    asked.clear()
    assert main(["ping", address]) == 1
    assert len(asked) == 1


def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ping", "127.0.0.1:1", "--wait", "--timeout", "0.2"]) == 1
    assert "does not answer" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["here"], ["here:port"], ["here:0"], ["here:70000"], [":"]])
def test_what_is_no_address_is_wrong_use(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["ping", *words]) == 2
    assert "must be HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_a_time_has_to_be_one(seconds: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ping", "--timeout", seconds])
    assert ended.value.code == 2


def test_in_a_container_the_listener_of_the_variables_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with peer(answering(GOOD)) as address:
        port = address.rpartition(":")[2]
        monkeypatch.setenv("KAFKA_LISTENERS", f"CONTROLLER://:1,SSL://:2,PLAINTEXT://0.0.0.0:{port}")
        monkeypatch.setenv("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER")
        assert main(["ping", "--settings-from-environment", *PATIENT]) == 0
    assert capsys.readouterr().out == f"{address} answers\n"
    assert main(["ping", address, "--settings-from-environment"]) == 2
    assert "either HOST:PORT or --settings-from-environment" in capsys.readouterr().err
    monkeypatch.setenv("KAFKA_LISTENERS", "nonsense")
    assert main(["ping", "--settings-from-environment"]) == 2
    assert "Unable to parse nonsense" in capsys.readouterr().err


def test_the_first_bootstrap_server_of_the_environment_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(ping, "_ask", lambda host, port, timeout_s, *, encrypted: asked.append((host, port)))
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "broker1.example:9093, broker2.example:9093")
    assert main(["ping"]) == 0
    assert main(["ping", "broker3.example:1"]) == 0
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "")
    assert main(["ping"]) == 0
    assert asked == [("broker1.example", 9093), ("broker3.example", 1), ("127.0.0.1", 9092)]
    assert ping.BOOTSTRAP_VARIABLE == BOOTSTRAP_VARIABLE


@pytest.fixture
def gone() -> Iterator[list[str]]:
    """Two addresses at which nobody listens, and that nobody else is given meanwhile."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]


def test_each_of_several_brokers_is_asked_until_one_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, gone: list[str]
) -> None:
    asked = threading.Event()
    with peer(lambda connection: (connection.recv(100), asked.wait(60))) as silent:
        with peer(answering(GOOD)) as good:
            assert main(["ping", "-b", f"{gone[0]},{silent}, {good}", "--timeout", "3"]) == 0
        assert capsys.readouterr().out == f"{good} answers\n"
        asked.set()
    with peer(answering(GOOD)) as good:
        monkeypatch.setenv(BOOTSTRAP_VARIABLE, f"{gone[0]},{good}")
        assert main(["ping", *PATIENT]) == 0
    assert capsys.readouterr().out == f"{good} answers\n"
    assert main(["ping", ",".join(gone), "--timeout", "1"]) == 1
    told = capsys.readouterr().err
    assert told.count("does not answer: ") == 2 and all(each in told for each in gone) and told.count("\n") == 1
    assert main(["ping", f"{gone[0]},nowhere"]) == main(["ping", ","]) == 2
