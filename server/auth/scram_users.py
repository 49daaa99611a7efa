"""SCRAM credentials of users, as they are kept in the coordination tree under /config/users, read when they change.

A user's node has the mechanism's name as key: `SCRAM-SHA-256=salt=...,stored_key=...,server_key=...,iterations=4096`. What
else is kept of users there (quotas) is none of this module's business.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ottla.replication.cluster import znodes
from ottla.server.auth.scram import KnownToken
from ottla.server.auth.scram_credentials import (
    HASHES,
    ITERATIONS_MIN,
    MalformedCredential,
    ScramCredential,
    decode_credential,
)
from ottla.server.auth.scram_made_up import SALT_BITS, MadeUpCredentials, in_36_digits

if TYPE_CHECKING:
    from ottla.server.auth.tokens.table import DelegationTokens

logger = logging.getLogger("ottla.auth")


class ScramUsers:
    """Who may log in by SCRAM; a `ScramStore`."""

    def __init__(self, secret: bytes | None = None, tokens: DelegationTokens | None = None) -> None:
        """`secret`: what the answers to unknown names are made of, the same on all brokers and for ever; None: a new one."""
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        self._made_up = MadeUpCredentials(secret or secrets.token_bytes(32))
        self._tokens = tokens

    def on_entity(self, entity: str, texts: Mapping[str, str]) -> None:
        """Take what is kept of an entity, if it is a user and not the default one."""
        kind, _, element = entity.partition("/")
        if kind == znodes.USERS and "/" not in element and element != znodes.DEFAULT_ENTITY:
            self.put(unquote(element), texts)

    def put(self, name: str, texts: Mapping[str, str]) -> None:
        """Take what is kept of a user now; nothing: the user is gone."""
        found = {}
        for mechanism in HASHES:
            if (text := texts.get(mechanism)) is not None:
                try:
                    found[mechanism] = credential = decode_credential(text)
                except MalformedCredential:
                    logger.error("Left aside a %s credential that cannot be read", mechanism)
                    continue
                if credential.iterations < ITERATIONS_MIN:
                    too_few = "Nobody can log in by a %s credential with %d iterations, where %d are the minimum"
                    logger.error(too_few, mechanism, credential.iterations, ITERATIONS_MIN)
        for mechanism in HASHES:
            self._made_up.change(mechanism, self.credential(mechanism, name), found.get(mechanism))
        if found:
            self._credentials[name] = found
        else:
            self._credentials.pop(name, None)

    def of(self, name: str) -> Mapping[str, ScramCredential]:
        """The credentials of a user, by mechanism."""
        return self._credentials.get(name, {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._credentials)

    def credential(self, mechanism: str, name: str) -> ScramCredential | None:
        return self._credentials.get(name, {}).get(mechanism)

    def token(self, mechanism: str, token_id: str, now_ms: int) -> KnownToken | None:
        return None if self._tokens is None else self._tokens.known(mechanism, token_id, now_ms)

    def no_credential(self, mechanism: str, name: str, *, is_token: bool = False) -> ScramCredential:
        return self._made_up.of_token(mechanism, name) if is_token else self._made_up.of_user(mechanism, name)


def user_entity(name: str) -> str:
    """Where what is kept of a user is, below /config."""
    return f"{znodes.USERS}/{znodes.entity_element(name)}"


def new_salt() -> bytes:
    """As Kafka's tools make one."""
    return in_36_digits(secrets.randbits(SALT_BITS))
