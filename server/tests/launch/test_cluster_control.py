"""What other commands ask of a running `ottla cluster`: the socket in its folder, and what is shown of its answers."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.cli import main
from ottla.server.launch import cluster_control
from ottla.server.launch.cluster_control import (
    PARTITIONS_SHOWN_MAX,
    SOCKET,
    START_BROKER,
    STATUS,
    Asked,
    Unanswered,
    ask,
    ask_metadata,
    broker_lines,
    listen,
    parse_request,
    topic_lines,
)
from ottla.wire.errors import ProtocolViolation
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([STATUS, START_BROKER]),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(["do", "broker", "x"]), each, max_size=3),
)


async def answer(asked: Asked) -> dict[str, Any]:
    if asked.do == STATUS:
        return {"brokers": []}
    raise Unanswered(f"broker {asked.broker} runs already")


async def served(folder: Path, use: Any) -> Any:
    """What `use` gives, in a thread, while requests in this folder are answered."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster_control.serve_control, listen(folder), answer)
        given = await trio.to_thread.run_sync(use)
        nursery.cancel_scope.cancel()
    return given


@pytest.mark.parametrize("name", ["short", "long" * 40])
async def test_who_runs_the_cluster_answers(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()

    def use() -> list[Any]:
        told: list[Any] = [ask(folder, Asked(STATUS), timeout_s=30)]
        with pytest.raises(Unanswered, match="broker 2 runs already"):
            ask(folder, Asked(START_BROKER, 2), timeout_s=30)
        return told

    assert await served(folder, use) == [{"brokers": []}]
    assert (folder / SOCKET).stat().st_mode & 0o077 == 0
    with pytest.raises(Unanswered, match="no `ottla cluster` runs in"):
        ask(folder, Asked(STATUS), timeout_s=30)
    # What the last one left behind is no hindrance.
    assert await served(folder, use) == [{"brokers": []}]


async def test_rubbish_and_silence_harm_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def use() -> list[bytes]:
        told = []
        for sent in (b"rubbish\n", b"[" * 5_000, b""):
            monkeypatch.setattr(cluster_control, "REQUEST_S", 60.0 if sent else 0.05)
            with socket.socket(socket.AF_UNIX) as peer:
                peer.settimeout(30)
                peer.connect(str(tmp_path / SOCKET))
                try:
                    peer.sendall(sent)
                    told.append(peer.recv(1_000))
                except ConnectionError:
                    told.append(b"")
        monkeypatch.setattr(cluster_control, "REQUEST_S", 60.0)
        ask(tmp_path, Asked(STATUS), timeout_s=30)
        return told

    first, _, silent = await served(tmp_path, use)
    assert json.loads(first) == {"error": "a request is one line of JSON"}
    assert silent == b""


@given(JSON.map(lambda each: json.dumps(each).encode()) | st.binary(max_size=100))
def test_any_line_is_a_request_or_refused(line: bytes) -> None:
    try:
        asked = parse_request(line)
    except Unanswered:
        return
    assert asked.do in (STATUS, START_BROKER) and isinstance(asked.broker, int)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["status"], 1, "no `ottla cluster` runs in"),
        (["--status"], 1, "no `ottla cluster` runs in"),
        (["start-broker", "2"], 1, "no `ottla cluster` runs in"),
        (["start-broker"], 2, "takes the number of a broker"),
        (["status", "2"], 2, "takes the number of a broker"),
    ],
)
def test_without_a_cluster_it_says_so(
    arguments: list[str], code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", *arguments, "--data", str(tmp_path)]) == code
    streams = capsys.readouterr()
    assert words in streams.err and streams.err.count("\n") == 1 and not streams.out


# --- what is shown


def metadata(*topics: tuple[str, list[tuple[int, list[int], list[int]]]]) -> MetadataResponse:
    found = [
        MetadataResponseTopic(
            error_code=0,
            name=name,
            partitions=[
                MetadataResponsePartition(
                    error_code=0, partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=in_sync
                )
                for index, (leader, replicas, in_sync) in enumerate(partitions)
            ],
        )
        for name, partitions in topics
    ]
    return MetadataResponse(brokers=[], controller_id=2, topics=found)


def test_partitions_that_miss_something_are_marked() -> None:
    known = metadata(("b", [(1, [1, 2], [1])]), ("a", [(2, [1, 2], [2, 1]), (-1, [3], [])]))
    brokers = [
        {"number": 1, "host": "h", "port": 1, "state": "runs (pid 7)"},
        {"number": 2, "host": "h", "port": 2, "state": "has ended (signal 9)"},
    ]
    assert broker_lines(brokers, known) == [
        "broker  address  leads  state",
        "1       h:1      1      runs (pid 7)",
        "2       h:2      1      has ended (signal 9), is the controller",
    ]
    assert topic_lines(known, "") == [
        "topic  partition  leader  replicas  in sync",
        "a      0          2       1,2       2,1",
        "a      1          none    3         none     offline",
        "b      0          1       1,2       1        under-replicated",
    ]


def test_what_is_not_known_is_said() -> None:
    assert topic_lines(None, "no broker runs") == ["leaders are not known: no broker runs"]
    assert topic_lines(metadata(), "") == ["there are no topics yet"]
    many = metadata(("t", [(1, [1], [1])] * (PARTITIONS_SHOWN_MAX + 5)))
    assert len(topic_lines(many, "")) == PARTITIONS_SHOWN_MAX + 2
    assert topic_lines(many, "")[-1] == "and 5 partitions more"


@pytest.fixture
def stranger() -> Iterator[tuple[socket.socket, list[bytes]]]:
    """Somebody who says what the test has put into the list to whoever connects, and closes."""
    says: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer, suppress(OSError):  # who asks hangs up as soon as it has heard enough
                    peer.sendall(says[0])
                    peer.shutdown(socket.SHUT_WR)
                    peer.recv(10_000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener, says
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize(
    "said", [b"", b"\x7f\xff\xff\xff", b"\0\0\0\x08aaaaaaaa", b"\0\0\0\x20aaaa", b"HTTP/1.1 400 Bad Request"]
)
def test_somebody_else_at_the_port_is_an_error(stranger: tuple[socket.socket, list[bytes]], said: bytes) -> None:
    listener, says = stranger
    says.append(said)
    with pytest.raises((OSError, ProtocolViolation)):
        ask_metadata(*listener.getsockname(), None)
