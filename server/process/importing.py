"""How a start imports: without collections of garbage, without what trio has for others, and with texts that were compiled before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.server.process.kept_texts import keeping_texts, path_of_texts
from ottla.server.process.light_trio import import_lightly

YOUNG_AT_START: Final = 50_000  # objects, before a collection of the young ones


@contextmanager
def importing() -> Iterator[None]:
    """What is imported stays: collections of garbage would look at it again and again, for nothing."""
    gc.disable()
    try:
        with keeping_texts(path_of_texts()):
            yield
    finally:
        # Nearly all that a start reads stays, too; `settle_interpreter` looks at it once.
        gc.set_threshold(YOUNG_AT_START)
        gc.enable()


def import_broker() -> None:
    """All that a start imports. An image whose files cannot be written later has this called when it is made."""
    with importing():
        from ottla.server.settings import broker_config  # noqa: F401

    with importing():
        import_lightly()
        from ottla.server.process import running, workers_command  # noqa: F401
