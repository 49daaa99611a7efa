"""The secret that all brokers of a cluster make up answers of for logins of users who do not exist.

With secrets of their own they would answer differently, and so would one broker after a restart: strangers could tell by it
who does exist. The node holds 32 random bytes, and only brokers may read it where ZooKeeper has ACLs.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from ottla.replication.cluster.coordination import BadVersion, Create, NodeExists, NoNode, Operation, SetData

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination

LOGIN_SECRET = "/ottla/login_secret"
SECRET_BYTES = 32


async def settle_login_secret(coordination: Coordination) -> bytes:
    """The secret in the tree, or a new one that is now there. Raises CoordinationError."""
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
