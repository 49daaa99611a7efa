"""Secrets in messages, hidden before anything is written to a file: passwords, SASL bytes, delegation tokens.

    SaslAuthenticate, SaslToken             all bytes of the mechanism
    *DelegationToken                        hmac
    AlterUserScramCredentials               salt and salted password
    CreateTopics, *AlterConfigs             values of settings whose names tell of a secret
    Envelope                                the request and the answer inside

Keys, values and headers of records are hidden if asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ottla.server.testing.wire_tap.kafka_names import field_names, messages_of
from ottla.wire.schema import Records, Struct

_SECRET_FIELDS = frozenset({"auth_bytes", "hmac", "salt", "salted_password", "request_data", "response_data"})
_SECRET_SETTINGS = (
    *("password", "jaas", "secret", "token", "credential", ".key"),
    *("console.users", "user.info", "truststore.certificates"),
)
BATCH_HEADER_BYTES = 61

Hide = Callable[[Any], Any]
"""Returns the stand-in of a secret, which is bytes or a text."""


def without_secrets(message: Any, hide: Hide, hide_records: Hide | None = None) -> Any:
    """Return a copy of a message in which secrets are replaced. `hide_records`: None to leave records as they are."""
    # A default that many messages share cannot be copied, and has no secrets.
    if "__setattr__" in vars(type(message)):
        return message
    values: dict[str, Any] = {}
    is_secret_setting = _is_secret_setting(message)
    for name, field in message.wire_fields.items():
        value = getattr(message, name)
        if isinstance(value, list):
            values[name] = [_below(each, hide, hide_records) for each in value]
        elif isinstance(value, Struct):
            values[name] = _below(value, hide, hide_records)
        elif value and (name in _SECRET_FIELDS or (is_secret_setting and name == "value")):
            values[name] = hide(value)
        elif field.type is Records and value and hide_records is not None:
            values[name] = hide_records(value)
        else:
            values[name] = value
    return type(message)(**values)


@cache
def may_have_secrets(api_key: int) -> bool:
    """True if messages of an API have fields that `without_secrets` may replace."""
    if (messages := messages_of(api_key)) is None:
        return False
    names = field_names(messages.request) | field_names(messages.response)
    return not _SECRET_FIELDS.isdisjoint(names) or names >= {"name", "value"}


def _below(value: Any, hide: Hide, hide_records: Hide | None) -> Any:
    return without_secrets(value, hide, hide_records) if isinstance(value, Struct) else value


def _is_secret_setting(struct: Struct) -> bool:
    if "value" not in struct.wire_fields or "name" not in struct.wire_fields:
        return False
    name = str(getattr(struct, "name", "")).casefold()
    return any(each in name for each in _SECRET_SETTINGS)


def of_same_length(secret: Any) -> Any:
    """Return zeros or asterisks in place of a secret."""
    return "*" * len(secret.encode()) if isinstance(secret, str) else bytes(len(secret))


def records_of_same_length(records: Any) -> bytes:
    """Return batches whose headers are as they were and whose records are zeros."""
    from ottla.wire.records import iter_batches  # here, because few messages have records

    data = bytearray(records)
    for _, start, end in iter_batches(bytes(data)):
        body = min(start + BATCH_HEADER_BYTES, end)
        data[body:end] = bytes(end - body)
    return bytes(data)
