"""Fields of X.509 certificates: as much of DER as the names of their holders and the end of their validity need.

A certificate comes from a peer, although OpenSSL has verified it by then: whatever does not fit is MalformedDer.

`distinguished_name` writes the holder's name as Java's X500Principal.getName() does (RFC 2253): Kafka's ACLs name users by it, so
every character matters. The relative names stand in the reverse order of the certificate. A kind that RFC 2253 has no word for is
its object identifier with the value in hexadecimal, such as an e-mail address: 1.2.840.113549.1.9.1=#1601...
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_SEQUENCE, _SET, _OBJECT_ID = 0x30, 0x31, 0x06
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_UTC_TIME, _GENERALIZED_TIME = 0x17, 0x18
ALTERNATIVE_NAMES = "2.5.29.17"
ATTRIBUTES_MAX = 256  # of a name
_OBJECT_ID_BYTES_MAX = 64


class MalformedDer(ValueError):
    """Certificate that is malformed, or has features that are not supported."""


class Element(NamedTuple):
    """DER element. `whole`: its encoding with tag, length and contents."""

    tag: int
    contents: memoryview
    whole: memoryview


class Attribute(NamedTuple):
    """Attribute of a distinguished name. `kind`: dotted object identifier."""

    kind: str
    value: Element


def subject(certificate: bytes) -> list[list[Attribute]]:
    """Return the subject of a certificate (DER) as a list of relative names, in order. Raises MalformedDer."""
    name = _fields(certificate)[4]
    if name.tag != _SEQUENCE:
        raise MalformedDer("the subject is no sequence")
    relative = []
    count = 0
    for part in _elements(name.contents):
        attributes = [_attribute(each) for each in _elements(part.contents)]
        count += len(attributes)
        if part.tag != _SET or count > ATTRIBUTES_MAX:
            raise MalformedDer("a part of the subject is no set, or there are too many")
        relative.append(attributes)
    return relative


def signature_algorithm(certificate: bytes) -> str:
    """Return the object identifier of the algorithm that signed a certificate (DER). Raises MalformedDer."""
    (algorithm, *_) = _elements(_fields(certificate)[1].contents)
    return _dotted(algorithm.contents)


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Return the subject alternative names of a certificate, each in DER with its tag; empty if none."""
    for field in _fields(certificate)[6:]:
        if field.tag == _EXTENSIONS:
            for extension in _elements(_only(field.contents).contents):
                parts = list(_elements(extension.contents))
                if len(parts) >= 2 and parts[0].tag == _OBJECT_ID and _dotted(parts[0].contents) == ALTERNATIVE_NAMES:
                    names = _only(parts[-1].contents)
                    return frozenset(bytes(each.whole) for each in _elements(names.contents))
    return frozenset()


def not_after(certificate: bytes) -> int:
    """Return when a certificate (DER) expires, in seconds since 1970. Raises MalformedDer."""
    times = list(_elements(_fields(certificate)[3].contents))
    if len(times) != 2 or times[1].tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise MalformedDer("the validity is no pair of times")
    text = bytes(times[1].contents).decode("latin-1")
    # RFC 5280: two digits stand for 1950 to 2049, and times are in UTC to the second.
    if times[1].tag == _UTC_TIME:
        text = ("20" if text[:2] < "50" else "19") + text
    digits = text[:14]
    if len(text) != 15 or text[14] != "Z" or not (digits.isascii() and digits.isdigit()):
        raise MalformedDer("the end of the validity is no time")
    parts = [int(digits[:4]), *(int(digits[start : start + 2]) for start in range(4, 14, 2))]
    try:
        return int(datetime(*parts, tzinfo=UTC).timestamp())  # type: ignore[arg-type, misc]
    except ValueError:
        raise MalformedDer("the end of the validity is no time") from None


def _fields(certificate: bytes) -> list[Element]:
    """Return a certificate's fields: serial number, algorithm, issuer, validity, subject, key, and optional fields."""
    parts = list(_elements(_only(memoryview(certificate)).contents))
    if not parts or parts[0].tag != _SEQUENCE:
        raise MalformedDer("it is no certificate")
    fields = list(_elements(parts[0].contents))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6:
        raise MalformedDer("a certificate has more fields than this one")
    return fields


def _attribute(element: Element) -> Attribute:
    parts = list(_elements(element.contents))
    if element.tag != _SEQUENCE or len(parts) != 2 or parts[0].tag != _OBJECT_ID:
        raise MalformedDer("an attribute of the subject is no pair")
    return Attribute(_dotted(parts[0].contents), parts[1])


def _only(data: memoryview) -> Element:
    found = list(_elements(data))
    if len(found) != 1:
        raise MalformedDer("one element was expected")
    return found[0]


def _elements(data: memoryview) -> Iterator[Element]:
    position = 0
    while position < len(data):
        start = position
        tag = data[position]
        # Tags of several bytes are for numbers above 30, which certificates have not.
        if tag & 0x1F == 0x1F or position + 2 > len(data):
            raise MalformedDer("a tag that certificates do not have, or one without a length")
        length, position = _length(data, position + 1)
        end = position + length
        if end > len(data):
            raise MalformedDer("an element is longer than what it is in")
        yield Element(tag, data[position:end], data[start:end])
        position = end


def _length(data: memoryview, position: int) -> tuple[int, int]:
    first = data[position]
    if first < 0x80:
        return first, position + 1
    count = first & 0x7F
    end = position + 1 + count
    if not 1 <= count <= 4 or end > len(data):
        raise MalformedDer("a length that is open or too large")
    return int.from_bytes(data[position + 1 : end]), end


def _dotted(contents: memoryview) -> str:
    if not 1 <= len(contents) <= _OBJECT_ID_BYTES_MAX or contents[-1] & 0x80:
        raise MalformedDer("an object identifier that is empty, too long or cut off")
    numbers, number = [], 0
    for byte in contents:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    # The first number stands for two.
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


# ---------------------------------------------------------------------- distinguished names


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
    """Return the distinguished name of a certificate's (DER) subject, as text. Raises MalformedDer."""
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
