"""Which quota holds for a client, and with whom it shares what it uses: Kafka's ClientQuotaManager. Sans-IO.

Of the levels that have a quota the first one counts:

    1  user and client id          3  user              4  default user, client id             7  client id
    2  user, default client id                          5  default user, default client id     8  default client id
                                                        6  default user

From it follows whose use is counted together. All connections of a user share what level 3 or 6 gives; every pair of user and
client id has all of what 1, 2, 4 or 5 gives, and every client id of 7 or 8.
"""

from __future__ import annotations

from typing import TypeAlias

from ottla.server.quotas.entities import CLIENT_ID, USER, Entity

DEFAULT = None
ABSENT = ""

Key: TypeAlias = tuple[str | None, str | None]
Sharers: TypeAlias = tuple[str, str]
"""User and client id whose use is counted together; '' is any."""


class Limits:
    """The quotas of one sort. `version` changes with them."""

    def __init__(self) -> None:
        self._bounds: dict[Key, float] = {}
        self._of_clients = self._of_users = self._of_both = 0
        self.version = 0

    def __len__(self) -> int:
        return len(self._bounds)

    def put(self, entity: Entity, bound: float | None) -> None:
        """Set the quota of an entity, or with None take it away."""
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
        """With whom a client's use is counted together."""
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
        """What those who are counted together may use; None: as much as they like."""
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
