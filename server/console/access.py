"""Who may ask the console.

Everybody who reaches it, as long as it shows no more than a Kafka client on this machine could read anyway: the endpoint is bound to
loopback, there is no authorizer, some listener takes clients without login and certificate, and the operator has not chosen a token.
Otherwise only who brings the token, and whoever has it sees and, with `http.console.write`, changes everything: the rules of the authorizer are not asked.

Behind a proxy on this machine everybody seems to be here. So a request that says it was forwarded needs the token, too.

What changes something needs the token in any case. Where the console is open, its own page is told the token, which pages of other
sites cannot read. That is one more bar beside the checks of `server/http/guard.py`, which come first.
"""

from __future__ import annotations

import hmac
import secrets
from ipaddress import ip_address
from typing import TYPE_CHECKING

from ottla.server.http.routes import Refused

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.http.routes import Request

_SCHEME = "bearer "
_CHALLENGE = (("WWW-Authenticate", "Bearer"),)
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""What proxies add, most of them unasked."""


class Access:
    """See the module's docstring. `is_open`: reading needs no token."""

    def __init__(self, token: str | None, *, is_open: bool, may_write: bool) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self.is_generated = token is None
        self.is_open = is_open
        self.may_write = may_write

    @classmethod
    def of(cls, broker: Broker) -> Access:
        """As the settings of a broker have it, whose HTTP address is known."""
        config = broker.config
        assert broker.http_address is not None
        takes_anybody = any(each.security_protocol == "PLAINTEXT" for each in config.listeners)
        is_open = ip_address(broker.http_address[0]).is_loopback and broker.authorizer is None and takes_anybody
        token = config.http.http_console_token
        return cls(token, is_open=is_open and token is None, may_write=config.http.http_console_write)

    def check(self, request: Request) -> None:
        """Raises Refused if the request lacks the token that it needs."""
        is_forwarded = any(each in request.headers for each in _FORWARDED)
        if not (request.method in ("GET", "HEAD") and self.is_open and not is_forwarded):
            self.check_token(request)

    def check_token(self, request: Request) -> None:
        """Raises Refused if the request does not have the token."""
        given = request.headers.get("authorization", "")
        is_bearer = given[: len(_SCHEME)].lower() == _SCHEME
        # In a time that tells nothing of how much of it is right.
        if not is_bearer or not hmac.compare_digest(
            given[len(_SCHEME) :].encode("utf-8", "replace"), self.token.encode()
        ):
            raise Refused(401, "The console asks for its token, which the broker's start has told.", _CHALLENGE)
