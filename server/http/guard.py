"""Who may ask the HTTP endpoint: no page of another site, whatever name that site gives to this machine.

DNS rebinding: a page of evil.example has that name resolved to 127.0.0.1 and reads from here what its browser can reach. Its
requests name evil.example in their Host header, so only known names are answered: loopback, the bound host, the hosts of the
broker's listeners, `http.allowed.hosts`. Addresses are not names: no resolver can turn one into another. A listener on
loopback alone takes only addresses of loopback all the same. A request without a Host header comes from no browser.

Requests from other sites: there are no CORS headers, so no other page reads an answer. As far as browsers say that one asks, the work
is not done either; only a link may lead here. What changes something has to come from a page of this endpoint (its Origin is the
host that it asks) or from no browser, and be JSON, which other pages cannot send without asking first, and nobody answers that
question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from ottla.server.http.messages import JSON, Refused

_LOCAL = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
_OWN_SITE = frozenset({"same-origin", "none"})  # what browsers call pages of this endpoint, and an address typed in


class Guard:
    """`bound`: the host of the listener. `names`: hosts by which this machine is known besides."""

    def __init__(self, bound: str, names: Iterable[str] = ()) -> None:
        self._names = {each.lower().rstrip(".") for each in (bound, *names)} | _LOCAL
        # A listener on some name may be anywhere.
        self._is_loopback = bound == "localhost" or _is_loopback(bound)

    def check_host(self, host: str | None) -> None:
        """Raises Refused if the Host header is that of another site."""
        if host is not None and not self._is_known(_without_port(host)):
            raise Refused(
                421, "This endpoint is not known by the name in the Host header; http.allowed.hosts has further names."
            )

    def _is_known(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._is_loopback

    def check_read(self, headers: Mapping[str, str]) -> None:
        """Raises Refused if a page of another site asks, which could not read the answer anyway."""
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if not is_link and _is_of_another_site(headers):
            raise Refused(403, "Pages of other sites may not read anything here.")

    def check_change(self, headers: Mapping[str, str]) -> None:
        """Raises Refused if a request that changes something comes from another site, or may do so."""
        if _is_of_another_site(headers):
            raise Refused(403, "Pages of other sites may not change anything here.")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise Refused(415, f"The Content-Type has to be {JSON}.")


def _is_of_another_site(headers: Mapping[str, str]) -> bool:
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and not (host and origin.partition("://")[2].lower() == host.lower()):
        return True
    return headers.get("sec-fetch-site", "none") not in _OWN_SITE


def _without_port(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
