"""Byte equality with kafka-python's codec.

Each way: kafka-python reads our bytes and finds the same values; what it writes are the same bytes; we read them as
the same.
"""

import uuid
import warnings
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.schema import ZERO_UUID, Array, Primitive, Struct
from ottla.wire.tests.effort import examples
from ottla.wire.tests.message_values import EMBEDDED, cases, fields_at, messages, values, versions

with warnings.catch_warnings(action="ignore"):  # it reads its definitions in a way that Python 3.11 deprecates
    from kafka.protocol import admin, consumer, metadata, producer, sasl
    from kafka.protocol.consumer import metadata as embedded
    from kafka.protocol.schemas.fields.codecs import BitField

# What only brokers say to each other.
BETWEEN_BROKERS: dict[str, Iterable[int]] = {
    "LeaderAndIsr": range(8),
    "StopReplica": range(5),
    "UpdateMetadata": range(9),
    "ControlledShutdown": range(4),
    "AlterPartition": range(2, 4),
    "AllocateProducerIds": range(1),
    "Envelope": range(1),
}
# What kafka-python does not know: newer groups, and the newest versions.
UNKNOWN: dict[str, Iterable[int]] = {
    "ApiVersions": [5],
    "GetTelemetrySubscriptions": [0],
    "PushTelemetry": [0],
    "UnregisterBroker": [0],
    "AddRaftVoter": [0, 1],
    "RemoveRaftVoter": [0],
    "UnregisterController": [0],
    "DeleteGroups": [3],
    "CreateDelegationToken": [0, 1, 2, 3],
    "RenewDelegationToken": [0, 1, 2],
    "ExpireDelegationToken": [0, 1, 2],
    "DescribeDelegationToken": [0, 1, 2, 3],
    "TxnOffsetCommit": [6],
    "ConsumerGroupHeartbeat": [0, 1],
    "ConsumerGroupDescribe": [0, 1],
    "ShareGroupHeartbeat": [1],
    "ShareGroupDescribe": [1],
    "ShareFetch": [1, 2],
    "ShareAcknowledge": [1, 2],
    "InitializeShareGroupState": [0],
    "ReadShareGroupState": [0],
    "WriteShareGroupState": [0, 1],
    "DeleteShareGroupState": [0],
    "ReadShareGroupStateSummary": [0, 1],
    "StreamsGroupHeartbeat": [0, 1],
    "StreamsGroupDescribe": [0, 1],
    "DescribeShareGroupOffsets": [0, 1],
    "AlterShareGroupOffsets": [0],
    "DeleteShareGroupOffsets": [0],
    "StreamsGroupTopologyDescriptionUpdate": [0],
}
LACKING = {
    f"{name}{kind}": [*found] for name, found in (BETWEEN_BROKERS | UNKNOWN).items() for kind in ("Request", "Response")
}
# kafka-python reads an ApiVersions answer that carries an error as version 0, whatever it is.
SPECIAL: dict[str, dict[str, st.SearchStrategy[Any]]] = {"ApiVersionsResponse": {"error_code": st.just(0)}}


def kafka_python_class(cls: type[Struct]) -> Any:
    packages = (admin, consumer, metadata, producer, sasl, embedded)
    return next((getattr(package, cls.__name__) for package in packages if hasattr(package, cls.__name__)), None)


def lacks(cls: type[Struct], version: int) -> bool:
    theirs = kafka_python_class(cls)
    return theirs is None or version > theirs.max_version


def shared_cases() -> list[Any]:
    return [case for case in cases() if not lacks(*case.values)]


def same(ours: Any, theirs: Any, wire_type: Any, version: int) -> bool:
    if ours is None:
        return theirs is None
    if isinstance(wire_type, Array):
        return all(same(our, their, wire_type.item, version) for our, their in zip(ours, theirs, strict=True))
    if not isinstance(wire_type, Primitive):
        return same_fields(ours, theirs, version)
    if wire_type.name == "uuid":
        return bool(ours == (theirs.bytes if isinstance(theirs, uuid.UUID) else ZERO_UUID))
    if isinstance(theirs, set) or theirs is None:  # authorized operations are read into a set of bits
        return bool(ours & 0xFFFFFFFF == BitField.to_32_bit_field({31} if theirs is None else theirs))
    return bool(ours == theirs)


def same_fields(ours: Struct, theirs: Any, version: int) -> bool:
    others = [field for field in theirs._struct._fields if field.for_version_q(version)]
    for (name, field), other in zip(fields_at(type(ours), version), others, strict=True):
        value = getattr(theirs, other.name)
        if field.tag is not None and value == other.default:
            value_is_same = getattr(ours, name) == field.initial()
        else:
            value_is_same = same(getattr(ours, name), value, field.type, version)
        if not value_is_same or field.tag != other.tag:
            return False
    return True


def test_kafka_python_lacks_nothing_unexpected() -> None:
    lacking: dict[str, list[int]] = {}
    for cls in (*messages(), *EMBEDDED):
        for version in versions(cls):
            if lacks(cls, version):
                lacking.setdefault(cls.__name__, []).append(version)
    assert lacking == LACKING


@pytest.mark.thorough
@pytest.mark.parametrize(("cls", "version"), shared_cases())
@settings(max_examples=examples(6), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_kafka_python_reads_and_writes_the_same_bytes(cls: type[Struct], version: int, data: st.DataObject) -> None:
    message = data.draw(values(cls, version, SPECIAL.get(cls.__name__)))
    encoded = message.encode(version)
    options = {"header": False} if cls in EMBEDDED else {}
    theirs = kafka_python_class(cls).decode(encoded, version=version, **options)
    assert same_fields(message, theirs, version)
    theirs._header = None  # as in a message that was not read from the wire
    written = theirs.encode(version=version, **options)
    assert written == encoded
    assert cls.decode(written, version) == message
