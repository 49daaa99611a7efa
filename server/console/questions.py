"""Parameters of a request, checked. Whatever is wrong with them is a Refused with a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ottla.server.http.routes import Refused, Request
from ottla.wire.foreign_json import parse_json

_NUMBER = re.compile(r"-?[0-9]{1,19}")
TEXT_LENGTH_MAX = 1_000
LONG_MAX = (1 << 63) - 1


def text(request: Request, name: str, default: str | None = None) -> str:
    """A parameter; without a default it has to be there."""
    given = request.query.get(name, default)
    if given is None:
        raise Refused(400, f"The parameter {name} is missing.")
    if len(given) > TEXT_LENGTH_MAX:
        raise Refused(400, f"The parameter {name} is longer than {TEXT_LENGTH_MAX} characters.")
    return given


def number(request: Request, name: str, default: int | None, minimum: int = 0, maximum: int = LONG_MAX) -> int:
    """A whole number within bounds; without a default it has to be there."""
    given = request.query.get(name)
    if given is None and default is not None:
        return default
    given = text(request, name)
    if not _NUMBER.fullmatch(given) or not minimum <= int(given) <= maximum:
        raise Refused(400, f"The parameter {name} must be a whole number from {minimum} to {maximum}.")
    return int(given)


def posted(request: Request) -> Mapping[str, Any]:
    """The JSON object of a body."""
    try:
        body = parse_json(request.body)
    except ValueError:
        raise Refused(400, "The body is no JSON.") from None
    if not isinstance(body, dict):
        raise Refused(400, "The body must be a JSON object.")
    return body
