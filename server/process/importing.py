"""How a start imports: without collections of garbage, without what trio has for others, and with what the start before has kept."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Final

from ottla.server.process.kept_modules import keeping_modules
from ottla.server.process.kept_patterns import keeping_patterns
from ottla.server.process.kept_texts import keeping_texts
from ottla.server.process.light_trio import import_lightly
from ottla.server.process.switching import switch_soon

YOUNG_AT_START: Final = 50_000  # objects, before a collection of the young ones
NEEDED_SOON: Final = (
    "ottla.server.handlers.leader_and_isr",
    "ottla.server.handlers.update_metadata",
    "ottla.server.handlers.create_topics",
    "ottla.server.handlers.produce",
)
"""By the first topic and the first record, in this order. Each would be loaded when it is asked for, without what the start before has
kept."""
NEEDED_ALONE: Final = ("ottla.server.process.log_lines", "ottla.server.process.running", "ottla.server.start.own_tree")
"""By a broker that is the only one."""


@contextmanager
def importing() -> Iterator[ExitStack]:
    """What is imported stays: collections of garbage would look at it again and again, for nothing.

    As long as the stack is open, what the start before has kept is used.
    """
    gc.disable()
    try:
        with ExitStack() as kept:
            kept.enter_context(keeping_modules(_kept("modules")))
            kept.enter_context(keeping_texts(_kept("texts")))
            kept.enter_context(keeping_patterns(_kept("patterns")))
            yield kept
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
    """All that a broker needs to start that is the only one."""
    import_lightly()
    _import_all(NEEDED_ALONE)


def import_beside(names: Iterable[str], kept: ExitStack) -> None:
    """Have a thread import what is needed a little later, while the start waits for the disk. It closes the stack."""
    # When the disk has answered, the start is to go on and not to wait for the imports.
    switch_soon()
    Thread(target=_import_and_close, args=(names, kept), name="imports").start()


def _import_and_close(names: Iterable[str], kept: ExitStack) -> None:
    # Whatever it is: whoever needs a module imports it again, and tells what is wrong with it. A damaged file has many errors.
    with kept, suppress(Exception):
        _import_all(names)


def _import_all(names: Iterable[str]) -> None:
    for name in names:
        importlib.import_module(name)


def import_broker() -> None:
    """All that a start imports. An image whose files cannot be written later has this called when it is made."""
    with importing():
        from ottla.server.settings import broker_config  # noqa: F401

        import_one_broker()
        _import_all(NEEDED_SOON)
        from ottla.server.process import workers_command  # noqa: F401
