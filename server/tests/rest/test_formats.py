"""Embedded formats, the codes of errors, and requests of the third version."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.rest import formats
from ottla.server.rest.errors import Code, KafkaFailure, RestError, code_of
from ottla.server.rest.times import parse_time
from ottla.server.rest.v3.records import _time_text, parse_record
from ottla.wire.errors import ErrorCode


@given(st.binary(max_size=50))
def test_binary_is_base64_with_or_without_padding(data):
    text = b64encode(data).decode()
    assert formats.encode("binary", text) == formats.encode("binary", text.rstrip("=")) == data
    assert formats.decode("binary", data) == text


@pytest.mark.parametrize(
    "data", ["*", "aGVs*bG8=", "a", "aGVsbG8=aGVsbG8=", "aGVs\nbG8=", 5, {}, "\u00e4\u00e4\u00e4\u00e4"]
)
def test_what_is_no_base64_is_refused(data):
    with pytest.raises(RestError) as refused:
        formats.encode("binary", data)
    assert refused.value.code == 400


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters(codec="utf-8")),
                    lambda inner: st.lists(inner, max_size=3)))  # fmt: skip
def test_json_comes_back(value):
    data = formats.encode("json", value)
    if value is None:
        assert data is None
    else:
        assert formats.decode("json", data) == value == json.loads(data)


def test_what_is_no_json_is_said():
    with pytest.raises(RestError) as refused:
        formats.decode("json", b"\xff{")
    assert refused.value.code == Code.SERIALIZATION
    for value in (float("inf"), "\ud800"):
        with pytest.raises(RestError) as refused:
            formats.encode("json", value)
        assert refused.value.code == Code.JSON_CONVERSION
    for kind in formats.WITH_SCHEMA:
        with pytest.raises(RestError) as refused:
            formats.encode(kind, {})
        assert refused.value.code == Code.MESSAGE_SERIALIZATION


def test_errors_of_brokers_have_confluents_codes():
    wanted = {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: 40301,
        ErrorCode.SASL_AUTHENTICATION_FAILED: 40101,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 40403,
        ErrorCode.TOPIC_ALREADY_EXISTS: 40002,
        ErrorCode.NOT_ENOUGH_REPLICAS: 50003,
        ErrorCode.MESSAGE_TOO_LARGE: 50002,
        ErrorCode.BROKER_NOT_AVAILABLE: 50302,
    }
    assert {error: code_of(error) for error in wanted} == wanted
    assert KafkaFailure(ErrorCode.NOT_ENOUGH_REPLICAS).status == 500
    assert RestError(Code.CONSUMER_ALREADY_EXISTS, "").status == 409
    assert json.loads(RestError(404, "\ud800").body)["error_code"] == 404


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2021-02-05T19:14:42Z", 1612552482000),
        ("2021-02-05T19:14:42.5+01:00", 1612548882500),
        ("2021-02-05T19:14:42", 1612552482000),
        (1612552482, 1612552482000),
    ],
)
def test_times_are_read(text, wanted):
    assert parse_time(text) == wanted


@pytest.mark.parametrize("value", ["yesterday", "9999999-01-01", -1, True, None, [], "2" * 100, 1 << 60])
def test_other_times_are_refused(value):
    with pytest.raises(RestError):
        parse_time(value)


def test_times_are_shown_as_java_shows_them():
    assert _time_text(1612552482000) == "2021-02-05T19:14:42Z"
    assert _time_text(1612552482500) == "2021-02-05T19:14:42.500Z"
    assert _time_text(1 << 62) is None


def test_a_record_of_the_third_version_is_read():
    parsed = parse_record(
        {
            "partition_id": 1,
            "headers": [{"name": "a", "value": "aGVs"}, {"name": "b"}],
            "key": {"type": "string", "data": "k"},
            "value": {"type": "JSON", "data": [1]},
            "timestamp": "2021-02-05T19:14:42Z",
        },
        "t",
    )
    record = parsed.record
    assert (record.key, record.value, record.partition) == (b"k", b"[1]", 1)
    assert record.headers == ((b"a", b"hel"), (b"b", None))
    assert record.timestamp_ms == 1612552482000
    assert (parsed.key.kind, parsed.value.kind) == ("STRING", "JSON")
    assert parse_record({"value": {"type": "BINARY", "data": None}}, "t").record.value is None


@pytest.mark.parametrize(
    "found",
    [
        [],
        {"valve": {}},
        {"value": {"type": "XML", "data": ""}},
        {"value": {"data": "", "schema": "no type"}},
        {"value": {"type": "JSON", "data": "", "schema_id": 1}},
        {"value": {"type": "AVRO", "data": "", "schema_id": 1}},
        {"value": {"data": "", "schema_id": 1, "schema_version": 1}},
        {"value": {"data": "", "subject": "s", "subject_name_strategy": "TOPIC_NAME"}},
        {"value": {"data": "", "schema_id": 1, "subject_name_strategy": "OTHER"}},
        {"value": {"type": "AVRO", "data": ""}},
        {"value": {"type": "STRING", "data": 5}},
        {"value": {"type": "STRING", "data": "\ud800"}},
        {"value": "text"},
        {"partition_id": -1},
        {"partition_id": 1 << 40},
        {"headers": {}},
        {"headers": [1]},
        {"headers": [{"value": ""}]},
        {"headers": [{"name": "\ud800"}]},
        {"timestamp": "now"},
    ],
)
def test_what_is_no_record_is_refused(found):
    with pytest.raises(RestError):
        parse_record(found, "t")
