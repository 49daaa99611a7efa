"""Detection of a peer's protocol by its first bytes, for a helpful log line and an answer to browsers."""

from ottla.wire.errors import ProtocolViolation

TLS = b"\x16\x03"  # a handshake record of any version
HTTP = "HTTP"
_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN", b"PATC", b"TRAC", b"PRI ")

_EXPLANATION = b"""This is a Kafka broker (Ottla). This port speaks Kafka's protocol and no HTTP:
give its host and port to a Kafka client as bootstrap.servers.
"""
HTTP_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b" % (len(_EXPLANATION), _EXPLANATION)
)


class WrongProtocol(ProtocolViolation):
    """Raised if the peer speaks `protocol` (TLS or HTTP) to a listener for Kafka's protocol."""

    def __init__(self, protocol: str) -> None:
        hint = "" if protocol == HTTP else " without TLS; the client's security.protocol does not fit"
        super().__init__(f"the peer speaks {protocol}, and this listener speaks Kafka's protocol{hint}")
        self.protocol = protocol


def detect_protocol(first: bytes) -> str:
    """Return the name of the protocol of these bytes: TLS, HTTP, plain Kafka or another; one byte suffices for TLS."""
    if first[:2] == TLS[: len(first)]:
        return "TLS"
    if first[:4] in _METHODS:
        return HTTP
    # The length of a request without TLS: less than 16 MiB begins with a zero.
    return "Kafka's protocol without TLS" if first[:1] == b"\0" else "neither TLS nor Kafka's protocol"
