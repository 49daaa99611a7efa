"""Byte equality with kio, whose codec is made from Kafka's definitions by other people.

Each way: kio reads our bytes and finds the same values; what it writes are the same bytes; we read them as the same.
"""

import dataclasses
import datetime
import io
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.wire.schema import ZERO_UUID, Array, Primitive, Struct
from ottla.wire.tests.effort import examples
from ottla.wire.tests.message_values import EMBEDDED, cases, fields_at, messages, snake_case, values, versions

# kio is made from Kafka 4's definitions alone, which have no ZooKeeper mode any more.
LACKING = {
    "ProduceRequest": [0, 1, 2],
    "ProduceResponse": [0, 1, 2],
    "FetchRequest": [0, 1, 2, 3],
    "FetchResponse": [0, 1, 2, 3],
    **{
        f"{name}{kind}": versions
        for names, versions in (
            (("ListOffsets", "DeleteTopics", "OffsetFetch", "WriteTxnMarkers", "DescribeConfigs"), [0]),
            (("DescribeAcls", "CreateAcls", "DeleteAcls", "AlterReplicaLogDirs", "DescribeLogDirs"), [0]),
            (
                ("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"),
                [0],
            ),
            (("CreateTopics", "OffsetCommit", "OffsetForLeaderEpoch"), [0, 1]),
        )
        for name in names
        for kind in ("Request", "Response")
    },
    **{
        f"{name}{kind}": list(range(last + 1))
        for name, last in (("LeaderAndIsr", 7), ("StopReplica", 4), ("UpdateMetadata", 8), ("ControlledShutdown", 3))
        for kind in ("Request", "Response")
    },
}
# kio is of Kafka 4.3.
for newer, versions_of in (
    ("ApiVersions", [5]),
    ("DeleteGroups", [3]),
    ("TxnOffsetCommit", [6]),
    ("StreamsGroupHeartbeat", [1]),
    ("StreamsGroupDescribe", [1]),
    ("StreamsGroupTopologyDescriptionUpdate", [0]),
    ("UnregisterController", [0]),
):
    LACKING |= {f"{newer}{kind}": versions_of for kind in ("Request", "Response")}
# kio reads error codes into an enumeration, these times into datetimes and durations, which limits what they can be.
CODES = st.sampled_from([int(code) for code in ErrorCode])
TIMES = st.just(-1) | st.integers(0, 1 << 41)
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "error_code": CODES,
    "topic_config_error_code": CODES,
    "partition_error_code": CODES,
    "acknowledge_error_code": CODES,
    "transaction_start_time_ms": st.integers(0, 1 << 41),
    "session_lifetime_ms": st.integers(0, 1 << 41),
    "transaction_timeout_ms": st.integers(0, (1 << 31) - 1),
    "log_append_time_ms": TIMES,
    "retention_time_ms": TIMES,
    # Those of delegation tokens.
    **dict.fromkeys(("max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms"), st.integers(0, 1 << 41)),
    **dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), st.integers(0, 1 << 41)),
}


def kio_name(cls: type[Struct]) -> tuple[str, EntityType]:
    name, _, kind = snake_case(cls.__name__).rpartition("_")
    return (f"{name}_{kind}", EntityType.data) if cls in EMBEDDED else (name, EntityType[kind])


def kio_class(cls: type[Struct], version: int) -> Any:
    name, kind = kio_name(cls)
    return load_entity_schema(name, version, kind)


def shared_cases() -> list[Any]:
    return [case for case in cases() if case.values[1] not in LACKING.get(case.values[0].__name__, [])]


def same(ours: Any, theirs: Any, wire_type: Any, version: int) -> bool:
    if ours is None:
        return theirs is None
    if isinstance(wire_type, Array):
        pairs = zip(ours, theirs, strict=True)
        return all(same(our, their, wire_type.item, version) for our, their in pairs)
    if not isinstance(wire_type, Primitive):
        return same_fields(ours, theirs, version)
    return bool(ours == plain(theirs, wire_type.name))


def same_fields(ours: Struct, theirs: Any, version: int) -> bool:
    pairs = zip(fields_at(type(ours), version), dataclasses.fields(theirs), strict=True)
    return all(
        same(getattr(ours, name), getattr(theirs, other.name), field.type, version)
        and field.tag == other.metadata.get("tag")
        for (name, field), other in pairs
    )


def plain(value: Any, wire_type: str) -> Any:
    match value:
        case uuid.UUID():
            return value.bytes
        case datetime.timedelta():
            return value // datetime.timedelta(milliseconds=1)
        case datetime.datetime():
            return (value - datetime.datetime.fromtimestamp(0, datetime.UTC)) // datetime.timedelta(milliseconds=1)
        case None:
            return {"uuid": ZERO_UUID, "int64": -1}[wire_type]
    return value


def test_kio_lacks_only_the_versions_that_kafka_4_dropped() -> None:
    lacking: dict[str, list[int]] = {}
    for cls in (*messages(), *EMBEDDED):
        name, kind = kio_name(cls)
        for version in versions(cls):
            if kind not in schema_name_map.get(name, {}).get(version, {}):
                lacking.setdefault(cls.__name__, []).append(version)
    assert lacking == LACKING


@pytest.mark.thorough
@pytest.mark.parametrize(("cls", "version"), shared_cases())
@settings(max_examples=examples(6), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kio_reads_and_writes_the_same_bytes(cls: type[Struct], version: int, data: st.DataObject) -> None:
    message = data.draw(values(cls, version, SPECIAL))
    encoded = message.encode(version)
    entity = kio_class(cls, version)
    theirs, size = entity_reader(entity)(encoded, 0)
    assert size == len(encoded)
    assert same_fields(message, theirs, version)
    written = io.BytesIO()
    entity_writer(entity)(written, theirs)
    assert written.getvalue() == encoded
    assert cls.decode(written.getvalue(), version) == message
