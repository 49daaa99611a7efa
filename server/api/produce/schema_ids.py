"""Server-side validation of schema ids, as Confluent Server does it for topics with `confluent.value.schema.validation`.

A record is refused with INVALID_RECORD if its value does not begin with the byte 0 and the id of a schema, or if the schema registry does
not have that schema under the subject that the topic's strategy names. The rest of the value is not looked at, and null passes. The same
goes for keys with `confluent.key.schema.validation`. One such record refuses its batch, and the answer lists them.

    a thread reads the ids of the batch -> each is looked up in the cache, or the registry is asked -> good, or a thread lists the records

* What is registered stays so: an answer is kept until others need its place. That there is none is kept for UNKNOWN_S, as a serializer
  may register the schema meanwhile. One deleted from the registry is taken until then.
* A registry that does not answer, or not with what a registry says, is a reason to try again: REQUEST_TIMED_OUT, with a message. The
  first batch of an outage logs it. No instance is asked again for AWAY_S.
* Work for a batch is bounded: it may name IDS_MAX schemas, UNKNOWN_MAX unknown ones are asked for, and it waits for WAIT_S. Batches of
  other connections go on meanwhile; LOOKUPS_MAX are asked for at a time.
"""

from __future__ import annotations

import logging
import math
import re
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ottla.replication.config import RECORD_NAME, TOPIC_NAME, LogConfig
from ottla.replication.log.batch_checks import ValidationRules
from ottla.replication.log.validator import InvalidRecords, RecordErrors, java_text
from ottla.server.security.oauth.fetching import FailedRead, HttpClient, Limits
from ottla.wire.errors import ErrorCode, KafkaError, result_of
from ottla.wire.foreign_json import parse_json
from ottla.wire.record_decoding import iter_records, lent_records_area, walkable

if TYPE_CHECKING:
    from ottla.replication.log.batch_checks import CheckedRecords
    from ottla.server.config.server_config import SchemaRegistryConfig
    from ottla.wire.records import Record

logger = logging.getLogger("ottla.schemas")

IDS_MAX, UNKNOWN_MAX, LOOKUPS_MAX = 1_000, 20, 4
KEPT_MAX = 10_000
WAIT_S, AWAY_S, UNKNOWN_S = 10.0, 1.0, 1.0
LIMITS: Final = Limits(connect_s=2.0, read_s=5.0, all_s=5.0, bytes_max=8 * 1024 * 1024)
MAGIC, FRAME_BYTES = 0, 5
OK, NOT_FOUND, NO_SUCH_SCHEMA = 200, 404, 40403
# Clients know the sentence by its last word.
_REJECTED = "Log record {} is rejected by the record interceptor io.confluent.kafka.schemaregistry.validator.RecordSchemaValidator"

# The records of a batch may be a hundred megabytes, and its thread must not keep answers of the registry waiting.
_threads, _answer_threads = trio.CapacityLimiter(1), trio.CapacityLimiter(2)


class Rule(NamedTuple):
    """Schema validation rule of a topic: whether keys or values are checked, and the subject name strategy."""

    is_key: bool
    strategy: str


class Named(NamedTuple):
    """Schema id found in a record's key or value, with the rule that requires it."""

    rule: Rule
    schema_id: int


class _Away(Exception):
    """Raised if the schema registry cannot be reached; the text says why."""


class SchemaIds:
    """Client of a schema registry; caches which schema ids are registered for which topics."""

    def __init__(self, config: SchemaRegistryConfig) -> None:
        self._urls = [url.rstrip("/") for url in config.confluent_schema_registry_url]
        self._client = HttpClient(config.confluent_basic_auth_user_info)
        self._turns = trio.CapacityLimiter(LOOKUPS_MAX)
        # By topic: until when the answer holds, and whether the schema is registered.
        self._kept: OrderedDict[tuple[str, Named], tuple[float, bool]] = OrderedDict()
        self._away: tuple[str, float] = "", 0.0

    async def refusal(
        self, topic: str, config: LogConfig, checked: CheckedRecords, bytes_max: int
    ) -> KafkaError | None:
        """Return the error if records name no registered schema, else None. `bytes_max`: decompressed size limit."""
        rules = rules_of(config)
        read = partial(result_of, partial(_ids_of, checked, rules, bytes_max))
        found = await trio.to_thread.run_sync(read, limiter=_threads)
        if isinstance(found, KafkaError):
            return found
        named, has_others = found
        unknown: set[Named] = set()
        try:
            with trio.fail_after(WAIT_S):
                for each in named:
                    if not await self._is_registered(topic, each):
                        unknown.add(each)
                        if len(unknown) == UNKNOWN_MAX:
                            break
        except (_Away, trio.TooSlowError) as problem:
            # A batch with records that name no schema is refused whatever the registry would say.
            if not (unknown or has_others):
                return _try_again(str(problem) or f"it has not answered for {WAIT_S:g} s")
        if not (unknown or has_others):
            return None
        listing = partial(result_of, partial(_listed, checked, rules, bytes_max, named, unknown))
        return await trio.to_thread.run_sync(listing, limiter=_threads)

    async def _is_registered(self, topic: str, named: Named) -> bool:
        key = topic, named
        if (known := self._known(key)) is not None:
            return known
        async with self._turns:
            # Another batch may have asked meanwhile.
            if (known := self._known(key)) is not None:
                return known
            if not self._urls:
                raise _Away("confluent.schema.registry.url is not set")
            is_registered = await self._asked(topic, named)
        self._kept[key] = (math.inf if is_registered else trio.current_time() + UNKNOWN_S), is_registered
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return is_registered

    def _known(self, key: tuple[str, Named]) -> bool | None:
        until, is_registered = self._kept.get(key, (0.0, False))
        if until <= trio.current_time():
            return None
        self._kept.move_to_end(key)
        return is_registered

    async def _asked(self, topic: str, named: Named) -> bool:
        rule, schema_id = named
        subjects = await self._answer(f"/schemas/ids/{schema_id}/subjects")
        if subjects is None:
            return False
        if not isinstance(subjects, list):
            raise _Away(f"it names no subjects of schema {schema_id}")
        if rule.strategy == TOPIC_NAME:
            return f"{topic}-{'key' if rule.is_key else 'value'}" in subjects
        schema = await self._answer(f"/schemas/ids/{schema_id}")
        name = await trio.to_thread.run_sync(record_name, schema, limiter=_answer_threads)
        return name is not None and (name if rule.strategy == RECORD_NAME else f"{topic}-{name}") in subjects

    async def _answer(self, path: str) -> Any:
        """Return the registry's JSON response; None: no such schema. Raises _Away if no instance can answer."""
        problem, until = self._away
        if trio.current_time() < until:
            raise _Away(problem)
        problems, is_away = [], False
        for url in self._urls:
            try:
                answer = await self._answer_of(url, path)
            except FailedRead as failure:
                problems.append(f"{url}: {failure}")
                # Where one schema has an answer that is too long, others are answered.
                is_away = is_away or failure.status != OK
                continue
            if self._away[0]:
                logger.info("the schema registry at %s answers again", url)
                self._away = "", 0.0
            return answer
        problem = "; ".join(problems)
        if not is_away:
            raise _Away(problem)
        if not self._away[0]:
            logger.warning(
                "no schema registry can be asked, so records of topics with schema validation are refused for now: %s",
                problem,
            )
        self._away = problem, trio.current_time() + AWAY_S
        raise _Away(problem)

    async def _answer_of(self, url: str, path: str) -> Any:
        status, body = await self._client.exchange("GET", url + path, LIMITS)
        try:
            answer = await trio.to_thread.run_sync(parse_json, body, limiter=_answer_threads)
        except ValueError:
            raise FailedRead(f"the answer with status {status} is no JSON", status) from None
        # Any other server, too, says 404 to a path that it does not know.
        if status == NOT_FOUND and isinstance(answer, dict) and answer.get("error_code") == NO_SUCH_SCHEMA:
            return None
        if status != OK:
            raise FailedRead(f"the server answers with status {status}", status)
        return answer


def _try_again(problem: str) -> KafkaError:
    # Every client sends the records again after this error.
    return InvalidRecords(ErrorCode.REQUEST_TIMED_OUT, f"The schema registry cannot be asked: {problem}", [])


# ---------------------------------------------------------------------- the ids of a batch


def rules_of(config: LogConfig) -> list[Rule]:
    """Return the schema validation rules of a topic, for keys, values or both."""
    rules = []
    if config.confluent_key_schema_validation:
        rules.append(Rule(True, config.confluent_key_subject_name_strategy))
    if config.confluent_value_schema_validation:
        rules.append(Rule(False, config.confluent_value_subject_name_strategy))
    return rules


def _ids_of(checked: CheckedRecords, rules: list[Rule], bytes_max: int) -> tuple[list[Named], bool]:
    """Return up to IDS_MAX schema ids that the records name, and True if there are more or a record names none."""
    found: dict[Named, None] = {}
    has_others = False
    for record in _records(checked, bytes_max):
        for each in _named(record, rules):
            if each is None or (len(found) == IDS_MAX and each not in found):
                has_others = True
            else:
                found[each] = None
    return list(found), has_others


def _listed(
    checked: CheckedRecords, rules: list[Rule], bytes_max: int, named: list[Named], unknown: set[Named]
) -> None:
    """Raise the error of a refused batch; it lists the records that name no schema or one in `unknown`."""
    good = set(named) - unknown
    errors = RecordErrors(ValidationRules(), now_ms=0, topic_partition="")
    for index, record in enumerate(_records(checked, bytes_max)):
        if not good.issuperset(_named(record, rules)):
            errors.add(index, _REJECTED.format(java_text(record, is_partial=False)))
    errors.raise_if_any()


def _records(checked: CheckedRecords, bytes_max: int) -> Iterator[Record]:
    with lent_records_area(checked.buffer, checked.header, 0, bytes_max) as area:
        yield from iter_records(walkable(area), checked.header, headers_max=0)


def _named(record: Record, rules: list[Rule]) -> Iterator[Named | None]:
    """Yield the schema ids of the record's key and value, if `rules` check these; None for one without a schema id.

    A null key or value yields nothing.
    """
    for rule in rules:
        data = record.key if rule.is_key else record.value
        if data is not None:
            schema_id = int.from_bytes(data[1:FRAME_BYTES], "big", signed=True)
            is_framed = len(data) >= FRAME_BYTES and data[0] == MAGIC and schema_id >= 0
            yield Named(rule, schema_id) if is_framed else None


# ---------------------------------------------------------------------- names of records

TEXT_MAX = 1 << 20
"""Characters of a Protobuf schema that is looked through for its first message."""

# What begins as a string or a comment is one, also if the text ends within it. Each token is found in one step of the interpreter,
# which nothing interrupts: so no part of it looks at a character twice, or remembers where it could go back to.
_PROTOBUF_TOKENS = re.compile(
    r"""//[^\n]*+ | /\*(?:[^*]++|\*(?!/))*+(?:\*/)? | "(?:[^"\\]++|\\.)*+[\\"]? | '(?:[^'\\]++|\\.)*+[\\']? | [\w.]++ | [{};]""",
    re.VERBOSE | re.DOTALL,
)


def record_name(answer: Any) -> str | None:
    """Return the record name of a registered schema for Confluent's RecordNameStrategy; None if it has no name."""
    text = answer.get("schema") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        return None
    kind = answer.get("schemaType", "AVRO")
    if kind == "PROTOBUF":
        return _first_message(text)
    try:
        schema = parse_json(text)
    except ValueError:
        return None
    if kind == "AVRO":
        return _avro_name(schema)
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) else None


def _avro_name(schema: Any) -> str | None:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return "union"
    if not isinstance(schema, dict):
        return None
    name, namespace = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str):
        kind = schema.get("type")
        return kind if isinstance(kind, str) else None
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _first_message(text: str) -> str | None:
    """Return the full name of a Protobuf file's first message; None if there is none or `text` exceeds TEXT_MAX."""
    if len(text) > TEXT_MAX:
        return None
    package = message = previous = ""
    depth = 0
    # One by one: a list of all of them would be made in one step.
    for token in map(itemgetter(0), _PROTOBUF_TOKENS.finditer(text)):
        # A comment may stand between any two words.
        if token.startswith("/"):
            continue
        if not depth and previous == "package":
            package = token
        elif not depth and previous == "message":
            message = message or token
        depth += (token == "{") - (token == "}")
        previous = token
    return ".".join(filter(None, (package, message))) if message else None
