"""Finders of modules that are put before Python's own for a while, and taken away again.

Another thread may be importing meanwhile, and so be on its way through the list of finders. In a list that gets shorter under it it would
leave one out: none of the others has its module. So the list is replaced and never changed.
"""

from __future__ import annotations

import sys
from typing import Any


def put_before(finder: Any, other: Any | None = None) -> None:
    """Ask a finder before another one, or before all."""
    finders = sys.meta_path
    at = 0 if other is None else finders.index(other)
    sys.meta_path = [*finders[:at], finder, *finders[at:]]


def take_away(finder: Any) -> None:
    """Ask it no more. Whoever is asking it at this moment goes on with those behind it."""
    sys.meta_path = [each for each in sys.meta_path if each is not finder]
