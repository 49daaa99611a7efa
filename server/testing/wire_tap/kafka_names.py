"""APIs, errors and message classes by Kafka's names; a wrong name gets an error that tells the nearest one."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Final, NamedTuple

from ottla.server.dispatch.apis import APIS, NOT_SERVED
from ottla.server.testing.errors import LabError, nearest
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Array, Message, Struct, holds_records

_APIS: Final = {api.api_key: api for api in APIS}
_KEYS: Final = {api.name: api.api_key for api in APIS} | {name: key for key, name in NOT_SERVED.items()}
API_KEYS: Final = tuple(_APIS)
"""Keys of the APIs whose messages are known."""

BETWEEN_BROKERS: Final = frozenset(api.api_key for api in APIS if api.between_brokers)
"""Keys of the APIs that only brokers call."""

FETCH_KEY: Final = 1


class Messages(NamedTuple):
    """Request and response class of an API, and which of them carry record batches."""

    request: type[Message]
    response: type[Message]
    records_in_request: bool
    records_in_response: bool


def is_known(api_key: int) -> bool:
    """True if Kafka has an API with this key."""
    return api_key in _APIS or api_key in NOT_SERVED


def api_name(api_key: int) -> str:
    """Return Kafka's name of an API, or `Api N` for a key that Kafka does not have."""
    api = _APIS.get(api_key)
    return api.name if api is not None else NOT_SERVED.get(api_key, f"Api {api_key}")


def api_key_of(name: str) -> int:
    """Return the key of an API by Kafka's name, such as "Produce". Raises LabError with the nearest name."""
    key = _KEYS.get(name)
    if key is None:
        raise LabError(f"Kafka has no API named {name!r}{nearest(name, _KEYS)}")
    return key


def error_of(name: str) -> ErrorCode:
    """Return an error by Kafka's name, such as "NOT_LEADER_OR_FOLLOWER". Raises LabError with the nearest name."""
    error = ErrorCode.__members__.get(name)
    if error is None:
        raise LabError(f"Kafka has no error named {name!r}{nearest(name, ErrorCode.__members__)}")
    return error


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or the number of one that Kafka does not have."""
    error = ErrorCode._value2member_map_.get(code)
    return str(code) if error is None else error.name


@cache
def messages_of(api_key: int) -> Messages | None:
    """Return the message classes of an API, imported at first use; None for an API that the broker does not serve."""
    api = _APIS.get(api_key)
    if api is None:
        return None
    module = importlib.import_module(f"ottla.wire.messages.{api.module}")
    request, response = getattr(module, f"{api.name}Request"), getattr(module, f"{api.name}Response")
    return Messages(request, response, holds_records(request), holds_records(response))


@cache
def field_names(cls: type[Struct]) -> frozenset[str]:
    """Return the names of all fields of a struct, at any depth."""
    names = set(cls.wire_fields)
    for field in cls.wire_fields.values():
        part = field.type.item if isinstance(field.type, Array) else field.type
        if isinstance(part, type):
            names |= field_names(part)
    return frozenset(names)
