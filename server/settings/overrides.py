"""Settings as they are kept in one node of the coordination tree."""

from collections.abc import Mapping
from typing import NamedTuple

Texts = Mapping[str, str]


class Overrides(NamedTuple):
    """The settings, and the node's version (None: there is no node)."""

    texts: Texts
    version: int | None


NO_OVERRIDES = Overrides({}, None)
