"""Operations of the control port: a function for each, with the names that its JSON has.

`control.py` derives the paths' description (OpenAPI) from the functions: their parameters, defaults and first lines. Bytes are
texts where they are UTF-8, and base64 in the field of the same name with `_base64`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ottla.server.testing.control.wire_operations import add_wire_rule, clear_wire_rules, wire_requests, wire_rules
from ottla.server.testing.errors import LabError
from ottla.server.testing.groups import Group
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.records import Record
from ottla.server.testing.snapshots.files import Snapshot
from ottla.server.testing.transactions import Transaction


class Operation(NamedTuple):
    """An operation: GET looks, POST changes something."""

    method: str
    path: str
    run: Callable[..., Any]
    body_bytes_max: int = 64 * 1024


# ---------------------------------------------------------------------- the whole


def describe(kafka: Kafka) -> Any:
    """Return addresses, brokers, controller and time."""
    brokers = [{"id": each.node_id, "address": each.address, "is_running": each.is_running} for each in kafka.brokers]
    return {
        "bootstrap": kafka.bootstrap,
        "brokers": brokers,
        "controller": kafka.controller,
        "now_ms": kafka.clock.now_ms,
    }


def reset(kafka: Kafka) -> Any:
    """Replace the brokers by new, empty ones on new ports."""
    kafka.reset()
    return describe(kafka)


def snapshot(kafka: Kafka, name: str = "snapshot") -> Any:
    """Take a snapshot, and keep it in memory under a name, for /restore."""
    kept = _snapshots.setdefault(kafka, {})
    if name not in kept and len(kept) >= SNAPSHOTS_MAX:
        raise LabError(f"There are {SNAPSHOTS_MAX} snapshots, which is the most; take one under a name that is known.")
    kept[name] = kafka.snapshot()
    return sorted(kept)


def restore(kafka: Kafka, name: str = "snapshot", connections: str = "cut") -> Any:
    """Go back to the snapshot of a name. `connections`: "cut" closes all; "kept" keeps those that wait only for records."""
    kept = _snapshots.get(kafka, {})
    if name not in kept:
        raise LabError(f"There is no snapshot {name}; the snapshots are: {', '.join(sorted(kept)) or 'none'}.")
    kafka.restore(kept[name], connections=connections)
    return describe(kafka)


SNAPSHOTS_MAX = 100
RECORD_BYTES_MAX = 16 << 20
_snapshots: WeakKeyDictionary[Kafka, dict[str, Snapshot]] = WeakKeyDictionary()


# ---------------------------------------------------------------------- topics and records


def topics(kafka: Kafka) -> Any:
    """Return the number of partitions of each topic."""
    return kafka.topics()


def create_topic(
    kafka: Kafka,
    name: str,
    partitions: int = 1,
    replication_factor: int | None = None,
    settings: dict[str, Any] | None = None,
) -> Any:
    """Create a topic."""
    kafka.topic(name, partitions, replication_factor=replication_factor, settings=settings)
    return {"name": name}


def records(kafka: Kafka, topic: str, partition: int | None = None, read_committed: bool = False) -> Any:
    """Return the records of a topic, oldest first."""
    return [_shown(each) for each in kafka.records(topic, partition, read_committed=read_committed)]


def produce(
    kafka: Kafka,
    topic: str,
    value: str | None = None,
    value_base64: str | None = None,
    key: str | None = None,
    key_base64: str | None = None,
    partition: int | None = None,
    headers: dict[str, str] | None = None,
    timestamp: int | None = None,
) -> Any:
    """Append a record; without a value it is a tombstone."""
    made = kafka.produce(
        topic,
        _given(value, value_base64, "value"),
        key=_given(key, key_base64, "key"),
        partition=partition,
        headers={name: each.encode() for name, each in (headers or {}).items()},
        timestamp=timestamp,
    )
    return _shown(made[0])


def partition(kafka: Kafka, topic: str, partition: int = 0) -> Any:
    """Return leader, replicas, ISR and offsets of a partition."""
    return kafka.partition(topic, partition)._asdict()


def elect(kafka: Kafka, topic: str, partition: int, leader: int) -> Any:
    """Make a broker of the ISR the leader of a partition."""
    kafka.elect(topic, partition, leader)
    return kafka.partition(topic, partition)._asdict()


def move(kafka: Kafka, topic: str, partition: int, replicas: list[int]) -> Any:
    """Move a partition to other brokers."""
    kafka.move(topic, partition, replicas)
    return {"replicas": replicas}


def shrink_isr(kafka: Kafka, topic: str, partition: int = 0, to: list[int] | None = None) -> Any:
    """Let replicas fall out of sync until /partition/expand-isr; `to`: brokers that stay in sync, by default the leader."""
    kafka.shrink_isr(topic, partition, to)
    return kafka.partition(topic, partition)._asdict()


def expand_isr(kafka: Kafka, topic: str, partition: int = 0) -> Any:
    """Let all replicas of a partition catch up and be in sync again."""
    kafka.expand_isr(topic, partition)
    return kafka.partition(topic, partition)._asdict()


# ---------------------------------------------------------------------- time


def advance(kafka: Kafka, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> Any:
    """Move the brokers' clock forward; the answer comes when all timers that were due have fired."""
    kafka.clock.advance(seconds, minutes=minutes, hours=hours, days=days)
    return {"now_ms": kafka.clock.now_ms}


def speed(kafka: Kafka, factor: float) -> Any:
    """Run the brokers' clock `factor` times as fast as real time; 0 stops it."""
    kafka.clock.speed(factor)
    return {"now_ms": kafka.clock.now_ms}


# ---------------------------------------------------------------------- groups and transactions


def groups(kafka: Kafka) -> Any:
    """Return the names of all groups."""
    return kafka.groups()


def group(kafka: Kafka, name: str) -> Any:
    """Return type, state, members, committed offsets and lag of a group."""
    found = kafka.group(name)
    members = [each._asdict() | {"partitions": _places(each.partitions)} for each in found.members]
    offsets = [{"topic": topic, "partition": index, "offset": at} for (topic, index), at in found.offsets.items()]
    return {"type": found.type, "state": found.state, "members": members, "offsets": offsets, "lag": found.lag}


def evict(kafka: Kafka, group: str, member: str) -> Any:
    """Remove a member of a group, as its coordinator does after a session timeout."""
    return _left(kafka.group(group), lambda found: found.evict(member))


def rebalance(kafka: Kafka, group: str) -> Any:
    """Start a rebalance of a group."""
    return _left(kafka.group(group), Group.rebalance)


def freeze(kafka: Kafka, group: str) -> Any:
    """Hold back all requests about a group, until /group/thaw."""
    kafka.group(group).freeze()
    return {"group": group}


def thaw(kafka: Kafka, group: str) -> Any:
    """End /group/freeze; connections with waiting requests are closed."""
    kafka.group(group).thaw()
    return {"group": group}


def commit(kafka: Kafka, group: str, topic: str, partition: int, offset: int) -> Any:
    """Commit an offset of a group without members."""
    kafka.group(group).commit({(topic, partition): offset})
    return {"group": group}


def delete_group(kafka: Kafka, group: str) -> Any:
    """Delete a group with its offsets."""
    kafka.group(group).delete()
    return {"group": group}


def transactions(kafka: Kafka) -> Any:
    """Return all transactions."""
    return [_transaction(each) for each in kafka.transactions().values()]


def fence(kafka: Kafka, transactional_id: str) -> Any:
    """Fence the producer of a transactional id."""
    kafka.fence(transactional_id)
    return _transaction(kafka.transactions()[transactional_id])


def why(
    kafka: Kafka,
    group: str | None = None,
    topic: str | None = None,
    client_id: str | None = None,
    transactional_id: str | None = None,
    kind: str | None = None,
) -> Any:
    """Return why members were removed, writes refused, connections closed; the latest last."""
    found = kafka.why(group=group, topic=topic, client_id=client_id, transactional_id=transactional_id, kind=kind)
    return {"text": str(found), "causes": [each._asdict() | {"facts": dict(each.facts)} for each in found]}


def why_offset(kafka: Kafka, topic: str, offset: int, partition: int = 0) -> Any:
    """Return what became of an offset, as a state and as sentences."""
    return kafka.why(topic, partition, offset).as_json()


# ---------------------------------------------------------------------- brokers


def kill(kafka: Kafka, broker: int) -> Any:
    """End a broker as SIGKILL does."""
    kafka.broker(broker).kill()
    return describe(kafka)


def stop(kafka: Kafka, broker: int) -> Any:
    """Stop a broker as SIGTERM does."""
    kafka.broker(broker).stop()
    return describe(kafka)


def start(kafka: Kafka, broker: int) -> Any:
    """Start a broker that is down, on its disk and its port."""
    kafka.broker(broker).start()
    return describe(kafka)


def pause(kafka: Kafka, broker: int) -> Any:
    """Freeze a broker, as SIGSTOP does, until /broker/resume."""
    kafka.broker(broker).pause()
    return describe(kafka)


def resume(kafka: Kafka, broker: int) -> Any:
    """End /broker/pause; connections with waiting requests are closed."""
    kafka.broker(broker).resume()
    return describe(kafka)


def isolate(kafka: Kafka, broker: int, others: list[int] | None = None) -> Any:
    """Let a broker and `others` not reach each other; null: all others and the coordination tree."""
    kafka.broker(broker).isolate(others)
    return describe(kafka)


def heal(kafka: Kafka, broker: int) -> Any:
    """End /broker/isolate."""
    kafka.broker(broker).heal()
    return describe(kafka)


def fill_disk(kafka: Kafka, broker: int) -> Any:
    """Make all writes to a broker's disk fail with ENOSPC (disk full)."""
    kafka.broker(broker).fill_disk()
    return describe(kafka)


def free_disk(kafka: Kafka, broker: int) -> Any:
    """End /broker/fill-disk."""
    kafka.broker(broker).free_disk()
    return describe(kafka)


def corrupt(kafka: Kafka, broker: int, topic: str, partition: int, offset: int) -> Any:
    """Change a byte of the batch that has `offset`, on a broker's disk, so that its checksum is wrong."""
    kafka.broker(broker).corrupt(topic, partition, offset)
    return describe(kafka)


def begin_chaos(kafka: Kafka, seed: int | None = None, faults: list[str] | None = None) -> Any:
    """Start making random faults; return their seed."""
    return {"seed": kafka.chaos(seed, faults).seed}


def end_chaos(kafka: Kafka) -> Any:
    """End the faults; return those that were made."""
    for each in kafka.chaoses:
        each.stop()
    shown = ("seed", "number", "at_s", "text", "hits")
    return [{name: getattr(each, name) for name in shown} for each in kafka.faults]


OPERATIONS = (
    Operation("GET", "/kafka", describe),
    Operation("POST", "/reset", reset),
    Operation("POST", "/snapshot", snapshot),
    Operation("POST", "/restore", restore),
    Operation("GET", "/topics", topics),
    Operation("POST", "/topics", create_topic),
    Operation("GET", "/records", records),
    Operation("POST", "/records", produce, RECORD_BYTES_MAX),
    Operation("GET", "/partition", partition),
    Operation("POST", "/partition/elect", elect),
    Operation("POST", "/partition/move", move),
    Operation("POST", "/partition/shrink-isr", shrink_isr),
    Operation("POST", "/partition/expand-isr", expand_isr),
    Operation("POST", "/clock/advance", advance),
    Operation("POST", "/clock/speed", speed),
    Operation("GET", "/groups", groups),
    Operation("GET", "/group", group),
    Operation("POST", "/group/evict", evict),
    Operation("POST", "/group/rebalance", rebalance),
    Operation("POST", "/group/freeze", freeze),
    Operation("POST", "/group/thaw", thaw),
    Operation("POST", "/group/commit", commit),
    Operation("POST", "/group/delete", delete_group),
    Operation("GET", "/transactions", transactions),
    Operation("POST", "/transactions/fence", fence),
    Operation("GET", "/why", why),
    Operation("GET", "/why/offset", why_offset),
    Operation("GET", "/wire/requests", wire_requests),
    Operation("GET", "/wire/rules", wire_rules),
    Operation("POST", "/wire/rules", add_wire_rule),
    Operation("POST", "/wire/rules/clear", clear_wire_rules),
    Operation("POST", "/broker/kill", kill),
    Operation("POST", "/broker/stop", stop),
    Operation("POST", "/broker/start", start),
    Operation("POST", "/broker/pause", pause),
    Operation("POST", "/broker/resume", resume),
    Operation("POST", "/broker/isolate", isolate),
    Operation("POST", "/broker/heal", heal),
    Operation("POST", "/broker/fill-disk", fill_disk),
    Operation("POST", "/broker/free-disk", free_disk),
    Operation("POST", "/broker/corrupt", corrupt),
    Operation("POST", "/chaos/begin", begin_chaos),
    Operation("POST", "/chaos/end", end_chaos),
)


def _left(found: Group, change: Callable[[Group], None]) -> Any:
    change(found)
    return [each.member_id for each in found.members]


def _transaction(transaction: Transaction) -> dict[str, Any]:
    return transaction._asdict() | {"partitions": _places(transaction.partitions)}


def _places(partitions: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partition": index} for topic, index in partitions]


def _shown(record: Record) -> dict[str, Any]:
    headers = [_both("value", value) | {"name": name} for name, value in record.headers]
    place = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp}
    return place | _both("key", record.key) | _both("value", record.value) | {"headers": headers}


def _both(name: str, value: bytes | None) -> dict[str, str | None]:
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        text = None
    return {name: text, f"{name}_base64": None if value is None else b64encode(value).decode()}


def _given(text: str | None, encoded: str | None, name: str) -> bytes | None:
    if text is not None and encoded is not None:
        raise LabError(f"Give {name} or {name}_base64, not both.")
    if encoded is None:
        return None if text is None else text.encode()
    try:
        return b64decode(encoded, validate=True)
    except (Base64Error, ValueError):
        raise LabError(f"{name}_base64 is no base64.") from None
