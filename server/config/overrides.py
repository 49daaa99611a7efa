"""Settings as one node of the coordination tree keeps them, and the changes that a client asks for."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

Texts = Mapping[str, str]


class Overrides(NamedTuple):
    """Settings of one node, and the node's version (None: there is no node)."""

    texts: Texts
    version: int | None


NO_OVERRIDES = Overrides({}, None)


class ConfigOperation(IntEnum):
    """Kind of change of a setting; numbered as in the request."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One line of an IncrementalAlterConfigs request."""

    name: str
    operation: int
    value: str | None
