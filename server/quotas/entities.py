"""Whom a quota is for, and which quotas there are (KIP-546).

An entity is a tuple of (type, name) in the order of `TYPES`. None in place of a name is the default: whoever has no quota
of its own. It is kept in the coordination tree under a path such as users/alice/clients/<default>.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from urllib.parse import unquote

from ottla.replication.cluster import znodes

USER, CLIENT_ID, IP = TYPES = ("user", "client-id", "ip")

Entity = tuple[tuple[str, str | None], ...]

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1


class QuotaKey(NamedTuple):
    """What values a quota may have. `whole_max`: the largest of a quota without fractions, None of one with them."""

    whole_max: int | None
    type_name: str = "DOUBLE"


USER_AND_CLIENT_KEYS = {
    PRODUCER_BYTE_RATE: QuotaKey(LONG_MAX, "LONG"),
    CONSUMER_BYTE_RATE: QuotaKey(LONG_MAX, "LONG"),
    REQUEST_PERCENTAGE: QuotaKey(None),
    CONTROLLER_MUTATION_RATE: QuotaKey(None),
}
IP_KEYS = {CONNECTION_CREATION_RATE: QuotaKey(INT_MAX, "INT")}
KEYS = USER_AND_CLIENT_KEYS | IP_KEYS


def path_of(entity: Entity) -> str:
    """Where what is kept of an entity is, below /config."""
    names = dict(entity)
    if IP in names:
        return f"{znodes.IPS}/{znodes.entity_element(names[IP])}"
    parts = []
    if USER in names:
        parts.append(f"{znodes.USERS}/{znodes.entity_element(names[USER])}")
    if CLIENT_ID in names:
        parts.append(f"{znodes.CLIENTS}/{znodes.entity_element(names[CLIENT_ID])}")
    return "/".join(parts)


def entity_at(path: str) -> Entity:
    """The entity of a path that `path_of` or Kafka has made."""
    types = {znodes.USERS: USER, znodes.CLIENTS: CLIENT_ID, znodes.IPS: IP}
    parts = path.split("/")
    return tuple((types[kind], _name(element)) for kind, element in zip(parts[::2], parts[1::2], strict=True))


def _name(element: str) -> str | None:
    return None if element == znodes.DEFAULT_ENTITY else unquote(element)


def quota_text(value: float, key: QuotaKey) -> str:
    """As Kafka 3.9 keeps a quota."""
    if key.whole_max is not None:
        return str(min(int(value + 1e-6), key.whole_max))
    return repr(float(value))


def quota_value(text: str) -> float | None:
    """What a text in the tree says; None: nothing that is a quota."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None
