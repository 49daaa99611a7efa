"""`ottla why`: causes over HTTP, and what became of an offset over Kafka's protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.cli import main
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.inspection.cluster_view import _told, ask_broker, checked_url, usual_url
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.tests.test_why import Producer
from ottla.wire.errors import KafkaError
from ottla.wire.happenings import DISCONNECT, MEMBER_REMOVED, WRITE_REFUSED, Happenings, as_json, from_json
from ottla.wire.messages.delete_topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

TOKEN = "0123456789abcdef"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTTLA_CONSOLE_TOKEN", "OTTLA_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka(settings={"http.listener": "127.0.0.1:0"}) as made:
        made.topic("orders", settings={"max.message.bytes": 100})
        with pytest.raises(KafkaError):
            made.produce("orders", b"x" * 200)
        note(made, DISCONNECT, "the connection of 10.0.0.1 was closed: idle", host="10.0.0.1")
        yield made


def note(kafka: Kafka, kind: str, cause: str, **facts: str) -> None:
    async def in_loop() -> None:
        kafka.world.any_node().serving().happenings.note(kind, cause, **facts)

    kafka.call(in_loop)


def http_of(kafka: Kafka) -> str:
    address = kafka.world.any_node().serving().http_address
    assert address is not None
    return f"127.0.0.1:{address[1]}"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run `ottla why`; return exit code, stdout and stderr."""
    code = main(["why", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_causes_are_told_as_a_table(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--http", http_of(kafka))
    heading, line = out.splitlines()
    assert code == 0 and heading.split() == ["TIME", "WHAT", "WHY"]
    assert "Z  write refused  A batch of 'ottla.testing' for orders-0 was refused with" in line
    assert "connections, logins, throttles and addresses are left out" in err


def test_causes_are_narrowed_and_told_as_json(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "--http", http_of(kafka), "--topic", "orders", "--json")[1])
    assert [(each["kind"], each["facts"]["error"]) for each in found] == [("write refused", "MESSAGE_TOO_LARGE")]
    nothing = (0, "nothing out of the ordinary is known\n")
    assert run(capsys, "--http", http_of(kafka), "--group", "billing")[:2] == nothing
    assert run(capsys, "--http", http_of(kafka), "--kind", "rebalance")[:2] == nothing
    for kind in ("write-refused", "write refused"):
        assert "MESSAGE_TOO_LARGE" in run(capsys, "--http", http_of(kafka), "--kind", kind)[1]
    with pytest.raises(SystemExit):
        run(capsys, "--kind", "rebalanced")
    assert "--kind rebalanced: must be rebalance, member-removed, " in capsys.readouterr().err
    assert run(capsys, "--http", http_of(kafka), "--since", "2100-01-01")[:2] == nothing
    assert run(capsys, "--http", http_of(kafka), "--since", "soon")[0] == 2


def test_a_token_opens_what_is_told_of_connections(capsys: pytest.CaptureFixture[str]) -> None:
    with Kafka(settings={"http.listener": "127.0.0.1:0", "http.console.token": TOKEN}) as kafka:
        note(kafka, DISCONNECT, "the connection of 10.0.0.1 was closed: idle", host="10.0.0.1")
        code, _, err = run(capsys, "--http", http_of(kafka))
        assert code == 1 and "answers 401" in err and err.endswith("; --token gives the console's token\n")
        _, out, err = run(capsys, "--http", http_of(kafka), "--token", TOKEN)
        assert "disconnect  The connection of 10.0.0.1 was closed: idle." in out and not err


def test_addresses_that_no_kafka_client_learns_need_the_token(kafka: Kafka) -> None:
    note(kafka, WRITE_REFUSED, "a batch of 'c' at 10.0.0.1 for t-0 was refused", host="10.0.0.1", topic="t")
    note(kafka, MEMBER_REMOVED, "member 'm' was removed; its client is 'c' at 10.0.0.2", host="10.0.0.2", topic="t")
    told = ask_broker(f"http://{http_of(kafka)}", {"topic": "t"})
    assert [(each.cause, each.facts.get("host")) for each in told.happenings] == [
        ("a batch of 'c' for t-0 was refused", None),
        ("member 'm' was removed; its client is 'c' at 10.0.0.2", "10.0.0.2"),
    ]
    note(kafka, WRITE_REFUSED, f"a batch of {'c' * 575!r} at 10.0.0.1 for u-0", host="10.0.0.1", topic="u")
    asked = DeleteRecordsPartition(partition_index=0, offset=1)
    kafka.topic("v")
    kafka.produce("v", "a")
    kafka.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="v", partitions=[asked])], timeout_ms=1000))
    for topic, end in (("u", "c'..."), ("v", ", for this broker")):
        (other,) = ask_broker(f"http://{http_of(kafka)}", {"topic": topic}).happenings
        assert other.cause.endswith(end) and "host" not in other.facts
    for host, count in (("10.0.0.1", 0), ("10.0.0.2", 1)):
        assert len(ask_broker(f"http://{http_of(kafka)}", {"host": host}).happenings) == count


def test_without_http_the_command_says_what_is_missing(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    with Kafka() as other:
        code, _, err = run(capsys, "-b", other.bootstrap)
    assert code == 1 and "Only a broker of Ottla that serves HTTP tells why: `ottla start --http :9644`" in err
    code, _, err = run(capsys, "--http", kafka.bootstrap)
    assert code == 1 and err.startswith(f"ottla: http://{kafka.bootstrap} ")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("orders",), "an offset is named by three words: ottla why TOPIC PARTITION OFFSET"),
        (("orders", "x", "0"), "x is not the number of a partition"),
        (("orders", "0", "-1"), "-1 is not an offset"),
        (("--http", "ftp://x"), "--http ftp://x: must be HOST:PORT or a URL, such as http://localhost:9644"),
    ],
)
def test_wrong_words(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str) -> None:
    assert run(capsys, *words) == (2, "", f"ottla: {problem}\n")


def test_an_offset_over_the_network(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    kafka.topic("txn")
    producer = Producer(kafka, "tx", "txn")
    kafka.produce("txn", "plain", key="k")
    producer.write(b"a")
    there = ("-b", kafka.bootstrap, "--http", http_of(kafka))
    code, out, _ = run(capsys, "txn", "0", "0", *there)
    assert code == 0 and out.startswith(
        "Offset 0 of txn-0 is there: a record with a key of 1 byte and a value of 5 bytes"
    )
    assert "The transaction is open since offset 1" in run(capsys, "txn", "0", "1", *there)[1]
    producer.end(commit=False)
    assert "The transaction was aborted at " in run(capsys, "txn", "0", "1", *there)[1]
    assert "it is the marker that aborts a transaction" in run(capsys, "txn", "0", "2", *there)[1]
    found = json.loads(run(capsys, "txn", "0", "7", "--json", *there)[1])
    assert (found["state"], found["offset"]) == ("unwritten", 7)
    assert run(capsys, "nope", "0", "0", *there)[1] == "There is no topic nope.\n"


def test_a_removed_offset_names_the_settings_without_http(capsys: pytest.CaptureFixture[str]) -> None:
    with Kafka() as kafka:
        kafka.topic("old", settings={"retention.ms": 60_000, "segment.ms": 1000})
        kafka.produce("old", "a")
        kafka.clock.advance(minutes=10)
        out = run(capsys, "old", "0", "0", "-b", kafka.bootstrap)[1]
    assert out == (
        "Offset 0 of old-0 is not there any more: the log begins at offset 1.\n"
        "Retention (retention.ms=60000) removed it, or somebody deleted records before it.\n"
    )


def test_addresses_of_http() -> None:
    assert checked_url(":9644") == "http://localhost:9644" and checked_url("[::1]:9644") == "http://[::1]:9644"
    assert checked_url("https://x/path?query") == "https://x" and usual_url("::1") == "http://[::1]:9644"
    for wrong in ("", "http://", "x:y", "x:99999"):
        with pytest.raises(UsageError):
            checked_url(wrong)


def test_happenings_come_back_from_json() -> None:
    happenings = Happenings(lambda: 5)
    happenings.note("kind", "cause", topic="t", partition=3)
    (noted,) = happenings
    assert as_json(from_json(json.loads(json.dumps(as_json(noted))))) == as_json(noted)


foreign = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(["kind", "cause", "facts", "firstMs", "lastMs", "count", "number"])


@given(st.dictionaries(fields, foreign) | foreign, foreign)
def test_foreign_answers_are_refused_in_one_sentence(happening: Any, rest: Any) -> None:
    answer = {"happenings": [happening], "isWhole": rest, "leftOut": 0, "logEndOffset": None, "clusterId": rest}
    for value in (answer, rest):
        try:
            _told("http://x", json.dumps(value).encode())
        except RequestFailed as error:
            assert str(error) == "http://x answers something else; is it the HTTP endpoint of a broker?"


@given(st.binary(max_size=50))
def test_answers_that_are_no_json_are_refused(body: bytes) -> None:
    with pytest.raises(RequestFailed):
        _told("http://x", body)
