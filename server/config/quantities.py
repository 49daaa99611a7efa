"""Durations and sizes as people write them, such as 7d and 10MiB, for settings of which Kafka has a number.

    duration    ms, s, m or min, h, d, w                    900ms, 1.5h, 7d
    size        B, KiB, MiB, GiB, TiB (powers of 1024)      512B, 10MiB

The name of a setting says its unit: retention.ms, log.roll.hours, segment.bytes. The number is in that unit, so that
log.roll.hours=7d is 168. K, KB, MB and the like are refused: some mean 1000 by them, and some 1024.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DURATIONS_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip
SIZES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_AMBIGUOUS = {"k": "KiB", "kb": "KiB", "m": "MiB", "mb": "MiB", "g": "GiB", "gb": "GiB", "t": "TiB", "tb": "TiB"}
_QUANTITY = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))? ?([A-Za-z]{1,12})")


class Unit(NamedTuple):
    """Unit of a setting: its plural, and its size in milliseconds or bytes."""

    plural: str
    is_duration: bool
    factor: int


_DURATION_UNITS = {
    "ms": Unit("ms", True, 1),
    "seconds": Unit("seconds", True, 1000),
    "minutes": Unit("minutes", True, 60_000),
    "hours": Unit("hours", True, 3_600_000),
}
_BYTES = Unit("bytes", False, 1)
_OF_BYTES = (".bytes", ".buffer.size", ".receive.size", ".bytes.per.second", ".throttled.rate", ".byte.rate")
_SHOWN_DURATIONS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))
_SHOWN_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_DIGITS_MAX = 18
_SHOWN_FROM_MS, _SHOWN_FROM_BYTES = 60_000, 1 << 16


class InvalidQuantity(ValueError):
    """Error raised for a duration or size that its setting cannot have. The text says why, without name and value."""


def unit_of(name: str) -> Unit | None:
    """Return the unit in a setting's name; None if there is none."""
    dotted = "." + name.replace("_", ".").replace("-", ".")
    if dotted.endswith(_OF_BYTES):
        return _BYTES
    return _DURATION_UNITS.get(dotted.rpartition(".")[2])


def as_number(name: str, text: str) -> str:
    """Return the number, in the unit of setting `name`, of a duration or size; any other text as it is.

    Raises InvalidQuantity.
    """
    if not (text[:1].isdigit() and text[-1:].isalpha()):
        return text
    unit, found = unit_of(name), _QUANTITY.fullmatch(text)
    if unit is None or found is None:
        return text
    whole, decimals, suffix = found[1], found[2] or "", found[3]
    if suffix in "fFdD" and name.endswith(".per.second"):
        return text  # Java's floating-point numbers have these suffixes
    factor = _factor(unit, suffix)
    number, rest = divmod(int(whole + decimals) * factor, 10 ** len(decimals) * unit.factor)
    if rest:
        raise InvalidQuantity(f"it is no whole number of {unit.plural}")
    return str(number)


def _factor(unit: Unit, suffix: str) -> int:
    own, other = (DURATIONS_MS, SIZES) if unit.is_duration else (SIZES, DURATIONS_MS)
    if suffix in own:
        return own[suffix]
    wanted = "a duration such as 7d, 12h or 30min" if unit.is_duration else "a size such as 10MiB"
    wanted = f"{wanted}, or a number of {unit.plural}"
    if not unit.is_duration and (sure := _AMBIGUOUS.get(suffix.lower())):
        raise InvalidQuantity(f"{suffix} may mean 1000s or 1024s: write {sure}, or a number of bytes")
    if suffix in other or suffix.lower() in _AMBIGUOUS:
        raise InvalidQuantity(f"it is a {'size' if unit.is_duration else 'duration'}; the setting takes {wanted}")
    raise InvalidQuantity(f"it must be {wanted}")


def shown(name: str, value: str) -> str:
    """Return a setting's value for people: with a larger unit behind a number of which it is a multiple."""
    unit = unit_of(name)
    if unit is None or not (value.isascii() and value.isdecimal()) or len(value) > _DIGITS_MAX:
        return value
    amount = int(value) * unit.factor
    if amount < (_SHOWN_FROM_MS if unit.is_duration else _SHOWN_FROM_BYTES):
        return value  # everybody sees what it is
    for word, size in _SHOWN_DURATIONS if unit.is_duration else _SHOWN_SIZES:
        if size > unit.factor and amount % size == 0:
            count = amount // size
            return f"{value} ({count} {word}{'s' if unit.is_duration and count != 1 else ''})"
    return value
