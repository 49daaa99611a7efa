"""The holder's name in a certificate, written as Java's X500Principal.getName() writes it (RFC 2253): Kafka's ACLs name
users by it, so every character matters.

The relative names stand in the reverse order of the certificate. A kind that RFC 2253 has no word for is its object
identifier with the value in hexadecimal, such as an e-mail address: 1.2.840.113549.1.9.1=#1601...
"""

from __future__ import annotations

from ottla.server.auth.der import Attribute, subject

_WORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# The kinds of strings: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString.
_CODINGS = {0x0C: "utf-8", 0x13: "latin-1", 0x14: "latin-1", 0x16: "latin-1", 0x1B: "latin-1", 0x1E: "utf-16-be"}
_ESCAPED = frozenset(',=+<>#;"\\')


def distinguished_name(certificate: bytes) -> str:
    """The name of the holder of a certificate (DER). MalformedDer if it cannot be read."""
    return ",".join("+".join(map(_written, relative)) for relative in reversed(subject(certificate)))


def _written(attribute: Attribute) -> str:
    word, coding = _WORDS.get(attribute.kind), _CODINGS.get(attribute.value.tag)
    if word is None or coding is None:
        return f"{word or attribute.kind}=#{attribute.value.whole.hex()}"
    return f"{word}={_escaped(bytes(attribute.value.contents).decode(coding, 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    # Blanks at both ends, one by one: they would be lost to a reader that trims.
    middle = escaped.strip(" \r")
    if not middle:
        return "".join(f"\\{each}" for each in escaped)
    start = escaped.index(middle)
    ends = escaped[:start], escaped[start + len(middle) :]
    before, after = ("".join(f"\\{each}" for each in end) for end in ends)
    return f"{before}{middle}{after}"
