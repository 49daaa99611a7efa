"""PEM: certificates and keys as text. Files may hold anything between the blocks, as OpenSSL and Java allow.

A setting of one line has spaces where a file has line breaks, so the blocks are taken apart and written anew.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import NamedTuple

TEXT_CHARACTERS_MAX = 4 * 1024 * 1024
"""Authorities of a whole system are some hundred kilobytes."""

_BEGIN, _END, _DASHES = "-----BEGIN ", "-----END ", "-----"
_LINE = 64


class MalformedPem(ValueError):
    """A text that is not PEM, or lacks what is looked for; the message never has the text in it."""


class Block(NamedTuple):
    """One object: `label` is CERTIFICATE, PRIVATE KEY and so on."""

    label: str
    der: bytes

    @property
    def text(self) -> str:
        """As a file has it."""
        coded = base64.b64encode(self.der).decode()
        lines = [coded[start : start + _LINE] for start in range(0, len(coded), _LINE)]
        return "\n".join((f"{_BEGIN}{self.label}{_DASHES}", *lines, f"{_END}{self.label}{_DASHES}", ""))


def blocks(text: str) -> Iterator[Block]:
    """All objects of a text, in their order; MalformedPem if one of them is cut off or no base64."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise MalformedPem(f"it has more than {TEXT_CHARACTERS_MAX} characters")
    position = 0
    while (begin := text.find(_BEGIN, position)) >= 0:
        body = text.find(_DASHES, begin + len(_BEGIN))
        if body < 0:
            raise MalformedPem("a line that begins a block has no end")
        label = text[begin + len(_BEGIN) : body]
        # A block ends with its own name: what is nested or cut off does not.
        ending = f"{_END}{label}{_DASHES}"
        end = text.find(ending, body)
        if end < 0 or len(label) > _LINE:
            raise MalformedPem(f"a block of {label[:_LINE]!r} has no end")
        yield Block(label, _decoded(label, text[body + len(_DASHES) : end]))
        position = end + len(ending)


def _decoded(label: str, body: str) -> bytes:
    # Keys of OpenSSL's own format name their encryption in lines before the base64, which are part of them.
    if ":" in body:
        raise MalformedPem(f"a block of {label!r} has headers: convert the key with `openssl pkcs8 -topk8`")
    try:
        der = base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):  # ValueError: a character that is not ASCII
        raise MalformedPem(f"a block of {label!r} is not base64") from None
    if not der:
        raise MalformedPem(f"a block of {label!r} is empty")
    return der


def certificates(text: str) -> list[bytes]:
    """The certificates of a text as DER; MalformedPem if there are none."""
    found = [each.der for each in blocks(text) if each.label in ("CERTIFICATE", "X509 CERTIFICATE")]
    if not found:
        raise MalformedPem("it holds no certificate")
    return found


def private_key(text: str) -> Block:
    """The first private key of a text; MalformedPem if there is none."""
    for each in blocks(text):
        if each.label.endswith("PRIVATE KEY"):
            return each
    raise MalformedPem("it holds no private key")
