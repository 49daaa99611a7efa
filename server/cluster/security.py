"""Security data that all brokers of a cluster share: ACLs, delegation tokens, and a secret for logins.

Each part exists only if this broker's settings enable it. Their data are in the coordination tree.
"""

from __future__ import annotations

import secrets
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.replication.cluster.coordination import BadVersion, Create, NodeExists, NoNode, Operation, SetData

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ottla.replication.cluster.coordination import Coordination, CoordinationError
    from ottla.server.cluster.acl_store import AclStore
    from ottla.server.cluster.broker_connections import BrokerPort
    from ottla.server.cluster.token_store import TokenStore
    from ottla.wire.errors import KafkaError

LOGIN_SECRET = "/ottla/login_secret"
SECRET_BYTES = 32


async def settle_login_secret(coordination: Coordination) -> bytes:
    """Return the login secret from the coordination tree; create one if there is none. Raises CoordinationError."""
    while True:
        (node,) = await coordination.get_all([LOGIN_SECRET])
        # Whatever somebody has written there will do, if it can be a secret.
        if node is not None and len(node.data) >= SECRET_BYTES:
            return node.data
        secret = secrets.token_bytes(SECRET_BYTES)
        write: Operation = Create(LOGIN_SECRET, secret) if node is None else SetData(LOGIN_SECRET, secret, node.version)
        try:
            await coordination.multi([write])
            return secret
        except (NodeExists, NoNode, BadVersion) as error:
            if error.path != LOGIN_SECRET:
                raise
            # Another broker was faster; look again.


class Security:
    """ACLs, delegation tokens and login secret in the coordination tree. `refusal` converts write errors."""

    def __init__(
        self,
        broker: BrokerPort,
        coordination: Coordination,
        *,
        refusal: Callable[[CoordinationError], KafkaError],
        is_controller: Callable[[], bool],
        has_readers: bool,
    ) -> None:
        """Create the stores; `has_readers`: other brokers read the same tree and must be notified of changes."""
        self._broker, self._coordination, self._refusal = broker, coordination, refusal
        self._is_controller, self._has_readers = is_controller, has_readers
        self.login_secret: bytes | None = None
        """Secret from which answers to unknown users are derived; None until it is read, and if no listener has logins."""

    @cached_property
    def acls(self) -> AclStore | None:
        """Store of the authorizer's ACLs; None without an authorizer."""
        authorizer = self._broker.authorizer
        if authorizer is None:
            return None
        from ottla.server.cluster.acl_store import AclStore  # here, because most brokers have no rules

        return AclStore(
            authorizer,
            self._coordination,
            refusal=self._refusal,
            has_readers=self._has_readers,
            clock_ms=self._broker.now_ms,
        )

    @cached_property
    def tokens(self) -> TokenStore | None:
        """Store of the delegation tokens; None if there is no key for them."""
        table = self._broker.tokens
        if table is None:
            return None
        from ottla.server.cluster.token_store import TokenStore  # here, because most brokers have no tokens

        return TokenStore(
            table,
            self._broker.configs.started_with.tokens,
            self._coordination,
            refusal=self._refusal,
            is_controller=self._is_controller,
            has_readers=self._has_readers,
            clock_ms=self._broker.now_ms,
            run_in_thread=self._broker.environment.run_in_thread,
        )

    async def read_all(self) -> None:
        """Load ACLs, tokens and login secret. Raises CoordinationError, or MalformedNode for an unreadable ACL.

        An unreadable ACL may be a deny.
        """
        if self._broker.configs.started_with.sasl and self.login_secret is None:
            self.login_secret = await settle_login_secret(self._coordination)
        if self.acls is not None:
            await self.acls.read_all()
        if self.tokens is not None:
            if self.login_secret is not None:
                from ottla.server.security.scram_credentials import MadeUpCredentials

                self.tokens.table.salt_of = MadeUpCredentials(self.login_secret).salt_of_token
            await self.tokens.read_all()

    def listeners(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return tasks by name (for the log). Each applies changes of other brokers until the session ends."""
        found: dict[str, Callable[[], Awaitable[None]]] = {}
        if self._has_readers and self.acls is not None:
            found["ACLs"] = self.acls.run
        if self._has_readers and self.tokens is not None:
            found["Delegation tokens"] = self.tokens.run
        return found
