"""Error answers to any request, derived from the declarations (Kafka's AbstractRequest.getErrorResponse).

A response with an error code at its top level has it there. Others have one in each element of an array, for the things that the
request names:

    Produce          topic_data[].partition_data[].index           ->  responses[].partition_responses[].index, error_code
    DescribeGroups   groups[] (strings)                            ->  groups[].group_id, error_code, error_message

An array of the answer is filled from the array of the request that has its name, or else from its only one. Keys of an
element are copied (`_KEYS`), offsets and the like are -1, and all else has its default. Arrays below an element with
an error stay empty. A few answers have the error at both places (`_IN_BOTH`). `_NAMED` has the requests that name things in more
than one array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Array, Message, Primitive, Struct, Text, VersionRange

_ERROR_CODES = ("error_code", "partition_error_code")
_ERROR_MESSAGE = "error_message"
_KEYS = {
    "entity": ("entity",),
    "group_id": ("group_id",),
    "index": ("index",),
    "name": ("name",),
    "partition": ("partition",),
    "partition_index": ("partition_index", "partition"),
    "producer_id": ("producer_id",),
    "resource_name": ("resource_name",),
    "resource_type": ("resource_type",),
    "topic": ("topic",),
    "topic_id": ("topic_id",),
    "topic_name": ("topic_name", "name"),
    "user": ("name",),
}
"""Key fields of the answer, and their names in the request."""
_UNKNOWN = frozenset(
    {
        "base_offset",
        "committed_offset",
        "end_offset",
        "high_watermark",
        "last_stable_offset",
        "low_watermark",
        "node_id",
        "port",
    }
)
"""Number fields that are -1 if unknown, although Kafka declares no default for them."""
_IN_BOTH = {
    "AlterPartitionReassignmentsResponse": 1,
    "ElectLeadersResponse": 2,
    "FetchResponse": 12,
    "MetadataResponse": 13,
}
"""Answers with the error in their elements although it is at the top level, and the last version of which that is so.

Clients look for it there: to a client of Metadata a topic that is not in the answer does not exist."""
_NAMED: dict[str, Callable[[Any], Iterable[Any]]] = {
    "AlterReplicaLogDirsResponse": lambda request: (topic for each in request.dirs for topic in each.topics),
    "AlterUserScramCredentialsResponse": lambda request: {
        each.name: each for each in (*request.deletions, *request.upsertions)
    }.values(),
    # Before version 3 nothing says that there was an error.
    "DescribeLogDirsResponse": lambda request: (),
}


def error_answer(
    request: Message,
    response_class: type[Message],
    version: int,
    code: ErrorCode,
    message: str | None,
    *,
    innermost: bool = False,
) -> Message:
    """Return a response to `request` with an error for the whole request, or for each of its elements.

    `innermost`: put the error into the innermost elements alone, such as partitions, or a group that names none.
    """
    answer: Message = _with_unknown(response_class)
    if (
        not innermost
        and _puts_error(answer, version, code, message)
        and version > _IN_BOTH.get(response_class.__name__, -1)
    ):
        return answer
    for name, item in _arrays_with_errors(response_class, version):
        special = _NAMED.get(response_class.__name__)
        named = _counterpart(request, name, version) if special is None else special(request)
        setattr(answer, name, [_element(item, each, version, code, message, innermost) for each in named])
    return answer


def _element(
    cls: type[Struct], named: Any, version: int, code: ErrorCode, message: str | None, innermost: bool
) -> Struct:
    """Return the response's element for `named` (a struct or a name in the request) with the error."""
    element: Struct = _with_unknown(cls)
    if isinstance(named, Struct):
        for field_name in cls.wire_fields:
            for key in _KEYS.get(field_name, ()):
                if key in named.wire_fields:
                    setattr(element, field_name, _copy_of(cls, field_name, getattr(named, key), version))
                    break
    else:
        setattr(element, _key_of_type(cls, type(named)), named)
    arrays = _arrays_with_errors(cls, version)
    names_more = innermost and any(_counterpart(named, name, version) for name, _ in arrays)
    if names_more or not _puts_error(element, version, code, message):
        for name, item in arrays:
            below = _counterpart(named, name, version)
            setattr(element, name, [_element(item, each, version, code, message, innermost) for each in below])
    return element


def _with_unknown(cls: type[Any]) -> Any:
    made = cls.zero()
    for name in _UNKNOWN.intersection(cls.wire_fields):
        setattr(made, name, -1)
    return made


def _puts_error(made: Any, version: int, code: ErrorCode, message: str | None) -> bool:
    fields = made.wire_fields
    for name in _ERROR_CODES:
        if name in fields and version in fields[name].version_range:
            setattr(made, name, code)
            if (text := fields.get(_ERROR_MESSAGE)) is not None:
                setattr(
                    made,
                    _ERROR_MESSAGE,
                    "" if message is None and version not in VersionRange.parse(text.nullable) else message,
                )
            return True
    return False


def _arrays_with_errors(cls: type[Struct], version: int) -> list[tuple[str, type[Struct]]]:
    return [
        (name, field.type.item)
        for name, field in cls.wire_fields.items()
        if version in field.version_range
        and isinstance(field.type, Array)
        and isinstance(field.type.item, type)
        and _tells_errors(field.type.item, version)
    ]


def _tells_errors(cls: type[Struct], version: int) -> bool:
    here = [cls.wire_fields[name] for name in _ERROR_CODES if name in cls.wire_fields]
    return any(version in field.version_range for field in here) or bool(_arrays_with_errors(cls, version))


def _counterpart(request: Any, name: str, version: int) -> Iterable[Any]:
    """Return the request's elements for the response's array `name`; empty if the request has null there."""
    arrays = [
        each
        for each, field in request.wire_fields.items()
        if isinstance(field.type, Array) and version in field.version_range
    ]
    return getattr(request, name if name in arrays else arrays[0]) or ()


def _key_of_type(cls: type[Struct], kind: type) -> str:
    """Return the name of a response element's key field. In the request, the element is only a name or a number."""
    for name, field in cls.wire_fields.items():
        is_key = isinstance(field.type, Primitive) and field.type is not Text and name not in _ERROR_CODES
        if is_key and isinstance(field.type.zero, kind):  # type: ignore[union-attr]
            return name
    raise AssertionError(f"{cls.__name__} has no key")


def _copy_of(cls: type[Struct], field_name: str, value: Any, version: int) -> Any:
    field = cls.wire_fields[field_name]
    if isinstance(field.type, Array) and isinstance(field.type.item, type):
        item = field.type.item
        return [item(**{name: getattr(each, name) for name in item.wire_fields}) for each in value]
    # A client may have no name for what it asks for by its id.
    return "" if value is None and version not in VersionRange.parse(field.nullable) else value
