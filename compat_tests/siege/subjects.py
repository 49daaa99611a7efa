"""The values of the fields of hostile requests, by the kind of cost that a request is meant to cause.

existing     the siege's own topic and group, named as often as the request has room for
strangers    names and numbers that are not there, each another
long         names as long as the wire allows, of scripts that take most bytes, with line breaks and zeros in them
extreme      the largest and smallest integers
refused      values for which a request is refused as a whole, however many elements have to be told so
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ottla.wire.schema import Message, Primitive, Struct, Uuid

TOPIC, GROUP = "siege", "siege-group"
LONG_MAX = 32_000
SCRIPTS = ("\n\r\0\x1b[31m", "ä", "中", "\U0001f980", "\u202e", "../")
INTEGERS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}

TOPIC_FIELDS = frozenset(("topic", "name", "topic_name", "topic_names", "resource_name", "topics"))
GROUP_FIELDS = frozenset(("group_id", "key", "coordinator_keys", "groups", "groups_names", "transactional_id"))
# Fields that have the same value in every attack, so that no attack undoes the world of the next.
FIXED: dict[str, Any] = {
    "validate_only": True,
    "allow_auto_topic_creation": False,
    "replica_id": -1,
    "acks": -1,
    "timeout_ms": 1000,
    "session_timeout_ms": 6000,
    "rebalance_timeout_ms": 6000,
    "max_wait_ms": 100,
    "session_epoch": -1,
    "session_id": 0,
    "producer_id": -1,
    "producer_epoch": -1,
    "num_partitions": 1,
    "replication_factor": 1,
    "broker_ids": 0,
    "broker_id": 4711,  # anybody may say that a broker shuts down, and it then leads nothing any more: as with Kafka
}
DEFAULTS: dict[str, Any] = {
    "resource_type": 2,
    "protocol_type": "consumer",
    "timestamp": 1,
    "min_bytes": 1,
    "max_bytes": 1 << 30,
    "partition_max_bytes": 1 << 20,
    "current_leader_epoch": -1,
    "response_partition_limit": 2000,
    "value": "1000",
    "path": "/nowhere",
}

# Takes the place of what is fixed, too.
REFUSED: dict[str, Any] = {
    "acks": 5,
    "election_type": 77,
    "isolation_level": 77,
    "key_type": 77,
    "resource_type": 77,
    "timeout_ms": 0,
}

Value = Callable[[type[Struct], str, Primitive, int], Any]


class Subject(NamedTuple):
    """A way to fill fields: `value(struct, field, type, number of the element)`. What is `free` is not fixed for this one."""

    name: str
    value: Value
    free: Collection[str] = ()


def _existing(struct: type[Struct], name: str, wire_type: Primitive, number: int) -> Any:
    if name in DEFAULTS:
        return DEFAULTS[name]
    if wire_type.name != "string":
        return wire_type.zero
    return TOPIC if name in TOPIC_FIELDS else GROUP if name in GROUP_FIELDS else "retention.ms"


def _strangers(struct: type[Struct], name: str, wire_type: Primitive, number: int) -> Any:
    if name in DEFAULTS and name != "value":
        return DEFAULTS[name]
    if wire_type is Uuid:
        return number.to_bytes(16, "big")
    if wire_type.name in ("int32", "int64"):
        return number
    return f"{name[:6]}-{number}" if wire_type.name == "string" else wire_type.zero


def _long(struct: type[Struct], name: str, wire_type: Primitive, number: int) -> Any:
    if wire_type.name != "string":
        return wire_type.zero
    script = SCRIPTS[number % len(SCRIPTS)]
    return f"{number}" + script * (LONG_MAX // len(script.encode()))


def _extreme(struct: type[Struct], name: str, wire_type: Primitive, number: int) -> Any:
    bits = INTEGERS.get(wire_type.name)
    if bits is not None:
        smallest = 0 if wire_type.name.startswith("u") else -(1 << bits)
        return (1 << bits) - 1 if number % 2 else smallest
    return TOPIC if wire_type.name == "string" else wire_type.zero


def _refused(struct: type[Struct], name: str, wire_type: Primitive, number: int) -> Any:
    if name in REFUSED:
        return REFUSED[name]
    return "" if wire_type.name == "string" and number == 1 else _strangers(struct, name, wire_type, number)


SUBJECTS = (
    Subject("existing", _existing),
    Subject("strangers", _strangers),
    Subject("long", _long),
    Subject("extreme", _extreme),
    Subject("refused", _refused, REFUSED),
)


def subjects_that_differ(request: type[Message]) -> list[Subject]:
    """Without those that are free to set only fields that this request has not: they are like another one."""
    names = {name for struct in request.structs().values() for name in struct.wire_fields}
    return [each for each in SUBJECTS if not each.free or not names.isdisjoint(each.free)]
