"""Lines in the log about what clients were refused, at the level that Kafka logs them with (INFO), but never a flood.

The same refusal is told once a minute, with how often it came. Of different ones at most `LINES_MAX` are told in a minute.
Names come from strangers: each is quoted, with everything escaped that cannot be printed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.replication.reminders import Reminders
from ottla.server.gate.authorized_operations import AclOperation, ResourceType

logger = logging.getLogger("ottla.authorizer")

LINES_MAX = 200
QUOTED_CHARACTERS_MAX = 300


class RefusalLog:
    """See the module's docstring. `clock_s` gives the time in seconds."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._reminders = Reminders(LINES_MAX, clock_s)

    def note(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """A client was refused something that it asked for."""
        if not logger.isEnabledFor(logging.INFO):
            return
        self._reminders.tell(
            (principal, host, operation, resource_type, name[:QUOTED_CHARACTERS_MAX]),
            logger.info,
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s",
            _quoted(principal),
            operation.name,
            host.removeprefix("/"),
            resource_type.name,
            _quoted(name),
            source=(principal, host),
        )


def _quoted(text: str) -> str:
    if len(text) > QUOTED_CHARACTERS_MAX:
        return f"{text[:QUOTED_CHARACTERS_MAX]!r}... ({len(text)} characters)"
    return repr(text)
