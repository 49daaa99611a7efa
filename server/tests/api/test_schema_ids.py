"""Records of topics with schema validation: taken with the id of a schema of theirs, and refused without, as Confluent Server does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.config import RECORD_NAME, SUBJECT_NAME_STRATEGIES, TOPIC_NAME, LogConfig
from ottla.replication.log.batch_checks import CheckedRecords
from ottla.server.api.handlers.produce import FAST_PATH, produce
from ottla.server.api.produce import schema_ids
from ottla.server.api.produce.schema_ids import Named, SchemaIds, record_name
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.config.server_config import SchemaRegistryConfig
from ottla.server.tests.admin.test_console_avro import TinyRegistry, framed, tiny_registry
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_config_handlers import SET, TOPIC, change, describe
from ottla.server.tests.api.test_topic_handlers import creatable, create
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record, read_header

VALIDATED = {"confluent_value_schema_validation": "true"}
INTERCEPTOR = "is rejected by the record interceptor io.confluent.kafka.schemaregistry.validator.RecordSchemaValidator"
PERSON = {"type": "record", "name": "Person", "namespace": "people", "fields": []}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    # The machine may be busy.
    monkeypatch.setattr(schema_ids, "WAIT_S", 120.0)


def put(told: TinyRegistry, path: str, answer: Any, status: str = "200 OK") -> None:
    body = json.dumps(answer).encode()
    told.answers[path] = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def put_subjects(told: TinyRegistry, schema_id: int, *subjects: str) -> None:
    put(told, f"/schemas/ids/{schema_id}/subjects", list(subjects))


def put_nothing(told: TinyRegistry, schema_id: int) -> None:
    put(
        told,
        f"/schemas/ids/{schema_id}/subjects",
        {"error_code": 40403, "message": "Schema not found"},
        "404 Not Found",
    )


async def started(tmp_path: Path, url: str, **configs: str) -> AdministeredBroker:
    broker = await opened(tmp_path, {"confluent.schema.registry.url": url})
    told = await create(broker, creatable("t", **configs))
    assert told[0].error_code == 0, told
    return broker


async def sent(
    broker: AdministeredBroker, *pairs: tuple[bytes | None, bytes | None], codec: Compression = Compression.NONE
) -> Any:
    """Answer for one batch of keys and values."""
    now_ms = broker.context(12).now_ms
    batch = bytearray(encode_batch([Record(0, now_ms, *pair) for pair in pairs], compression=codec))
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])
    response: Any = await produce(request, broker.context(12))  # type: ignore[misc]
    return response.responses[0].partition_responses[0]


async def test_records_without_a_schema_of_the_topic_are_refused_and_listed(tmp_path: Path) -> None:
    async with tiny_registry() as told:
        put_subjects(told, 7, "other-value", "t-value")
        put_subjects(told, 8, "t-key", "u-value")
        put_nothing(told, 9)
        broker = await started(tmp_path, f"http://127.0.0.1:{told.port}/", **VALIDATED)
        good = framed(7, b"whatever")
        for codec in (Compression.NONE, Compression.GZIP):
            answer = await sent(broker, (b"k", good), (None, None), codec=codec)
            assert (answer.error_code, answer.record_errors) == (0, [])
        values = [
            good,
            b"text",
            None,
            framed(8, b""),
            framed(9, b""),
            b"\0\0\0\0",
            framed(-7, b""),
            b"\1" + good[1:],
            b"",
        ]
        for codec in (Compression.NONE, Compression.GZIP):
            answer = await sent(broker, *((b"key", value) for value in values), codec=codec)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
            assert [each.batch_index for each in answer.record_errors] == [1, 3, 4, 5, 6, 7, 8]
            text = answer.record_errors[0].batch_index_error_message
            assert text.startswith("Log record DefaultRecord(offset=1, timestamp=")
            assert text.endswith(f", key=3 bytes, value=4 bytes) {INTERCEPTOR}")
            assert answer.error_message.startswith(
                "One or more records have been rejected due to 7 record errors in total, and only showing"
            )
        [partition] = [each for each in broker.replicas.partitions() if each.topic == "t"]
        assert partition.log.log_end_offset == 4
        # What is known is not asked for again.
        paths = [each.split()[1].decode() for each in told.asked]
        assert paths.count("/schemas/ids/7/subjects") == 1


async def test_keys_have_rules_of_their_own(tmp_path: Path) -> None:
    async with tiny_registry() as told:
        put_subjects(told, 7, "t-value")
        put_subjects(told, 8, "t-key")
        url = f"http://127.0.0.1:{told.port}"
        broker = await started(tmp_path, url, confluent_key_schema_validation="true")
        assert (await sent(broker, (framed(8, b""), b"text"), (None, b"text"))).error_code == 0
        answer = await sent(broker, (framed(7, b""), b"text"))
        assert answer.error_code == ErrorCode.INVALID_RECORD and len(answer.record_errors) == 1
        assert await change(broker, (TOPIC, "t", [("confluent.value.schema.validation", SET, "true")])) == [(0, None)]
        assert (await sent(broker, (framed(8, b""), b"text"))).error_code == ErrorCode.INVALID_RECORD
        assert (await sent(broker, (framed(8, b""), framed(7, b"")))).error_code == 0


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ({"schema": json.dumps(PERSON)}, "people.Person"),
        ({"schema": '{"type": "record", "name": "a.B", "namespace": "c", "fields": []}'}, "a.B"),
        ({"schema": '{"type": "enum", "name": "E", "symbols": []}'}, "E"),
        ({"schema": '"string"'}, "string"),
        ({"schema": '["null", "int"]'}, "union"),
        ({"schema": '{"type": "array", "items": "int"}'}, "array"),
        ({"schema": '{"title": "Person", "type": "object"}', "schemaType": "JSON"}, "Person"),
        ({"schema": '{"type": "object"}', "schemaType": "JSON"}, None),
        ({"schema": "true", "schemaType": "JSON"}, None),
        (
            {
                "schema": '// package a;\nsyntax = "message X {}"; import "b"; /* message Y */ enum E { message = 0; }\n'
                "message /* here */ Person { message Inner {} } package a.b; message Other {}",
                "schemaType": "PROTOBUF",
            },
            "a.b.Person",
        ),
        ({"schema": 'syntax = "proto3"; message M {}', "schemaType": "PROTOBUF"}, "M"),
        ({"schema": 'enum E { A = 0; }', "schemaType": "PROTOBUF"}, None),
        ({"schema": "{"}, None),
        ({"schema": "7"}, None),
        ({"schema": 7}, None),
        ([], None),
    ],
)  # fmt: skip
def test_the_name_of_a_record_is_that_of_its_schema(answer: Any, name: str | None) -> None:
    assert record_name(answer) == name


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [*zip(SUBJECT_NAME_STRATEGIES, ("t-value", "people.Person", "t-people.Person"), strict=True)],
)
async def test_the_strategy_names_the_subject(tmp_path: Path, strategy: str, subject: str) -> None:
    async with tiny_registry() as told:
        for schema_id, subjects in ((7, [subject]), (8, ["t-key", "Person", "t-Person"])):
            put_subjects(told, schema_id, *subjects)
            put(told, f"/schemas/ids/{schema_id}", {"schema": json.dumps(PERSON)})
        url = f"http://127.0.0.1:{told.port}"
        broker = await started(tmp_path, url, **VALIDATED, confluent_value_subject_name_strategy=strategy)
        assert (await sent(broker, (None, framed(7, b"")))).error_code == 0
        assert (await sent(broker, (None, framed(8, b"")))).error_code == ErrorCode.INVALID_RECORD


async def test_an_outage_is_a_reason_to_try_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schema_ids, "AWAY_S", 0.0)
    caplog.set_level("INFO", "ottla.schemas")
    async with tiny_registry() as told:
        url = f"http://127.0.0.1:{told.port}"
        broker = await started(tmp_path, url, **VALIDATED)
        # Another server, too, says 404; and a registry that cannot read its topic has an error of its own.
        for status, answer in (
            ("404 Not Found", {}),
            ("500 Internal Server Error", {"error_code": 50001}),
            ("200 OK", None),
        ):
            put(told, "/schemas/ids/7/subjects", answer, status)
            if answer is None:
                told.answers["/schemas/ids/7/subjects"] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnone"
            refused = await sent(broker, (None, framed(7, b"")))
            assert (refused.error_code, refused.record_errors) == (ErrorCode.REQUEST_TIMED_OUT, [])
            assert refused.error_message.startswith(f"The schema registry cannot be asked: {url}: the ")
            # That these are no good is known without a registry.
            refused = await sent(broker, (None, framed(7, b"")), (None, b"text"))
            assert (refused.error_code, [each.batch_index for each in refused.record_errors]) == (87, [1])
        for answer in (5, {"t-value": 1}, "t-value"):
            put(told, "/schemas/ids/7/subjects", answer)
            refused = await sent(broker, (None, framed(7, b"")))
            assert (
                refused.error_code == ErrorCode.REQUEST_TIMED_OUT and "no subjects of schema 7" in refused.error_message
            )
        put_subjects(told, 7, "t-value")
        assert (await sent(broker, (None, framed(7, b"")))).error_code == 0
    # Gone for good; what is known stays known.
    assert (await sent(broker, (None, framed(7, b"")))).error_code == 0
    refused = await sent(broker, (None, framed(8, b"")))
    assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT
    lines = [each.getMessage() for each in caplog.records if each.name == "ottla.schemas"]
    assert [line.split(" ")[0] for line in lines] == ["no", "the", "no"]


async def test_an_answer_that_cannot_be_used_holds_up_no_other_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_ids, "AWAY_S", 1000.0)
    async with tiny_registry() as told:
        put_subjects(told, 7, *(f"s{number}" for number in range(25_000)))
        put_subjects(told, 8, "t-value")
        broker = await started(tmp_path, f"http://127.0.0.1:{told.port}", **VALIDATED)
        refused = await sent(broker, (None, framed(7, b"")))
        assert (refused.error_code, refused.record_errors) == (ErrorCode.REQUEST_TIMED_OUT, [])
        assert (await sent(broker, (None, framed(8, b"")))).error_code == 0


async def test_a_registry_that_stalls_holds_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_ids, "WAIT_S", 0.05)
    async with tiny_registry() as told:
        put_subjects(told, 7, "t-value")
        broker = await started(tmp_path, f"http://127.0.0.1:{told.port}", **VALIDATED)
        await create(broker, creatable("plain"))
        refused = await sent(broker, (None, framed(8, b"")))  # it does not answer
        assert refused.error_code == ErrorCode.REQUEST_TIMED_OUT and "has not answered" in refused.error_message


async def test_what_was_unknown_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with tiny_registry() as told:
        put_nothing(told, 7)
        broker = await started(tmp_path, f"http://127.0.0.1:{told.port}", **VALIDATED)
        monkeypatch.setattr(schema_ids, "UNKNOWN_S", 1000.0)
        for _ in range(2):
            assert (await sent(broker, (None, framed(7, b"")))).error_code == ErrorCode.INVALID_RECORD
        assert len(told.asked) == 1
        broker.schema_ids._kept.clear()
        monkeypatch.setattr(schema_ids, "UNKNOWN_S", 0.0)
        assert (await sent(broker, (None, framed(7, b"")))).error_code == ErrorCode.INVALID_RECORD
        put_subjects(told, 7, "t-value")
        assert (await sent(broker, (None, framed(7, b"")))).error_code == 0


async def test_work_and_memory_for_foreign_ids_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, limit in (("IDS_MAX", 30), ("UNKNOWN_MAX", 5), ("KEPT_MAX", 3)):
        monkeypatch.setattr(schema_ids, name, limit)
    async with tiny_registry() as told:
        for schema_id in range(40):
            put_nothing(told, schema_id)
        broker = await started(tmp_path, f"http://127.0.0.1:{told.port}", **VALIDATED)
        refused = await sent(broker, *((None, framed(each, b"")) for each in range(40)))
        # Those that were asked for, and those beyond what is looked at.
        assert [each.batch_index for each in refused.record_errors] == [*range(5), *range(30, 40)]
        assert (len(told.asked), len(broker.schema_ids._kept)) == (5, 3)


async def test_topics_without_validation_stay_on_the_fast_path(tmp_path: Path) -> None:
    broker = await started(tmp_path, "http://127.0.0.1:1", **VALIDATED)
    await create(broker, creatable("plain"))
    assert broker.log_config("t").validates_schemas and not broker.log_config("plain").validates_schemas
    now_ms = broker.context(12).now_ms
    for topic, is_answered in (("plain", True), ("t", False)):
        batch = bytearray(encode_batch([Record(0, now_ms, None, b"text")]))
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])
        body = bytearray(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]).encode(12))
        answer = FAST_PATH[12](memoryview(body), 0, len(body), broker.context(12))
        assert (answer is not None) == is_answered
    assert "schema_ids" in vars(type(broker).__mro__[1]) and "schema_ids" not in vars(broker)


async def test_settings_are_told_where_they_are_given(tmp_path: Path) -> None:
    broker = await started(tmp_path, "http://127.0.0.1:1", **VALIDATED)
    await create(broker, creatable("plain"))
    names = [[each.name for each in describe(broker, TOPIC, topic).configs] for topic in ("t", "plain")]
    assert set(names[0]) - set(names[1]) == {"confluent.value.schema.validation"}
    assert not any(name.startswith("confluent") for name in names[1])
    refused = await create(broker, creatable("u", confluent_value_subject_name_strategy="Other"))
    assert refused[0].error_code == ErrorCode.INVALID_CONFIG


async def test_validation_needs_a_registry(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    [refused] = await create(broker, creatable("t", **VALIDATED))
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_CONFIG,
        "Schema validation needs the broker's confluent.schema.registry.url",
    )


@pytest.mark.parametrize("url", ["registry:8081", "http://a,ftp://b", "http://me:secret@a"])
def test_urls_that_cannot_be(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"confluent\.schema\.registry\.url"):
        load_config({"log.dirs": str(tmp_path), "confluent.schema.registry.url": url})


@given(st.lists(st.none() | st.binary(max_size=8) | st.integers(0, 3).map(lambda each: framed(each, b"x")), min_size=1))
def test_whatever_bytes_there_are_the_verdict_is_that_of_a_plain_look(values: list[bytes | None]) -> None:
    batch = encode_batch([Record(0, 1, None, value) for value in values])
    checked = CheckedRecords(memoryview(batch), read_header(batch), 1, -1)
    ids = SchemaIds(SchemaRegistryConfig())
    for schema_id in range(256):
        key = "t", Named(schema_ids.Rule(False, TOPIC_NAME), schema_id)
        ids._kept[key] = float("inf"), schema_id in (1, 2)

    async def refusal() -> KafkaError | None:
        return await ids.refusal("t", LogConfig(confluent_value_schema_validation=True), checked, 1 << 20)

    bad = [
        index
        for index, value in enumerate(values)
        if value is not None and not (len(value) >= 5 and value[:5] in (b"\0\0\0\0\1", b"\0\0\0\0\2"))
    ]
    found: Any = trio.run(refusal)
    # An id beyond those that are known is asked for, and there is nobody to ask.
    if found is not None and found.code is ErrorCode.REQUEST_TIMED_OUT:
        assert all(values[index][:1] == b"\0" and len(values[index]) >= 5 for index in bad)  # type: ignore[index, arg-type]
    else:
        listed = [] if found is None else [index for index, _ in found.record_errors]
        assert set(listed) <= set(bad) and bool(listed) == bool(bad)


@given(st.text("/*\"'{};.message package\n\\", max_size=200))
def test_no_text_of_protobuf_is_too_strange(text: str) -> None:
    name = record_name({"schema": text, "schemaType": "PROTOBUF"})
    assert name is None or name.strip()


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_text_that_ends_within_a_string_is_looked_through_once(quote: str) -> None:
    """Else each quotation mark of it would begin a look at all that follows."""
    text = quote + f"\\{quote}" * 1000 + "\\"
    assert schema_ids._PROTOBUF_TOKENS.findall(text) == [text]


@pytest.mark.parametrize("text", ["/**/ * /***", '// a"', "'\\'", '"\\'])
def test_a_token_that_the_text_ends_within_is_one(text: str) -> None:
    found = schema_ids._PROTOBUF_TOKENS.findall(text)
    assert found == (["/**/", "/***"] if text.startswith("/*") else [text])


def test_a_protobuf_text_beyond_the_limit_is_not_looked_through() -> None:
    text = "message M {}"
    for beyond, name in ((0, "M"), (1, None)):
        padded = text.rjust(schema_ids.TEXT_MAX + beyond)
        assert record_name({"schema": padded, "schemaType": "PROTOBUF"}) == name


def test_the_strategies_are_those_of_confluent() -> None:
    assert RECORD_NAME == "io.confluent.kafka.serializers.subject.RecordNameStrategy"
