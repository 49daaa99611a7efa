"""Topics, partitions, offsets and brokers of the second version, and produce."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.server.rest import admin, formats
from ottla.server.rest.api import Answer, Call, RestApi, media_type
from ottla.server.rest.bodies import RecordsBody, member, number, parse_records, refuse_unknown
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.client.producer import KafkaProducer, Outcome, Outgoing, Written
from ottla.server.rest.errors import Code, KafkaFailure, RestError, bad_request, partition_not_found, topic_not_found
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata import MetadataResponsePartition
from ottla.wire.time_slice import TimeSlice, paced

if TYPE_CHECKING:
    from ottla.server.rest.schemas.schemas import Registered, Schemas

T = TypeVar("T")
Encode = Callable[[Any], bytes | None]

EMBEDDED = {
    f"application/vnd.kafka.{kind}.v2+json": kind for kind in (formats.BINARY, formats.JSON, *formats.WITH_SCHEMA)
}
"""Types of content by the embedded format that they stand for."""

_BODY_MEMBERS = frozenset({"key_schema", "key_schema_id", "value_schema", "value_schema_id"})
_RECORD_MEMBERS = frozenset({"key", "value", "partition"})
_UNAUTHORIZED, _FORBIDDEN = 401, 403


class TopicsV2:
    """Handlers of /topics and /brokers."""

    def __init__(self, cluster: KafkaCluster, producer: KafkaProducer, schemas: Schemas | None = None) -> None:
        """`schemas`: None if no registry is configured."""
        self._cluster, self._producer, self._schemas = cluster, producer, schemas

    def add_to(self, api: RestApi) -> None:
        api.add("GET", "/", self._root)
        api.add("GET", "/topics", self._list)
        api.add("GET", "/topics/{}", self._topic)
        api.add("GET", "/topics/{}/partitions", self._partitions)
        api.add("GET", "/topics/{}/partitions/{}", self._partition)
        api.add("GET", "/topics/{}/partitions/{}/offsets", self._offsets)
        api.add("GET", "/brokers", self._brokers)
        api.add("POST", "/topics/{}", self._produce)
        api.add("POST", "/topics/{}/partitions/{}", self._produce)

    async def _root(self, call: Call) -> Any:
        return {}

    async def _list(self, call: Call) -> Any:
        answer = await self._cluster.refreshed(None)
        return sorted(each.name or "" for each in answer.topics if not each.error_code)

    async def _topic(self, call: Call) -> Any:
        [name] = call.parts
        partitions = await self._found(name)
        configs = await admin.describe_configs(self._cluster, admin.TOPIC, name)
        return {
            "name": name,
            "configs": {each.name: each.value for each in configs},
            "partitions": [_partition_json(each) for each in partitions],
        }

    async def _found(self, name: str) -> Sequence[MetadataResponsePartition]:
        """Return the partitions of a topic, from metadata requested now. Raises RestError."""
        [found] = (await self._cluster.refreshed([name])).topics
        if found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise topic_not_found()
        if found.error_code:
            raise KafkaFailure(found.error_code)
        return sorted(found.partitions, key=lambda each: each.partition_index)

    async def _partitions(self, call: Call) -> Any:
        return [_partition_json(each) for each in await self._found(call.parts[0])]

    async def _partition(self, call: Call) -> Any:
        return _partition_json(await self._found_partition(call))

    async def _found_partition(self, call: Call) -> MetadataResponsePartition:
        name, text = call.parts
        wanted = partition_number(text)
        found = [each for each in await self._found(name) if each.partition_index == wanted]
        if not found:
            raise partition_not_found()
        return found[0]

    async def _offsets(self, call: Call) -> Any:
        place = call.parts[0], (await self._found_partition(call)).partition_index
        earliest = await admin.offsets_at(self._cluster, [place], admin.EARLIEST)
        latest = await admin.offsets_at(self._cluster, [place], admin.LATEST)
        return {"beginning_offset": earliest[place], "end_offset": latest[place]}

    async def _brokers(self, call: Call) -> Any:
        return {"brokers": sorted(each.node_id for each in (await self._cluster.refreshed(())).brokers)}

    # --- produce

    async def _produce(self, call: Call) -> Any:
        topic = call.parts[0]
        partition = partition_number(call.parts[1]) if len(call.parts) > 1 else None
        kind = EMBEDDED.get(media_type(call.request.headers.get("content-type", "")))
        if kind is None:
            raise RestError(Code.UNSUPPORTED_MEDIA_TYPE, "HTTP 415 Unsupported Media Type")
        time_slice = TimeSlice()
        body: RecordsBody = await time_slice.take(parse_records(call.request.body))
        refuse_unknown(body.others, _BODY_MEMBERS)
        ids: tuple[int | None, int | None] = None, None
        if kind in formats.WITH_SCHEMA:
            records, ids = await self._with_schemas(topic, body, kind, partition)
        else:
            encode = partial(formats.encode, kind)
            records = await time_slice.take(_outgoing(body.records, encode, encode, partition))
        if partition is not None and partition not in (await self._cluster.topic(topic, creates=True)).by_number:
            raise partition_not_found()
        outcomes = await self._producer.write(topic, records)
        offsets = [outcome_json(each) for each in outcomes]
        answer = {"offsets": offsets, "key_schema_id": ids[0], "value_schema_id": ids[1]}
        return Answer(answer, status=_status(offsets))

    async def _with_schemas(
        self, topic: str, body: RecordsBody, kind: str, partition: int | None
    ) -> tuple[list[Outgoing], tuple[int | None, int | None]]:
        """Encode records by the schemas that the body names. Raises RestError.

        Return the records, the schema id of the keys and that of the values.
        """
        key, value = [await self._registered(topic, body, kind, is_key=each) for each in (True, False)]
        encode_key = _encoder(key, Code.KEY_SCHEMA_MISSING)
        encode_value = _encoder(value, Code.VALUE_SCHEMA_MISSING)

        def work() -> list[Outgoing]:
            return run_paced(_outgoing(body.records, encode_key, encode_value, partition))

        schemas = self._schemas
        if schemas is None:
            raise formats.no_registry("serialize")
        ids = None if key is None else key.place.id, None if value is None else value.place.id
        return await schemas.code(work), ids

    async def _registered(self, topic: str, body: RecordsBody, kind: str, *, is_key: bool) -> Registered | None:
        """Return the schema that the body names for the keys or values; None if it names none. Raises RestError."""
        name = "key_schema" if is_key else "value_schema"
        text, schema_id = member(body.others, name, str), number(body.others, f"{name}_id", 32)
        if text is None and schema_id is None:
            return None
        if self._schemas is None:
            raise formats.no_schemas()
        if text is not None and schema_id is not None:
            raise bad_request("Bad Request: Unsupported argument: ")
        from ottla.server.rest.schemas.schemas import Wanted, check_kind

        found = await self._schemas.wanted(Wanted(topic, is_key, kind, text, schema_id))
        check_kind(found, kind)
        return found


def _encoder(registered: Registered | None, missing: Code) -> Encode:
    if registered is not None:
        return registered.encode

    def encode(data: Any) -> None:
        if data is not None:
            part = "keys" if missing == Code.KEY_SCHEMA_MISSING else "values"
            text = f"Request includes {part} but does not include {part.removesuffix('s')} schema"
            raise RestError(missing, text)

    return encode


def run_paced(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end in a thread, with pauses for other threads; return its result."""
    give_way = paced()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        give_way()


def _outgoing(
    records: list[Any], encode_key: Encode, encode_value: Encode, partition: int | None
) -> Generator[None, None, list[Outgoing]]:
    found = []
    for record in records:
        if not isinstance(record, dict):
            raise bad_request("A record is no JSON object")
        refuse_unknown(record, _RECORD_MEMBERS)
        own = number(record, "partition", 32)
        key, value = encode_key(record.get("key")), encode_value(record.get("value"))
        found.append(Outgoing(key, value, partition if own is None else own))
        yield
    return found


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Return the JSON object that stands for a record's outcome in the response."""
    if isinstance(outcome, Written):
        return {"partition": outcome.partition, "offset": outcome.offset, "error_code": None, "error": None}
    return {"partition": None, "offset": None, "error_code": _produce_code(outcome), "error": str(outcome)}


def _produce_code(error: RestError) -> int:
    """Convert an error to one of the four error codes of a produce response."""
    if error.code in (Code.KAFKA_AUTHENTICATION, Code.KAFKA_AUTHORIZATION, Code.PARTITION_NOT_FOUND):
        return error.code
    if isinstance(error, KafkaFailure):
        return Code.KAFKA_RETRIABLE if error.error.retriable else Code.KAFKA
    return error.code


def _status(offsets: list[dict[str, Any]]) -> int:
    for each in offsets:
        if each["error_code"] == Code.KAFKA_AUTHENTICATION:
            return _UNAUTHORIZED
        if each["error_code"] == Code.KAFKA_AUTHORIZATION:
            return _FORBIDDEN
    return 200


def partition_number(text: str) -> int:
    """Parse the partition number in a path. Raises RestError."""
    if not (text.isascii() and text.isdecimal() and len(text) < 11):
        raise RestError(Code.NOT_FOUND, "HTTP 404 Not Found")
    return int(text)


def _partition_json(found: MetadataResponsePartition) -> dict[str, Any]:
    return {
        "partition": found.partition_index,
        "leader": found.leader_id,
        "replicas": [
            {"broker": each, "leader": each == found.leader_id, "in_sync": each in found.isr_nodes}
            for each in found.replica_nodes
        ],
    }
