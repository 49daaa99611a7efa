"""Random but valid requests over a small world, made from the wire declarations; and how they are told.

A step is plain data, so that a sequence can be kept as a file and read again:

    {"api": "ListOffsets", "version": 7, "fields": {"topics": [{"name": "<one>", ...}]}}

Fields that are left out have their defaults. What stands in angle brackets is looked up in the world of the telling:
names and ids of its topics and groups, the member id and generation that the last JoinGroup gave, the last fetch session,
and an idempotent producer. Records are described by a dictionary, see `records_of`.

Every served request is drawn in every version that Apache Kafka 4.3 speaks, but for those of `LEFT_OUT`. What changes
the cluster is only validated, because Kafka's own brokers learn of such changes one after the other. Values come from
`VALUES`, by the name of the field; a field that is not there takes its default.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

from compat_tests.differential.asking import fill
from compat_tests.differential.asking_records import batch, new_producer, record
from compat_tests.differential.conversation import COORDINATOR_IS_COMING, Talk, Topic, newest, release_for
from hypothesis import strategies as st

import ottla.wire.messages
from ottla.server.gate.dispatch import served_routes
from ottla.wire.compression import Compression, compress
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_groups import DescribeGroupsRequest
from ottla.wire.schema import Array, Bytes, Field, Message, Records, Struct, Uuid, VersionRange

Step = dict[str, Any]
STEPS_MAX = 10
LEFT_OUT = {
    "ApiVersions": "what is served differs by design",
    "DescribeLogDirs": "sizes on a disk are everybody's own",
    "ListGroups": "it names the groups of all tellings",
}
WEIGHTS = {"ProduceRequest": 4, "FetchRequest": 4, "OffsetCommitRequest": 2, "JoinGroupRequest": 2}
TOPICS = {"one": 1, "two": 2, "compacted": 1}
GROUPS = ("group", "other group")
INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1

# What is there comes first and often, so that steps meet.
topic_names = ("<one>", "<one>", "<one>", "<two>", "<compacted>", "nothing", "", "not a name")
topic_ids = ("<id of one>", "<id of one>", "<id of two>", "00" * 16, "07" * 16)
group_ids = ("<group>", "<group>", "<other group>", "")
indexes = (0, 0, 0, 1, 2, -1, INT32_MAX)
offsets = (0, 1, 2, 3, 4, 5, 6, -1, -2, INT64_MAX)
epochs = (-1, 0, 1, INT32_MAX)
config_names = ("retention.ms", "cleanup.policy", "max.message.bytes", "nothing", "")
config_values = ("1000", "-1", "-2", "compact", "", None)

# The values of a field, by its struct's and its own name or by its own alone.
VALUES: dict[str, tuple[Any, ...]] = {
    "topic": topic_names,
    "name": topic_names,
    "topic_id": topic_ids,
    "topic_names": ("nothing", "", "not a name"),
    # Not the id of zeros: two of its partitions are a null pointer in Kafka's FetchResponse, and the whole request fails.
    "FetchTopic.topic_id": (*topic_ids[:3], topic_ids[4]),
    "DeleteTopicState.name": ("nothing", "", None),
    "DeleteTopicState.topic_id": topic_ids[3:],
    "group_id": group_ids,
    "groups_names": group_ids,
    "DescribeGroupsRequest.groups": group_ids,
    "coordinator_keys": group_ids,
    "FindCoordinatorRequest.key": group_ids,
    "index": indexes,
    "partition": indexes,
    "partition_index": indexes,
    "Cursor.partition_index": (0, 1, 2, -1),  # near 2^31 Kafka's sum of it and the limit turns negative
    "partition_indexes": indexes,
    "ForgottenTopic.partitions": indexes,
    "offset": offsets,
    "fetch_offset": offsets,
    "committed_offset": offsets,
    "committed_metadata": ("", "words", None),
    "committed_leader_epoch": epochs,
    "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, 1000, 1001, 1004, 1005, INT64_MAX),
    "current_leader_epoch": epochs,
    "leader_epoch": epochs,
    "last_fetched_epoch": epochs,
    "isolation_level": (0, 1),
    "ListOffsetsRequest.replica_id": (-1, -2),
    "OffsetForLeaderEpochRequest.replica_id": (-1, -2),
    "FetchRequest.replica_id": (-1,),
    "FetchPartition.log_start_offset": (-1, 0),
    "timeout_ms": (10_000, 0),
    "acks": (-1, 1, 2),
    "max_wait_ms": (0,),
    "min_bytes": (0, 1),
    "max_bytes": (0, 1, 100, 1 << 20),
    "partition_max_bytes": (0, 1, 100, 1 << 20),
    "session_id": (0, "<session>", 7),
    "session_epoch": (-1, 0, 1, 2),
    "rack_id": ("",),
    "generation_id": ("<generation>", "<generation>", -1, 0, 1, 2),
    "generation_id_or_member_epoch": ("<generation>", "<generation>", -1, 0, 1),
    "member_epoch": (-1, 0, "<generation>"),
    "member_id": ("<member>", "<member>", "", "stranger"),
    "group_instance_id": (None, "instance"),
    "session_timeout_ms": (30_000, 1, INT32_MAX),
    "rebalance_timeout_ms": (30_000,),
    "protocol_type": ("consumer", "other", "", None),
    "JoinGroupRequest.protocol_type": ("consumer", "other", ""),
    "protocol_name": ("range", "other", None),
    "JoinGroupRequestProtocol.name": ("range", "other"),
    "metadata": ("", "6d"),
    "assignment": ("", "61"),
    "reason": (None, "tired"),
    "require_stable": (False, True),
    "include_synonyms": (False, True),
    "include_authorized_operations": (False, True),
    "include_topic_authorized_operations": (False, True),
    "include_cluster_authorized_operations": (False, True),
    "include_fenced_brokers": (False, True),
    "endpoint_type": (1, 0, 2, 3),
    "allow_auto_topic_creation": (False,),
    "validate_only": (True,),
    "num_partitions": (-1, 0, 1, 3),
    "replication_factor": (-1, 0, 1, 2),
    "CreatableTopic.name": ("<new>", *topic_names),
    "broker_ids": (0, 1, -1),
    "count": (-1, 0, 1, 2, 3, 5),
    "resource_type": (2, 0, 3),
    "resource_name": topic_names,
    "configuration_keys": config_names,
    "CreatableTopicConfig.name": config_names,
    "AlterableConfig.name": config_names,
    "value": config_values,
    "config_operation": (0, 1, 2, 3),  # to others Kafka answers UNKNOWN_SERVER_ERROR, which allowed.py has a line for
    "transactional_id": (None,),
    "transaction_timeout_ms": (60_000, 0),
    "InitProducerIdRequest.transactional_id": (None, ""),
    "producer_id": (-1, "<producer>", 5),
    "producer_epoch": (-1, 0, 1),
    "topic_name": topic_names,
    "response_partition_limit": (2000, 1, 0, -1),
    "AlterReplicaLogDir.path": ("/nowhere", ""),
    "AlterReplicaLogDirTopic.partitions": indexes,
    "TopicPartitions.partitions": indexes,
    "election_type": (0, 1, 2, -1),
    "replicas": (0, 1, -1),
    "allow_replication_factor_change": (False, True),
}
# Arrays that mean everything there is when they are empty or null, which other tellings would show in.
NEVER_ALL = (
    "MetadataRequest.topics",
    "ElectLeadersRequest.topic_partitions",
    "DescribeTopicPartitionsRequest.topics",
    "DescribeConfigsResource.configuration_keys",
)
# What structs in arrays are about.
RANKED_BY = ("topic_id", "name", "topic", "group_id", "key", "resource_name", "member_id", "partition_index", "index")


# --- drawing ----------------------------------------------------------------------------------------------------------


def served() -> list[tuple[type[Message], int]]:
    """Every request that is drawn, in every version."""
    found = [
        (route.request_class, version)
        for route in served_routes(is_in_cluster=False).values()
        for version in range(route.versions.first, newest(route.request_class) + 1)
        if route.name not in LEFT_OUT and release_for(route.request_class, version) == "kafka_4"
    ]
    return sorted(found, key=lambda each: (each[0].api_key, each[1]))


def sequences() -> st.SearchStrategy[list[Step]]:
    apis: dict[type[Message], list[int]] = {}
    for request, version in served():
        apis.setdefault(request, []).append(version)
    choices = [
        st.sampled_from(versions).flatmap(_steps_of(request))
        for request, versions in apis.items()
        for _ in range(WEIGHTS.get(request.__name__, 1))
    ]
    return st.lists(st.one_of(choices), min_size=1, max_size=STEPS_MAX).map(_without_waits)


def _steps_of(request: type[Message]) -> Callable[[int], st.SearchStrategy[Step]]:
    def steps(version: int) -> st.SearchStrategy[Step]:
        name = request.__name__.removesuffix("Request")
        return st.fixed_dictionaries(
            {"api": st.just(name), "version": st.just(version), "fields": _fields_of(request, version)}
        )

    return steps


def _without_waits(steps: list[Step]) -> list[Step]:
    """A second new member would wait for the first one to join again: only members join a group twice."""
    joined: set[str] = set()
    kept = []
    for step in steps:
        if step["api"] == "JoinGroup" and step["fields"]["member_id"] != "<member>":
            if step["fields"]["group_id"] in joined:
                continue
            joined.add(step["fields"]["group_id"])
        kept.append(step)
    return kept


def _fields_of(struct: type[Struct], version: int) -> st.SearchStrategy[dict[str, Any]]:
    drawn = {
        name: _values_of(struct, name, field, version)
        for name, field in struct.wire_fields.items()
        if version in VersionRange.parse(field.versions) and field.tag is None
    }
    return st.fixed_dictionaries(drawn)


def _values_of(struct: type[Struct], name: str, field: Field, version: int) -> st.SearchStrategy[Any]:
    full_name = f"{struct.__name__}.{name}"
    known = VALUES.get(full_name, VALUES.get(name))
    is_nullable = version in VersionRange.parse(field.nullable)
    if isinstance(field.type, Array):
        is_never_all = full_name in NEVER_ALL
        items = _items_of(field.type, version, known)
        # One of a name, since what is asked twice is answered once or twice, which has scenarios of its own.
        drawn: st.SearchStrategy[Any] = st.lists(items, min_size=int(is_never_all), max_size=2, unique_by=_identity)
        return drawn | st.none() if is_nullable and not is_never_all else drawn
    if field.type is Records:
        return record_sets()
    if known is not None:
        if struct.__name__ == "MetadataRequestTopic" and version < 4:  # which creates what it does not find
            known = topic_names[:4]
        return st.sampled_from([value for value in known if value is not None or is_nullable])
    if isinstance(field.type, type) and is_nullable:
        return st.none() | _fields_of(field.type, version)
    assert full_name in DEFAULTED or name in DEFAULTED, f"no values for {full_name}"
    return st.just(_plain(field.initial()))


# Fields that keep their default in every request.
DEFAULTED = ("replica_state", "retention_time_ms", "include_documentation", "key_type")


def _items_of(array: Array, version: int, known: tuple[Any, ...] | None) -> st.SearchStrategy[Any]:
    if isinstance(array.item, type):
        return _fields_of(array.item, version)
    assert known is not None, array
    return st.sampled_from(known)


def _identity(item: Any) -> str:
    """What an item of an array is about."""
    names = [name for name in (*RANKED_BY, "partition") if name in item] if isinstance(item, dict) else []
    return str(item[names[0]] if names else item)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else None if isinstance(value, Struct) else value


def record_sets() -> st.SearchStrategy[dict[str, Any]]:
    """Descriptions for `records_of`; mostly good batches, some with one wrong field."""
    producers = st.fixed_dictionaries(
        {
            "producer_id": st.sampled_from((-1, "<producer>", 900_001)),
            "producer_epoch": st.sampled_from((-1, 0, 1, 2, INT16_MAX)),
            "base_sequence": st.sampled_from((-1, 0, 1, 2, 3, 4, INT32_MAX - 1, INT32_MAX)),
        }
    )
    nobody = st.just({"producer_id": -1, "producer_epoch": -1, "base_sequence": -1})
    wrong = st.one_of(
        st.fixed_dictionaries({name: st.sampled_from(values)})
        for name, values in {
            "base_offset": (1,),
            "length": (0, 49),
            "magic": (0, 3),
            "crc": (0,),
            "last_offset_delta": (0, 5, -1),
            "count": (0, 2, 5, -1),
            "max_timestamp": (-1, 0),
            "leader_epoch": (0, 5),
        }.items()
    )
    return st.fixed_dictionaries(
        {
            "values": st.integers(1, 3),
            "key": st.booleans(),
            "time": st.sampled_from((1000, 1002, 5000, -1)),
            "codec": st.sampled_from((0, 0, 1, 2, 3, 4)),
            "flags": st.sampled_from((0, 0, 0, 0, 8, 16, 32, 64)),
            "producer": st.one_of(nobody, producers),
            "wrong": st.one_of(st.just({}), st.just({}), st.just({}), wrong),
        }
    )


# --- telling ----------------------------------------------------------------------------------------------------------


def records_of(described: dict[str, Any]) -> bytes:
    key = b"key" if described["key"] else None
    count = described["values"]
    area = b"".join(record(offset_delta=i, time_delta=i, key=key, value=b"value %d" % i) for i in range(count))
    codec, time = described["codec"], described["time"]
    fields = {"count": count, "last_offset_delta": count - 1, "base_timestamp": time, "max_timestamp": time + count - 1}
    fields |= {"attributes": codec | described["flags"]} | described["producer"] | described["wrong"]
    return batch(area, lambda data: compress(Compression(codec), data), **fields)


class World:
    """What the symbols of a sequence stand for in one telling."""

    def __init__(self, talk: Talk, steps: list[Step]) -> None:
        self._talk = talk
        self._mentioned = repr(steps)
        self._topics: dict[str, Topic] = {}
        self._symbols: dict[str, Any] = {"<member>": "", "<generation>": -1, "<session>": 0, "<new>": talk.name("new")}
        for kind, partitions in TOPICS.items():
            if self._is_mentioned(kind):
                self._make_topic(kind, partitions)
        if "group" in self._mentioned.lower():
            self._wait_for_nobodys_group()
        for kind in GROUPS:
            if f"<{kind}>" in self._mentioned:
                self._symbols[f"<{kind}>"] = talk.group(kind.replace(" ", "-"))
        if "<producer>" in self._mentioned:
            self._symbols["<producer>"] = new_producer(talk)

    def _wait_for_nobodys_group(self) -> None:
        """Until the group without a name has a coordinator, too."""
        self._talk.group("any group")
        asked = DescribeGroupsRequest(groups=[""])
        self._talk.until(asked, lambda answer: answer.groups[0].error_code not in COORDINATOR_IS_COMING)

    def _is_mentioned(self, kind: str) -> bool:
        return f"<{kind}>" in self._mentioned or f"<id of {kind}>" in self._mentioned

    def _make_topic(self, kind: str, partitions: int) -> None:
        configs = {"cleanup_policy": "compact"} if kind == "compacted" else {}
        topic = self._talk.topic(kind, partitions, **configs)
        self._topics[kind] = topic
        self._symbols |= {f"<{kind}>": topic.name, f"<id of {kind}>": topic.id.hex()}
        if kind == "one":
            fill(self._talk, topic, [1000, 1001, 1002])
            fill(self._talk, topic, [1004, 1003])

    def request(self, step: Step) -> Message:
        request = REQUESTS[step["api"]]
        made = self._struct(request, step["fields"])
        assert isinstance(made, Message)
        return made

    def _struct(self, struct: type[Struct], fields: dict[str, Any]) -> Struct:
        made = struct.zero()
        for name, value in fields.items():
            setattr(made, name, self._value(struct.wire_fields[name].type, value))
        return made

    def _value(self, kind: Any, value: Any) -> Any:
        if value is None:
            return None
        if isinstance(kind, Array):
            return [self._value(kind.item, each) for each in value]
        if kind is Records:
            return records_of(
                value | {"producer": {name: self._looked_up(each) for name, each in value["producer"].items()}}
            )
        if isinstance(kind, type):
            return self._struct(kind, value)
        value = self._looked_up(value)
        return bytes.fromhex(value) if kind is Uuid or kind is Bytes else value

    def _looked_up(self, value: Any) -> Any:
        return self._symbols.get(value, value) if isinstance(value, str) else value

    def learn(self, step: Step, answer: Any) -> None:
        if step["api"] == "JoinGroup":
            self._symbols["<member>"] = answer.member_id or self._symbols["<member>"]
            self._symbols["<generation>"] = answer.generation_id
        elif step["api"] == "Fetch":
            self._symbols["<session>"] = answer.session_id or self._symbols["<session>"]

    def arrange(self, answer: Any) -> None:
        """Puts every list of structs into one order: Kafka's is often that of a hash map."""
        order = {topic.id: kind for kind, topic in self._topics.items()}
        for name, field in answer.wire_fields.items():
            items = getattr(answer, name)
            if isinstance(field.type, Array) and isinstance(field.type.item, type) and items:
                for each in items:
                    self.arrange(each)
                setattr(answer, name, sorted(items, key=lambda each: _rank(each, order)))


def _rank(struct: Struct, order: dict[bytes, str]) -> tuple[str, ...]:
    ranks = []
    for name in (*RANKED_BY, "partition", "producer_id"):
        value = getattr(struct, name, "")
        ranks.append(
            order.get(value, value.hex())
            if isinstance(value, bytes)
            else f"{value:020}"
            if isinstance(value, int)
            else str(value)
        )
    return tuple(ranks)


def _requests() -> Iterator[tuple[str, type[Message]]]:
    for module in pkgutil.iter_modules(ottla.wire.messages.__path__):
        for name, value in vars(importlib.import_module(f"ottla.wire.messages.{module.name}")).items():
            if name.endswith("Request") and isinstance(value, type) and issubclass(value, Message):
                yield name.removesuffix("Request"), value


REQUESTS = dict(_requests())


def play(talk: Talk, steps: list[Step]) -> None:
    world = World(talk, steps)
    for step in steps:
        label = f"{step['api']} v{step['version']}"
        answer = talk.ask(world.request(step), step["version"], label=label, arrange=world.arrange)
        if answer is not None:
            world.learn(step, answer)


def tell(address: tuple[str, int], steps: list[Step]) -> list[tuple[str, Any]]:
    talk = Talk(address, ApiVersionsRequest, newest(ApiVersionsRequest))
    try:
        play(talk, steps)
    finally:
        talk.close()
    return talk.steps
