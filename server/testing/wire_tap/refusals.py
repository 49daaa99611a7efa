"""Error answers in the form of each API, for all or for some of a request's partitions.

If only some partitions are meant, the request is split: the broker gets the rest, and the errors are merged into its answer. That
is possible where Kafka has an error code for each topic or partition, such as in Produce, Fetch, ListOffsets, OffsetCommit,
Metadata, CreateTopics. Else the whole request is refused, as Kafka would.

For a Fetch Kafka's general error answer has the error at its top level from version 13 on. Clients look for errors such as
NOT_LEADER_OR_FOLLOWER at each partition, where Kafka's own fetch path puts them, and so does this. So it is with errors of partitions
in an OffsetFetch, such as UNSTABLE_OFFSET_COMMIT, if it names partitions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.server.testing.wire_tap.kafka_names import FETCH_KEY, messages_of
from ottla.server.testing.wire_tap.subjects import IsMeant, NameOf, is_list_of_topics, partition_of, topic_in
from ottla.wire.error_answers import error_answer
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import encode_response_header, response_header_version
from ottla.wire.messages.offsets import OffsetFetchRequest
from ottla.wire.schema import Message, Struct

_FETCH_WITH_ERRORS_IN_BOTH = 12
_OF_SESSION = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors that Kafka puts at the top level of a Fetch answer."""

_OF_OFFSETS = frozenset(
    {
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that Kafka puts at the partitions of an OffsetFetch answer, and never at its groups."""

_KEYS = (
    "topic",
    "topic_name",
    "name",
    "topic_id",
    "group_id",
    "transactional_id",
    "partition",
    "partition_index",
    "index",
)
_ERRORS = ("error_code", "partition_error_code")


class Refusal(NamedTuple):
    """Error answer, and the request that is left for the broker; None: nothing is left."""

    answer: Message
    rest: Message | None


def refusal(request: Message, version: int, error: ErrorCode, is_meant: IsMeant | None, name_of: NameOf) -> Refusal:
    """Refuse a request, or only the partitions that are meant. `is_meant`: None for all of it."""
    if is_meant is not None:
        meant, rest = _split(request, is_meant, name_of)
        answer = _error_answer(meant, version, error)
        # Errors both at the top and in the elements: those in the elements say enough.
        if _has_errors_below(answer) and "error_code" in answer.wire_fields:
            answer.error_code = 0  # type: ignore[attr-defined]
        if _is_at_topics_only(answer):
            return Refusal(answer, rest if _names_topics(rest) else None)
    return Refusal(_error_answer(request, version, error), None)


def encoded_answer(message: Message, version: int, correlation_id: int) -> bytes:
    """Return an answer as a frame without its size field."""
    return encode_response_header(correlation_id, response_header_version(type(message), version)) + message.encode(
        version
    )


def _error_answer(request: Message, version: int, error: ErrorCode) -> Message:
    messages = messages_of(type(request).api_key)
    assert messages is not None
    if messages.request.api_key == FETCH_KEY and error not in _OF_SESSION and request.topics:  # type: ignore[attr-defined]
        answer = error_answer(request, messages.response, min(version, _FETCH_WITH_ERRORS_IN_BOTH), error, None)
        answer.error_code = 0  # type: ignore[attr-defined]
        return answer
    if isinstance(request, OffsetFetchRequest) and error in _OF_OFFSETS:
        answer = error_answer(request, messages.response, version, error, None, innermost=True)
        if _has_errors_below(answer):
            return answer
    return error_answer(request, messages.response, version, error, None)


# ---------------------------------------------------------------------- splitting a request


def _copy(struct: Any) -> Any:
    return type(struct)(**{name: getattr(struct, name) for name in struct.wire_fields})


def _split(request: Any, is_meant: IsMeant, name_of: NameOf) -> tuple[Any, Any]:
    """Return copies of a struct: one with the topics and partitions that are meant, one with the others."""
    meant, rest = _copy(request), _copy(request)
    for name in request.wire_fields:
        value = getattr(request, name)
        if isinstance(value, list) and value:
            halves = _split_list(value, is_meant, name_of, of_topics=is_list_of_topics(name))
            setattr(meant, name, halves[0])
            setattr(rest, name, halves[1])
    return meant, rest


def _split_list(
    values: list[Any], is_meant: IsMeant, name_of: NameOf, *, of_topics: bool
) -> tuple[list[Any], list[Any]]:
    if not isinstance(values[0], Struct):
        if of_topics and isinstance(values[0], str):
            return [each for each in values if is_meant(each, None)], [
                each for each in values if not is_meant(each, None)
            ]
        return values[:], values[:]
    meant, rest = [], []
    for each in values:
        topic = topic_in(each, name_of, is_topic=of_topics)
        first, second = _split(each, is_meant, name_of) if topic is None else _split_topic(each, topic, is_meant)
        if first is not None:
            meant.append(first)
        if second is not None:
            rest.append(second)
    return meant, rest


def _split_topic(element: Any, topic: str, is_meant: IsMeant) -> tuple[Any, Any]:
    """Return the part of a topic's element that is meant, and the other part; None for a part with no partition."""
    for name in element.wire_fields:
        value = getattr(element, name)
        if isinstance(value, list) and value and "partition" in name:
            meant, rest = _copy(element), _copy(element)
            chosen = [each for each in value if is_meant(topic, partition_of(each))]
            others = [each for each in value if not is_meant(topic, partition_of(each))]
            setattr(meant, name, chosen)
            setattr(rest, name, others)
            return meant if chosen else None, rest if others else None
    return (element, None) if is_meant(topic, None) else (None, element)


def _names_topics(struct: Struct) -> bool:
    for name in struct.wire_fields:
        value = getattr(struct, name)
        if isinstance(value, list) and value:
            if is_list_of_topics(name):
                return True
            if isinstance(value[0], Struct) and any(_names_topics(each) for each in value):
                return True
    return False


# ---------------------------------------------------------------------- errors in answers


def _own_error(struct: Struct) -> bool:
    return any(name in struct.wire_fields and bool(getattr(struct, name)) for name in _ERRORS)


def _has_errors_below(struct: Struct) -> bool:
    return any(_own_error(each) or _has_errors_below(each) for each in _elements(struct))


def _elements(struct: Struct) -> list[Struct]:
    lists = [getattr(struct, name) for name in struct.wire_fields]
    return [each for values in lists if isinstance(values, list) for each in values if isinstance(each, Struct)]


def _is_at_topics_only(answer: Struct, *, is_topic: bool = False) -> bool:
    """True if an error answer has errors, and all of them at topics or below."""
    if _own_error(answer):
        return is_topic
    found = False
    for name in answer.wire_fields:
        value = getattr(answer, name)
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Struct) and (_own_error(each) or _has_errors_below(each)):
                if not _is_at_topics_only(each, is_topic=is_topic or is_list_of_topics(name)):
                    return False
                found = True
    return found


def merge(answer: Struct, errors: Struct) -> None:
    """Put the elements of an error answer into the broker's answer, in place of the broker's elements with their keys."""
    for name in errors.wire_fields:
        wrong = getattr(errors, name)
        if isinstance(wrong, list) and wrong and isinstance(wrong[0], Struct):
            mixed = list(getattr(answer, name) or ())
            _merge_list(mixed, wrong)
            setattr(answer, name, mixed)


def _merge_list(mixed: list[Any], errors: list[Any]) -> None:
    places = {_key(each): index for index, each in enumerate(mixed)}
    for each in errors:
        index = places.get(_key(each))
        if index is None:
            mixed.append(each)
        elif _own_error(each):
            mixed[index] = each
        else:
            merge(mixed[index], each)


def _key(struct: Struct) -> tuple[Any, ...]:
    return tuple(getattr(struct, name) for name in _KEYS if name in struct.wire_fields)
