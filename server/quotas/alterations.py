"""What AlterClientQuotas asks for, and why it is refused: Kafka's ClientQuotaControlManager. Sans-IO.

Of several mistakes the one is told that Kafka's hash maps have first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.groupcoord.java_hashing import table_slot
from ottla.server.quotas.entities import (
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
    from ottla.server.settings.overrides import Texts

NAME_CHARACTERS_MAX = 4_096
"""Of one name, or of one key; nobody has names of so many. Names are kept by every broker."""
FRACTION_MAX = 1e-6
SHOWN_CHARACTERS_MAX = 256

Named = Mapping[str, str | None]


def checked_entity(named: Named) -> Entity:
    """The entity that a request names. Whether an address can be resolved is not looked at. Raises KafkaError."""
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
    """The texts to keep of the quotas, by key; None removes. Raises KafkaError."""
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
    """What is kept of an entity after the changes; whatever else is kept of it stays."""
    left = {key: text for key, text in texts.items() if key not in changes or key not in KEYS}
    return left | {key: text for key, text in changes.items() if text is not None}


def duplicate(named: Named) -> KafkaError:
    """An entity, or a key of one, comes twice."""
    shown = ", ".join(
        f"{kind}={_shown('null' if named[kind] is None else str(named[kind]))}" for kind in _in_order(named)
    )
    return _invalid(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})")


def _in_order(names: Iterable[str]) -> list[str]:
    """In the order in which Kafka's hash map has them."""
    names = list(names)
    if sum(map(len, names)) > NAME_CHARACTERS_MAX:
        return names  # a hash of each costs what it is long, and nobody compares
    return sorted(names, key=lambda name: table_slot(name, len(names), len(names)))


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
