"""The address of a listener."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A listener's name with the address to bind or to advertise, and what is spoken there."""

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
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
