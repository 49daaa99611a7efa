"""Passwords in the settings of brokers, and where nobody may read them: in logs, and in answers.

`BrokerProcess` looks through the log of a broker of ours when it stops, and `WireClient` through every answer. Whoever makes
up more passwords, as those of SCRAM users, adds them to `BrokerProcess.secrets`.
"""

import functools
import re
from collections.abc import Iterable, Mapping

from ottla.wire.settings import PASSWORD

CHARACTERS_MIN = 8
"""Shorter ones could stand in a log by chance."""

_KNOWN: set[bytes] = set()
# In a line of JAAS: password="..." and user_alice='...'.
_IN_JAAS = re.compile(r"\b(?:password|user_[^=\s]+)=(?:\"([^\"]*)\"|'([^']*)')")
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.+?)-----END", re.DOTALL)


def secrets_of(settings: Mapping[str, str]) -> set[str]:
    """What nobody may read of these settings."""
    found: set[str] = set()
    for name, value in settings.items():
        if name.endswith("sasl.jaas.config"):
            found.update(quoted or other for quoted, other in _IN_JAAS.findall(value))
        elif _KEY.search(value):
            found.update(line for key in _KEY.findall(value) for line in key.split())
        elif name.endswith(_names_of_passwords()) and not value.startswith("-----"):
            found.add(value)
    return {each for each in found if len(each) >= CHARACTERS_MIN}


@functools.cache
def _names_of_passwords() -> tuple[str, ...]:
    from ottla.server.config.broker_config import broker_settings

    return tuple(name for name, declared in broker_settings().items() if declared.kind is PASSWORD)


def keep(secrets: Iterable[str]) -> None:
    """From now on no answer may have them."""
    _KNOWN.update(each.encode() for each in secrets)


def told(data: bytes | bytearray) -> list[bytes]:
    """Those that are in it."""
    return [each for each in _KNOWN if each in data]
