"""JAAS lines, as `sasl.jaas.config` holds them (Kafka's JaasConfig, over Java's StreamTokenizer):

    org.example.LoginModule required name="value" other='value' third=word;

A word begins with a letter, `_` or `$`, and goes on with these, digits, `-` and `.`; all else needs quotes, so that
`password=1234;` has no value. A comment begins with `/` anywhere in the text. Quoted text ends at its line's end at the latest
and knows the escapes of C. `parse_jaas` raises `MalformedJaas`, whose text never holds a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

FLAGS = ("required", "requisite", "sufficient", "optional")

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = "01234567"
_LINE_ENDS = ("\n", "\r", "")
_DIGITS = frozenset("0123456789")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_$")
_FIRST_FOREIGN_LETTER = "\xa0"  # from here on Java takes every character for a letter


class MalformedJaas(ValueError):
    """Raised if a JAAS text is malformed. The message is Kafka's and quotes no secret."""


class JaasEntry(NamedTuple):
    """Entry of a JAAS configuration: one login module with its options."""

    module: str
    flag: str
    options: Mapping[str, str]


class _Token(NamedTuple):
    """Token of a JAAS text. `text`: a word or quoted text; None for other tokens."""

    kind: str
    text: str | None


def parse_jaas(text: str) -> list[JaasEntry]:
    """Parse a JAAS configuration and return its entries, of which there is at least one. Raises MalformedJaas."""
    tokens = _Tokens(text)
    entries = []
    while (first := next(tokens, None)) is not None:
        entries.append(_entry(first, tokens))
    if not entries:
        raise MalformedJaas("Login module not specified in JAAS config")
    return entries


def parse_jaas_file(text: str) -> dict[str, list[JaasEntry]]:
    """Parse a JAAS file, `Section { entries };` any number of times; return the entries by section. Raises MalformedJaas."""
    tokens = _Tokens(text)
    sections: dict[str, list[JaasEntry]] = {}
    while (name := next(tokens, None)) is not None:
        if not name.text or (brace := next(tokens, None)) is None or brace.kind != "{":
            raise MalformedJaas("A section of a JAAS file must begin with its name and {")
        entries = []
        while (first := next(tokens, None)) is not None and first.kind != "}":
            entries.append(_entry(first, tokens))
        if first is None or (end := next(tokens, None)) is None or end.kind != ";":
            raise MalformedJaas(f"Section {name.text} of the JAAS file must end with }};")
        if not entries:
            raise MalformedJaas(f"Section {name.text} of the JAAS file has no login module")
        # Java takes the first of two sections of one name.
        sections.setdefault(name.text, entries)
    return sections


def format_jaas(entry: JaasEntry) -> str:
    """Return the text of an entry, for `parse_jaas`."""
    options = "".join(f' {name}="{_quotable(value)}"' for name, value in entry.options.items())
    return f"{entry.module} {entry.flag}{options};"


def _quotable(value: str) -> str:
    for sign, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(sign, escape)
    return value


def _entry(first: _Token, tokens: _Tokens) -> JaasEntry:
    flag = next(tokens, None)
    if flag is None:
        raise MalformedJaas("Login module control flag not specified in JAAS config")
    if flag.text is None:
        raise MalformedJaas("Login module control flag is not available in the JAAS config")
    if flag.text.lower() not in FLAGS:
        raise MalformedJaas("Invalid login module control flag in JAAS config")
    if not first.text:
        raise MalformedJaas("Login module not specified in JAAS config")
    options: dict[str, str] = {}
    while (key := next(tokens, None)) is not None and key.kind != ";":
        if key.text is None:
            raise MalformedJaas("Key not specified for a value in JAAS config")
        equals, value = next(tokens, None), next(tokens, None)
        if equals is None or equals.kind != "=" or value is None or value.text is None:
            raise MalformedJaas(f"Value not specified for an option of {first.text} in JAAS config")
        options[key.text] = value.text
    if key is None:
        raise MalformedJaas("JAAS config entry not terminated by semi-colon")
    return JaasEntry(first.text, flag.text.lower(), options)


class _Tokens(Iterator[_Token]):
    """Tokenizer like Java's StreamTokenizer with the character classes that Kafka sets."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def __next__(self) -> _Token:
        while (first := self._peek()) and (first <= " " or first == "/"):
            if first != "/":
                self._position += 1
            elif not self._skip_comment():
                raise StopIteration
        if not first:
            raise StopIteration
        if first in "\"'":
            return _Token(first, self._quoted(first))
        if first in "-." or first in _DIGITS:
            return _Token(self._number(), None)
        start = self._position
        if not _is_letter(first):
            self._position += 1
            return _Token(first, None)
        while (each := self._peek()) and (_is_letter(each) or each in _DIGITS or each in "-."):
            self._position += 1
        return _Token("word", self._text[start : self._position])

    def _number(self) -> str:
        """Skip a number, which JAAS does not allow, and return "number"; or skip and return a `-` without digits."""
        first = self._take()
        if first == "-" and self._peek() != "." and self._peek() not in _DIGITS:
            return first
        dots = int(first == ".")
        while (each := self._peek()) in _DIGITS or (each == "." and not dots):
            dots += each == "."
            self._position += 1
        return "number"

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _take(self) -> str:
        taken = self._peek()
        self._position += 1
        return taken

    def _skip_comment(self) -> bool:
        """Skip a comment; return False if it has no end.

        A single `/` also begins a comment; a line end right after the `/` does not end it.
        """
        self._position += 1
        if self._take() == "*":
            end = self._text.find("*/", self._position)
            self._position = end + 2
            return end >= 0
        while self._peek() not in _LINE_ENDS:
            self._position += 1
        return True

    def _quoted(self, quote: str) -> str:
        self._position += 1
        found = []
        while (each := self._peek()) not in _LINE_ENDS and each != quote:
            self._position += 1
            found.append(self._escaped() if each == "\\" else each)
        if each == quote:
            self._position += 1
        return "".join(found)

    def _escaped(self) -> str:
        first = self._take()
        if first and first in _OCTAL:
            digits = first
            # Three digits only if they make a byte.
            for _ in range(2 if first <= "3" else 1):
                if not (each := self._peek()) or each not in _OCTAL:
                    break
                digits += self._take()
            return chr(int(digits, 8))
        return _ESCAPES.get(first, first)


def _is_letter(each: str) -> bool:
    return each in _LETTERS or each >= _FIRST_FOREIGN_LETTER
