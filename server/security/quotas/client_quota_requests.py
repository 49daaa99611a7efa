"""Requests about quotas: filters of DescribeClientQuotas (Kafka's ClientQuotasImage), and alterations. Sans-IO.

Alterations are refused as by Kafka's ClientQuotaControlManager: of several mistakes the answer names the one that comes first in
Kafka's hash maps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.groupcoord.java_hashing import table_slot
from ottla.server.security.quotas.entities import (
    CLIENT_ID,
    IP,
    IP_KEYS,
    KEYS,
    TYPES,
    USER,
    USER_AND_CLIENT_KEYS,
    Entity,
    QuotaKey,
    quota_text,
)
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.server.config.repository import Texts

EXACT, DEFAULT, SPECIFIED = range(3)
SHOWN_CHARACTERS_MAX = 256


class Component(NamedTuple):
    """Condition of a quota filter: entity type, kind of match, and entity name."""

    kind: str
    match_type: int
    match: str | None


class Filter:
    """Filter of quota entities. The constructor raises KafkaError if its conditions contradict each other."""

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
        """Return True if the filter matches an entity."""
        names = dict(entity)
        # As in Kafka, no conditions at all find everything, and strictly nothing.
        if self._is_strict and (len(names) != self._count or not self._count):
            return False
        return names.keys() >= self._kinds and all(
            kind in names and names[kind] == name for kind, name in self._names.items()
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


# ---------------------------------------------------------------------- alterations


NAME_CHARACTERS_MAX = 4_096
"""Length limit of one name, or of one key: every broker keeps names."""
FRACTION_MAX = 1e-6

Named = Mapping[str, str | None]


def checked_entity(named: Named) -> Entity:
    """Check and return the quota entity that a request names. Host names are not resolved. Raises KafkaError."""
    if not named:
        raise _invalid("Invalid empty client quota entity")
    for kind in _in_order(named):
        name = named[kind]
        if kind not in TYPES:
            raise _invalid(f"Unhandled client quota entity type: {_shown(kind)}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        if name is not None and len(name) > NAME_CHARACTERS_MAX:
            raise _invalid(f"The name of a {kind} has more than {NAME_CHARACTERS_MAX} characters")
    if IP in named and (USER in named or CLIENT_ID in named):
        # So it is in Kafka, without a space.
        raise _invalid("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    return tuple((kind, named[kind]) for kind in TYPES if kind in named)


def checked_changes(entity: Entity, ops: Sequence[tuple[str, float | None]]) -> dict[str, str | None]:
    """Check changes of quotas; return the new texts by key, None for quotas to remove. Raises KafkaError."""
    changes = dict(ops)
    keys = IP_KEYS if entity[0][0] == IP else USER_AND_CLIENT_KEYS
    texts: dict[str, str | None] = {}
    for key in _in_order(changes):
        value = changes[key]
        if value is None:
            texts[key] = None
        else:
            texts[key] = _checked_text(keys, key, value)
    return texts


def _checked_text(keys: Mapping[str, QuotaKey], key: str, value: float) -> str:
    known = keys.get(key)
    if known is None:
        raise _invalid(f"Invalid configuration key {_shown(key)}")
    if not math.isfinite(value):
        raise _invalid(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if known.whole_max is not None:
        if value > float(known.whole_max):
            article = "an" if known.type_name == "INT" else "a"
            raise _invalid(f"Proposed value for {key} is too large for {article} {known.type_name}.")
        if math.fmod(value, 1.0) > FRACTION_MAX:
            raise _invalid(f"{key} cannot be a fractional value.")
        if value < 1.0 - FRACTION_MAX:
            raise _invalid(f"Quota {key} must be greater than 0")
    return quota_text(value, known)


def changed(texts: Texts, changes: Mapping[str, str | None]) -> Texts:
    """Return an entity's settings with changed quotas; None removes a quota. Other settings stay."""
    left = {key: text for key, text in texts.items() if key not in changes or key not in KEYS}
    return left | {key: text for key, text in changes.items() if text is not None}


def duplicate(named: Named) -> KafkaError:
    """Return the error for an entity that a request names twice."""
    shown = ", ".join(
        f"{kind}={_shown('null' if named[kind] is None else str(named[kind]))}" for kind in _in_order(named)
    )
    return _invalid(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")


def _in_order(names: Iterable[str]) -> list[str]:
    """Sort names like Kafka's responses, which have the iteration order of a Java HashMap."""
    names = list(names)
    if sum(map(len, names)) > NAME_CHARACTERS_MAX:
        return names  # a hash of each costs what it is long, and nobody compares
    return sorted(names, key=lambda name: table_slot(name, len(names), len(names)))


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
