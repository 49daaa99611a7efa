"""The port of a format, and what all formats share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

TEXT_BYTES_MAX = 1_000_000
"""Limit of a schema's text: a record of the topic has to take it, with what is beside it."""


class InvalidText(ValueError):
    """Schema text that is invalid in its format. The message is written for the client."""


class ParsedSchema(Protocol):
    """Interface of parsed schemas of all formats."""

    @property
    def canonical(self) -> str:
        """Canonical text, which is the one to register: equal schemas have equal canonical texts."""

    def normalized(self) -> str:
        """Return the text in a normal form, equal for schemas that differ only in meaningless details."""

    def formatted(self, name: str) -> str:
        """Return the text in the format `name`; the canonical text if the format is unknown."""

    def problems_reading(self, writer: ParsedSchema, *, is_lenient: bool = False) -> list[str]:
        """Return the problems of reading data of `writer` with this schema; empty if the data can be read.

        Problems are in the words of Confluent's registry; %s alternately stands for the names of this schema and of
        `writer`. `is_lenient`: JSON Schema's lenient policy, which accepts more differences.
        """

    def is_like(self, other: ParsedSchema) -> bool:
        """Tell whether both schemas have the same meaning, even if their texts differ."""


Parse = Callable[[str, Mapping[str, str]], ParsedSchema]
"""Parse a text with those that it refers to, by the names of the references. Raises InvalidText."""
