"""How a start imports: without collections of garbage, without what trio has for others, and with what the start before has kept."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ottla.server.process.kept_modules import keeping_modules
from ottla.server.process.kept_patterns import keeping_patterns
from ottla.server.process.kept_texts import keeping_texts
from ottla.server.process.light_trio import import_lightly

YOUNG_AT_START: Final = 50_000  # objects, before a collection of the young ones
NEEDED_SOON: Final = (
    "ottla.server.handlers.leader_and_isr",
    "ottla.server.handlers.produce",
    "ottla.server.handlers.update_metadata",
)
"""By the first topic and the first record. Each would be loaded when it is asked for, without what the start before has kept."""
NEEDED_ALONE: Final = ("ottla.server.process.log_lines", "ottla.server.process.running", "ottla.server.start.own_tree")
"""By a broker that is the only one."""


@contextmanager
def importing() -> Iterator[None]:
    """What is imported stays: collections of garbage would look at it again and again, for nothing."""
    gc.disable()
    try:
        with keeping_modules(_kept("modules")), keeping_texts(_kept("texts")), keeping_patterns(_kept("patterns")):
            yield
    finally:
        # A collection would look at all of it now, and find next to nothing.
        gc.freeze()
        gc.set_threshold(YOUNG_AT_START)
        gc.enable()


def _kept(what: str) -> Path | None:
    """The file in which a start keeps it; None: nothing is compiled to files here, as in a zip file."""
    compiled = __spec__.cached if __spec__ is not None else None
    return None if compiled is None else Path(compiled).with_name(f"start.{sys.implementation.cache_tag}.{what}")


def import_one_broker() -> None:
    """All that a broker needs that is the only one, until it has taken its first record."""
    import_lightly()
    for name in (*NEEDED_ALONE, *NEEDED_SOON):
        importlib.import_module(name)


def import_broker() -> None:
    """All that a start imports. An image whose files cannot be written later has this called when it is made."""
    with importing():
        from ottla.server.settings import broker_config  # noqa: F401

        import_one_broker()
        from ottla.server.process import workers_command  # noqa: F401
