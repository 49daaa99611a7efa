"""Address of a listener, as settings write it: NAME://host:port."""

import re
from dataclasses import dataclass

from ottla.wire.settings import InvalidSetting

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Za-z:%.]*)\]|([^/:\[\]]*)):(-?[0-9]+)")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Address of a listener, to bind or to advertise, with the listener's name and security protocol."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    @property
    def is_encrypted(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    def __str__(self) -> str:
        return f"{self.listener}://{host_and_port(self.host, self.port)}"


def host_and_port(host: str, port: int) -> str:
    """Format host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_endpoint(name: str, text: str) -> Endpoint:
    """Parse one of the addresses in the setting `name`. Raises InvalidSetting."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 <= int(match[4]) <= 65535:
        reason = f"Unable to parse {text} to a broker endpoint; allowed: NAME://host:port"
        raise InvalidSetting.of_text(name, text, reason)
    return Endpoint(listener=match[1].upper(), host=match[2] or match[3] or "", port=int(match[4]))
