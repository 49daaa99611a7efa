"""Which entities a DescribeClientQuotas asks for: Kafka's ClientQuotasImage. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.server.quotas.entities import CLIENT_ID, IP, TYPES, USER, Entity
from ottla.wire.errors import ErrorCode, KafkaError

EXACT, DEFAULT, SPECIFIED = range(3)
SHOWN_CHARACTERS_MAX = 256


class Component(NamedTuple):
    """One condition: the kind, how it is meant, and the name."""

    kind: str
    match_type: int
    match: str | None


class Filter:
    """The conditions of one request. Raises KafkaError if they cannot be met."""

    def __init__(self, components: Iterable[Component], *, is_strict: bool) -> None:
        self._names: dict[str, str | None] = {}
        self._kinds: set[str] = set()
        self._is_strict = is_strict
        for component in components:
            self._add(component)
        kinds = self._kinds.union(self._names)
        if IP in kinds and (USER in kinds or CLIENT_ID in kinds):
            raise _invalid(
                "Invalid entity filter component combination. IP filter component should not be used with user or"
                " clientId filter component."
            )
        self._count = len(kinds)

    def _add(self, component: Component) -> None:
        kind, match_type, match = component
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in self._names or kind in self._kinds:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in TYPES:
            unknown = kind[:SHOWN_CHARACTERS_MAX]
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {unknown}")
        if match_type == EXACT:
            if match is None:
                raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._names[kind] = match
        elif match_type in (DEFAULT, SPECIFIED):
            if match is not None:
                meant = "DEFAULT" if match_type == DEFAULT else "SPECIFIED"
                raise _invalid(f"Request specified MATCH_TYPE_{meant}, but also specified a match string.")
            if match_type == DEFAULT:
                self._names[kind] = None
            else:
                self._kinds.add(kind)
        else:
            raise _invalid(f"Unknown match type {match_type}")

    def takes(self, entity: Entity) -> bool:
        """Whether an entity is asked for."""
        names = dict(entity)
        # As in Kafka, no conditions at all find everything, and strictly nothing.
        if self._is_strict and (len(names) != self._count or not self._count):
            return False
        return names.keys() >= self._kinds and all(
            kind in names and names[kind] == name for kind, name in self._names.items()
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
