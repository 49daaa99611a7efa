"""What decides who may do what, by Kafka's rules (its StandardAuthorizer, and AclAuthorizer of Kafka 3.9).

Super users may do everything. For everybody else `acl_index.py` decides. Verdicts are kept until a rule changes: a verdict has
the bits of all operations that a client may do to a resource. They are kept in two halves. When the young one is full it
becomes the old one, and what was in that is forgotten unless it was asked for meanwhile.

A refusal is logged with who was refused what, each once a minute (`refusal_log.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.server.auth.acl_index import EVERYTHING, AclIndex, Asking
from ottla.server.auth.acls import Entry, Pattern
from ottla.server.auth.hosts import client_address
from ottla.server.auth.refusal_log import RefusalLog
from ottla.server.gate.authorized_operations import AclOperation, ResourceType
from ottla.server.gate.context import THIS_BROKER
from ottla.server.settings.security_config import AuthorizerConfig

VERDICTS_PER_HALF = 5_000
# Longer names are decided anew each time: strangers could fill the memory with them.
KEPT_CHARACTERS_MAX = 600
_SOME_NAME = "hardcode"  # Kafka's: may the client do this to a resource that no rule names?


class AclAuthorizer:
    """An `Authorizer` of `server/gate/access.py`."""

    def __init__(self, config: AuthorizerConfig, clock_s: Callable[[], float]) -> None:
        self.index = AclIndex()
        self.version = 0
        self._super_users = config.super_users | {THIS_BROKER}
        self._allow_everyone = config.allow_everyone
        self._young: dict[tuple[str, str, int, str], int] = {}
        self._old: dict[tuple[str, str, int, str], int] = {}
        self._any: dict[tuple[str, str, int, int], bool] = {}
        self._log = RefusalLog(clock_s)

    def put(self, pattern: Pattern, entries: frozenset[Entry]) -> None:
        """From now on these are the rules about a pattern."""
        self.index.put(pattern, entries)
        self.version += 1
        self._young, self._old, self._any = {}, {}, {}

    # ------------------------------------------------------------------ questions

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str, quietly: bool
    ) -> bool:
        verdict = self._young.get((principal, host, resource_type, name))
        if verdict is None:
            verdict = self._verdict(principal, host, resource_type, name)
        if verdict >> operation & 1:
            return True
        if not quietly:
            self._log.note(principal, host, operation, resource_type, name)
        return False

    def operations(
        self, principal: str, host: str, candidates: Sequence[AclOperation], resource_type: ResourceType, name: str
    ) -> int:
        verdict = self._verdict(principal, host, resource_type, name)
        return sum([1 << each for each in candidates if verdict >> each & 1])

    def allows_on_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        key = (principal, host, operation, resource_type)
        allowed = self._any.get(key)
        if allowed is None:
            if len(self._any) >= VERDICTS_PER_HALF:
                self._any.clear()
            allowed = self._any[key] = self._decide_on_any(principal, host, operation, resource_type)
        return allowed

    def _decide_on_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        if self.allows(principal, host, operation, resource_type, _SOME_NAME, quietly=True):
            return True
        asking = Asking(principal, client_address(host))
        return self.index.allows_on_any(asking, operation, resource_type)

    # ------------------------------------------------------------------ verdicts

    def _verdict(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        """The bits of everything that the client may do to the resource."""
        key = (principal, host, resource_type, name)
        verdict = self._young.get(key)
        if verdict is not None:
            return verdict
        verdict = self._old.get(key)
        if verdict is None:
            verdict = self._decide(principal, host, resource_type, name)
        if len(name) + len(principal) > KEPT_CHARACTERS_MAX:
            return verdict
        if len(self._young) >= VERDICTS_PER_HALF:
            self._old, self._young = self._young, {}
        self._young[key] = verdict
        return verdict

    def _decide(self, principal: str, host: str, resource_type: ResourceType, name: str) -> int:
        if principal in self._super_users:
            return EVERYTHING
        allowed = self.index.allowed(Asking(principal, client_address(host)), resource_type, name)
        if allowed is None:
            return EVERYTHING if self._allow_everyone else 0
        return allowed
