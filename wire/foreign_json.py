"""JSON of untrusted peers, parsed within limits.

A MiB may hold a third of a million empty lists. Parsing them takes tens of milliseconds, in which no other task can run.
And Python's parser calls itself for each nested list until the limit of the interpreter stops it: the garbage collector has
no stack left then, and CPython 3.11 may end the process ("Cannot recover from stack overflow").

So brackets and commas outside of strings are counted first. That takes some milliseconds a MiB, whatever is in it.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

DEPTH_MAX = (
    200  # a record of Avro in a record is three deeper, and 64 of them may be so; far from the interpreter's limit
)
ELEMENTS_MAX = 20_000
"""Members and elements, lists and objects, strings: of each so many."""

# From a quote to the next one that no backslash escapes, or to the end of the text: each character is looked at once.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(r"[][{}]")
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


def parse_json(data: str | bytes, **options: Any) -> Any:
    """Parse JSON with the options of json.loads. Raises ValueError if it is invalid or exceeds the limits."""
    text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
    # Nearly all there is has less than that, strings included.
    if _opened(text) > DEPTH_MAX or text.count(",") > ELEMENTS_MAX:
        _check(_without_strings(text))
    return json.loads(text, **options)


def _opened(text: str) -> int:
    return text.count("[") + text.count("{")


def _without_strings(text: str) -> str:
    parts, position = [], 0
    for count, found in enumerate(_STRING.finditer(text)):
        if count == 2 * ELEMENTS_MAX:  # a member has two
            raise ValueError(f"more than {count} strings")
        parts.append(text[position : found.start()])
        position = found.end()
    parts.append(text[position:])
    return "".join(parts)


def _check(bare: str) -> None:
    brackets = _opened(bare), bare.count("]") + bare.count("}")
    if max(*brackets, bare.count(",")) > ELEMENTS_MAX:
        raise ValueError(f"more than {ELEMENTS_MAX} elements")
    if max(accumulate(_STEP[each] for each in _BRACKET.findall(bare)), default=0) > DEPTH_MAX:
        raise ValueError(f"nested more than {DEPTH_MAX} deep")
