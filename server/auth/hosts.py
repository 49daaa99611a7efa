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
_IPV4_NETWORK = re.compile(_IPV4.pattern + "/([0-9]{1,2})")
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
        return cls._parse_ipv6(text) if ":" in text else cls._parse_ipv4(text)

    @classmethod
    def _parse_ipv4(cls, text: str) -> Network:
        match = _IPV4_NETWORK.fullmatch(text)
        if match is None:
            raise InvalidNetwork(f"Could not parse [{text}]")
        *octets, length = map(int, match.groups())
        for value, limit in [*((octet, 255) for octet in octets), (length, _IPV4_BITS)]:
            if value > limit:
                raise InvalidNetwork(f"Value [{value}] not in range [0,{limit}]")
        shift = _IPV4_BITS - length
        return cls(False, int.from_bytes(octets, "big") >> shift, shift)

    @classmethod
    def _parse_ipv6(cls, text: str) -> Network:
        start, slash, length = text.partition("/")
        if not slash or not re.fullmatch("[0-9]{1,3}", length):
            raise InvalidNetwork(f"Could not parse [{text}]")
        if int(length) > _IPV6_BITS:
            raise InvalidNetwork(f"Could not parse [{text}] - prefix length must be between 0 and {_IPV6_BITS}")
        number = _ipv6(start)
        if number is None:
            raise InvalidNetwork(f"Could not parse [{start}]")
        shift = _IPV6_BITS - int(length)
        return cls(True, number >> shift, shift)

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
