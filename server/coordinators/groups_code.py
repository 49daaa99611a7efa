"""The code of the group coordinator: a tenth of all that a broker may load, and a broker without groups does without."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.groupcoord.groups.kinds import LateKind

GROUPS_CODE: Final = "ottla.groupcoord.service"


def load_groups(kind: LateKind | None = None) -> None:
    """Load it, and what groups of a newer kind need. In a thread: that takes long.

    The `prepare` of each handler that asks `Broker.groups`, which loads nothing then.
    """
    import_module(GROUPS_CODE)
    if kind is not None:
        kind.load()
