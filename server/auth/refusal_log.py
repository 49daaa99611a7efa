"""Lines in the log about what clients were refused, at the level that Kafka logs them with (INFO), but never a flood.

The same refusal is told once a minute. Of different ones at most `LINES_MAX` are told in a minute, and then how many were
not. Names come from strangers: each is quoted, with everything escaped that cannot be printed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.server.gate.authorized_operations import AclOperation, ResourceType

logger = logging.getLogger("ottla.authorizer")

MINUTE_S = 60.0
LINES_MAX = 200
QUOTED_CHARACTERS_MAX = 300

Refusal = tuple[str, str, AclOperation, ResourceType, str]


class RefusalLog:
    """See the module's docstring. `clock_s` gives the time in seconds."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._told: set[Refusal] = set()
        self._untold = 0
        self._minute_end = 0.0

    def note(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str) -> None:
        """A client was refused something that it asked for."""
        if not logger.isEnabledFor(logging.INFO):
            return
        now = self._clock_s()
        if now >= self._minute_end:
            self._begin_minute(now)
        refusal = (principal, host, operation, resource_type, name[:QUOTED_CHARACTERS_MAX])
        if refusal in self._told or len(self._told) >= LINES_MAX:
            self._untold += 1
            return
        self._told.add(refusal)
        logger.info(
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s",
            _quoted(principal),
            operation.name,
            host.removeprefix("/"),
            resource_type.name,
            _quoted(name),
        )

    def _begin_minute(self, now: float) -> None:
        if self._untold:
            logger.info("%d more refusals were of the same, or more than the log takes in a minute", self._untold)
        self._told.clear()
        self._untold = 0
        self._minute_end = now + MINUTE_S


def _quoted(text: str) -> str:
    if len(text) > QUOTED_CHARACTERS_MAX:
        return f"{text[:QUOTED_CHARACTERS_MAX]!r}... ({len(text)} characters)"
    return repr(text)
