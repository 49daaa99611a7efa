"""GSS-API with Kerberos, by the package gssapi over the system's library. The only module that imports it.

All of this may block, for the files of keys and replays, for DNS and for a KDC, so it is done in threads. Whatever the library
complains of is a `GssFailure`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import gssapi.raw as gss

from ottla.server.security.kerberos.exchange import GssFailure, Stepped

if TYPE_CHECKING:
    from ottla.server.config.sasl_rules import KerberosKeys

FAILURE_CHARACTERS_MAX = 300
NAME_BYTES_MAX = 4_000

# Of Kerberos' errors as the library numbers them (ERROR_TABLE_BASE_krb5, without a sign).
_KERBEROS_BASE = 2_529_638_912
# Client not yet valid, ticket not yet valid, request is a replay: the next attempt may go well (Kafka's KerberosError).
_PASSING = {_KERBEROS_BASE + 21, _KERBEROS_BASE + 33, _KERBEROS_BASE + 34}

_KERBEROS = gss.MechType.kerberos
_PRINCIPAL = gss.NameType.kerberos_principal
_FLAGS = (
    gss.RequirementFlag.mutual_authentication
    | gss.RequirementFlag.replay_detection
    | gss.RequirementFlag.out_of_sequence_detection
    | gss.RequirementFlag.integrity
)
_caches = itertools.count()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except gss.GSSError as error:
        code = error.min_code & 0xFFFFFFFF
        raise GssFailure(_words(error, code), is_passing=code in _PASSING) from None


def _words(error: Any, code: int) -> str:
    try:
        found = error.get_all_statuses(error.min_code, False) if code else error.get_all_statuses(error.maj_code, True)
        text = "; ".join(map(str, found))
    except (gss.GSSError, ValueError):  # UnicodeError is a ValueError
        text = f"error {error.maj_code}/{code}"
    # It may quote the ticket, which is a stranger's.
    line = " ".join(text[: 2 * FAILURE_CHARACTERS_MAX].split())[:FAILURE_CHARACTERS_MAX]
    return "".join(each if each.isprintable() else "?" for each in line)


def default_realm() -> str:
    """Return this machine's realm. As in Kafka, it is "" if Kerberos' configuration names no realm."""
    try:
        with _translated():
            name = gss.canonicalize_name(gss.import_name(b"nobody", _PRINCIPAL), _KERBEROS)
            return _shown(name).rpartition("@")[2]
    except GssFailure:
        return ""


def _shown(name: Any) -> str:
    """Format a principal as text, with backslashes before separators inside of names. Raises GssFailure."""
    shown: bytes = gss.display_name(name, False).name
    if len(shown) > NAME_BYTES_MAX:
        raise GssFailure(f"a principal of {len(shown)} bytes")
    try:
        return shown.decode()
    except UnicodeDecodeError:
        raise GssFailure("a principal that is no UTF-8") from None


def _principal(keys: KerberosKeys) -> Any:
    return gss.import_name(keys.principal.encode(), _PRINCIPAL)


class Acceptor:
    """Acceptor of tickets for the principal of `keys`. The keytab is read anew for each ticket.

    Raises GssFailure if there are no keys for the principal.
    """

    def __init__(self, keys: KerberosKeys) -> None:
        where = {} if keys.keytab is None else {b"keytab": f"FILE:{keys.keytab}".encode()}
        with _translated():
            found = gss.acquire_cred_from(where, _principal(keys), mechs=[_KERBEROS], usage="accept")
        self._credentials = found.creds

    def begin(self) -> AcceptedContext:
        return AcceptedContext(self._credentials)


class _Context:
    """Base class of security contexts, of the server and of the client."""

    _context: Any = None

    def wrap(self, message: bytes) -> bytes:
        """Wrap a message so that the peer can verify its origin; the message is not encrypted."""
        with _translated():
            wrapped: bytes = gss.wrap(self._context, message, False).message
        return wrapped

    def unwrap(self, token: bytes) -> bytes:
        with _translated():
            message: bytes = gss.unwrap(self._context, token).message
        return message


class AcceptedContext(_Context):
    """Security context of the server in one login."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def step(self, token: bytes) -> Stepped:
        with _translated():
            found = gss.accept_sec_context(token, acceptor_creds=self._credentials, context=self._context)
        self._context = found.context
        return Stepped(found.token, not found.more_steps)

    def initiator(self) -> str:
        """Principal of the client; available once the context is complete."""
        with _translated():
            return _shown(gss.inquire_context(self._context, target_name=False).initiator_name)


class Initiator:
    """Source of logins at other brokers, as the principal of `keys`. Tickets are cached in memory while valid."""

    def __init__(self, keys: KerberosKeys) -> None:
        self._keys = keys
        self._cache = f"MEMORY:ottla-{next(_caches)}".encode()

    def begin(self, host: str) -> InitiatedContext:
        """Begin a login at the service on `host`. Raises GssFailure if the KDC grants no ticket."""
        keys = self._keys
        where = {b"ccache": self._cache}
        if keys.keytab is not None:
            where[b"client_keytab"] = f"FILE:{keys.keytab}".encode()
        with _translated():
            found = gss.acquire_cred_from(where, _principal(keys), mechs=[_KERBEROS], usage="initiate")
            target = gss.import_name(f"{keys.service_name}@{host}".encode(), gss.NameType.hostbased_service)
        return InitiatedContext(found.creds, target)


class InitiatedContext(_Context):
    """Security context of the client in one login."""

    def __init__(self, credentials: Any, target: Any) -> None:
        self._credentials, self._target = credentials, target

    def step(self, token: bytes) -> Stepped:
        """Process a token from the server, at first an empty one; return the result of this step."""
        with _translated():
            found = gss.init_sec_context(
                self._target,
                self._credentials,
                context=self._context,
                mech=_KERBEROS,
                flags=_FLAGS,
                input_token=token or None,
            )
        self._context = found.context
        return Stepped(found.token, not found.more_steps)
