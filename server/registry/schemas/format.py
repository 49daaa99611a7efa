"""The port of a format, and what all formats share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

TEXT_BYTES_MAX = 1_000_000
"""Limit of a schema's text: a record of the topic has to take it, with what is beside it."""


class InvalidText(ValueError):
    """Text that is no schema of its format; the message is for the client."""


class ParsedSchema(Protocol):
    """A schema that has been parsed."""

    @property
    def canonical(self) -> str:
        """Registered text: equal schemas have equal ones."""

    def normalized(self) -> str:
        """The text without differences that have no meaning."""

    def formatted(self, name: str) -> str:
        """Text in the format that a client names; the canonical one for an unknown format."""

    def problems_reading(self, writer: ParsedSchema, *, is_lenient: bool = False) -> list[str]:
        """Incompatibilities of data that `writer` has written with this schema, as Confluent's registry words them; none if it can be read.

        The lenient policy of JSON Schema lets more differences pass. In a problem %s stands for the name of one side: first this schema, then the other.
        """

    def is_like(self, other: ParsedSchema) -> bool:
        """True if both schemas are equal, even with different texts."""


Parse = Callable[[str, Mapping[str, str]], ParsedSchema]
"""Parse a text with those that it refers to, by the names of the references. Raises InvalidText."""
