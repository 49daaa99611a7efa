"""Listeners of HTTP APIs that have a process of their own: their guard, pace and limits, which differ from a broker's."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from ottla.server.admin.http.routes import LOGIN_S, Guard, Pace
from ottla.server.admin.http.server import ConnectionLimits

CONNECTIONS_MAX = 2000
PER_ADDRESS_MAX = 1500
"""A proxy, or a host with many processes, is one address."""

LIMITS = ConnectionLimits(CONNECTIONS_MAX, PER_ADDRESS_MAX)


class FreePace(Pace):
    """Pace without pauses, for an event loop that serves nothing but these requests."""

    async def request(self) -> None:
        """Return immediately: there is no rate limit."""

    async def wrong_login(self) -> None:
        """Wait LOGIN_S. Logins do not wait for one another, because thousands of connections may have wrong ones."""
        await trio.sleep(LOGIN_S)

    async def pay(self, worked_s: float) -> None:
        """Yield to other tasks after long work."""
        await trio.lowlevel.checkpoint()


class ApiGuard(Guard):
    """Guard against pages of other sites. A service that listens only on loopback accepts only loopback host names.

    On other listeners any host name is accepted, such as that of a container or proxy. A page of another site cannot
    send an accepted content type without a preflight request, and preflight requests are not answered.
    """

    hint = "it is known as localhost, and by addresses of loopback"

    def check_host(self, host: str | None) -> None:
        if self._is_loopback:
            super().check_host(host)

    def check_change(self, headers: Mapping[str, str]) -> None:
        self.check_site(headers)
