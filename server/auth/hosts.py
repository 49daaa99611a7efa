"""Addresses of clients as ACLs name them: by Java's text of an address, or by a network in CIDR notation (since Kafka 4.3).

Java writes an IPv6 address without the `::` that stands for zeros, `0:0:0:0:0:0:0:1`, and an IPv4 address that comes in an
IPv6 one as IPv4. A rule has to name it so, and Kafka compares texts. Networks are those of Kafka's CidrUtils, which uses the
SubnetUtils of Apache Commons Net: the first and the last address of a network belong to it, 0.0.0.0 to none.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_IPV4 = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})")
_IPV4_BITS, _IPV6_BITS = 32, 128
_MAPPED = 0xFFFF  # what is before the 32 bits of an IPv4 address in an IPv6 one


class InvalidNetwork(ValueError):
    """A text that is no network; says why in the words of Commons Net."""


class Address(NamedTuple):
    """`text` as Java writes it; `number` is None for what is no address."""

    text: str
    is_ipv6: bool
    number: int | None


class Network(NamedTuple):
    """Addresses of one kind that have the same first bits."""

    is_ipv6: bool
    bits: int
    shift: int

    @classmethod
    def parse(cls, text: str) -> Network:
        """Raises InvalidNetwork."""
        start, slash, length = text.partition("/")
        is_ipv6 = ":" in text
        number = _ipv6(start) if is_ipv6 else _ipv4(start)
        width = _IPV6_BITS if is_ipv6 else _IPV4_BITS
        if number is None or not slash or not re.fullmatch(r"[0-9]{1,3}", length):
            raise InvalidNetwork(f"Could not parse [{text}]")
        if int(length) > width:
            raise InvalidNetwork(f"Value [{int(length)}] not in range [0,{width}]")
        shift = width - int(length)
        return cls(is_ipv6, number >> shift, shift)

    def holds(self, address: Address) -> bool:
        if address.number is None or address.is_ipv6 is not self.is_ipv6:
            return False
        if not self.is_ipv6 and address.number == 0:
            return False
        return address.number >> self.shift == self.bits


@lru_cache(maxsize=1_000)
def client_address(host: str) -> Address:
    """The address of a client, from the text that its connection has, with or without a slash before it."""
    text = host.removeprefix("/")
    if ":" not in text:
        return Address(text, False, _ipv4(text))
    number = _ipv6(text.partition("%")[0])
    if number is None:
        return Address(text, True, None)
    if number >> _IPV4_BITS == _MAPPED:
        octets = (number & 0xFFFFFFFF).to_bytes(4, "big")
        return Address(".".join(map(str, octets)), False, number & 0xFFFFFFFF)
    groups = [number >> shift & 0xFFFF for shift in range(_IPV6_BITS - 16, -1, -16)]
    return Address(":".join(f"{group:x}" for group in groups), True, number)


def _ipv4(text: str) -> int | None:
    match = _IPV4.fullmatch(text)
    if match is None:
        return None
    number = 0
    for octet in match.groups():
        if int(octet) > 255:
            return None
        number = number << 8 | int(octet)
    return number


def _ipv6(text: str) -> int | None:
    import ipaddress  # here, because most brokers never meet such an address

    try:
        return int(ipaddress.IPv6Address(text))
    except ValueError:
        return None
