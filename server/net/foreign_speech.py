"""What a peer speaks, by its first bytes: for a log line that says what is wrong at once."""

from __future__ import annotations

TLS = b"\x16\x03"  # a handshake record of any version
_HTTP = (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN", b"PATC", b"PRI ")


def what_is_spoken(first: bytes) -> str:
    """TLS, HTTP, Kafka without TLS, or something else. One byte is enough to tell TLS from Kafka."""
    if first[:2] == TLS[: len(first)]:
        return "TLS"
    if first[:4] in _HTTP:
        return "HTTP"
    # The length of a request without TLS: less than 16 MiB begins with a zero.
    return "Kafka's protocol without TLS" if first[:1] == b"\0" else "neither TLS nor Kafka's protocol"
