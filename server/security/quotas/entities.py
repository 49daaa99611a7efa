"""Entities that quotas are for (KIP-546), and the quota that holds for a client (Kafka's ClientQuotaManager). Sans-IO.

An entity is a tuple of (type, name) in the order of `TYPES`. None in place of a name is the default: whoever has no quota
of its own. It is kept in the coordination tree under a path such as users/alice/clients/<default>.

Of the levels that have a quota the first one counts for a client:

    1  user and client id          3  user              4  default user, client id             7  client id
    2  user, default client id                          5  default user, default client id     8  default client id
                                                        6  default user

From it follows whose use is counted together. All connections of a user share what level 3 or 6 gives; every pair of user and
client id has all of what 1, 2, 4 or 5 gives, and every client id of 7 or 8.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias
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
    """Kind of quota. `whole_max`: largest value of a quota that must be whole; None if fractions are allowed."""

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
    """Return the path of an entity's node below /config."""
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
    """Return the entity of a node path below /config that `path_of` or Kafka has made."""
    types = {znodes.USERS: USER, znodes.CLIENTS: CLIENT_ID, znodes.IPS: IP}
    parts = path.split("/")
    return tuple(
        (types[kind], None if element == znodes.DEFAULT_ENTITY else unquote(element))
        for kind, element in zip(parts[::2], parts[1::2], strict=True)
    )


def quota_text(value: float, key: QuotaKey) -> str:
    """Format a quota's value as Kafka 3.9 stores it."""
    if key.whole_max is not None:
        return str(min(int(value + 1e-6), key.whole_max))
    return repr(float(value))


def quota_value(text: str) -> float | None:
    """Parse a quota's text; None if it is malformed or not positive."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None


# ---------------------------------------------------------------------- levels


DEFAULT = None
ABSENT = ""

Key: TypeAlias = tuple[str | None, str | None]
Sharers: TypeAlias = tuple[str, str]
"""User and client id whose use is counted together; '' is any."""


class Limits:
    """Quotas of one kind, for all users and client ids. `version` changes whenever a quota changes."""

    def __init__(self) -> None:
        self._bounds: dict[Key, float] = {}
        self._of_clients = self._of_users = self._of_both = 0
        self.version = 0

    def __len__(self) -> int:
        return len(self._bounds)

    def put(self, entity: Entity, bound: float | None) -> None:
        """Set the quota of an entity; None removes it."""
        names = dict(entity)
        key = names.get(USER, ABSENT), names.get(CLIENT_ID, ABSENT)
        self._count(key, -1 if key in self._bounds else 0)
        if bound is None:
            self._bounds.pop(key, None)
        else:
            self._bounds[key] = bound
            self._count(key, 1)
        self.version += 1

    def _count(self, key: Key, step: int) -> None:
        if ABSENT not in key:
            self._of_both += step
        elif key[1] == ABSENT:
            self._of_users += step
        else:
            self._of_clients += step

    def sharers(self, user: str, client_id: str) -> Sharers:
        """Return the (user, client id) to which usage is charged. All clients with the same pair share a quota."""
        # While there are quotas on one level only, nothing has to be looked for.
        if not self._of_both:
            if not self._of_users:
                return ABSENT, client_id
            if not self._of_clients:
                return user, ABSENT
        elif not self._of_users and not self._of_clients:
            return user, client_id
        bounds = self._bounds
        if (user, client_id) in bounds or (user, DEFAULT) in bounds:
            return user, client_id
        if (user, ABSENT) in bounds:
            return user, ABSENT
        if (DEFAULT, client_id) in bounds or (DEFAULT, DEFAULT) in bounds:
            return user, client_id
        return (user, ABSENT) if (DEFAULT, ABSENT) in bounds else (ABSENT, client_id)

    def bound(self, sharers: Sharers) -> float | None:
        """Return the quota that the clients charged as `sharers` have together; None: unlimited."""
        user, client_id = sharers
        keys: tuple[Key, ...]
        if user and client_id:
            keys = (user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT)
        elif user:
            keys = (user, ABSENT), (DEFAULT, ABSENT)
        elif client_id:
            keys = (ABSENT, client_id), (ABSENT, DEFAULT)
        else:
            keys = ()
        return next((self._bounds[key] for key in keys if key in self._bounds), None)
