"""The garbage collector while brokers start.

A start makes thousands of objects, nearly all of which stay as long as the broker. The collector would look through them several
times, which takes a quarter of the time of a start. So it rests meanwhile, and then takes them for old without a look. Of the brokers that
have ended a full collection gets rid: once for many of them, and not so often that it takes more than a twentieth of the time.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

STARTS_PER_COLLECTION = 50
TIME_SHARE = 0.05


class _Collections:
    """Full collections, by the starts since the last one and by the seconds that it took."""

    def __init__(self) -> None:
        self.starts = 0
        self.took_s = self.ended_s = 0.0

    def after_start(self) -> None:
        """Collect all garbage if it is time to."""
        self.starts += 1
        began_s = time.monotonic()
        if self.starts >= STARTS_PER_COLLECTION and self.took_s <= TIME_SHARE * (began_s - self.ended_s):
            gc.collect()
            self.starts, self.ended_s = 0, time.monotonic()
            self.took_s = self.ended_s - began_s


_collections = _Collections()


@contextmanager
def without_collections() -> Iterator[None]:
    """Let no garbage be collected in a block that starts brokers, unless the collector is off anyway."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else somebody has frozen objects, and would have them thawed
            gc.freeze()
            gc.unfreeze()  # into the oldest generation
        gc.enable()
    _collections.after_start()
