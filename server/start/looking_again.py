"""Looking again for what the kernel is about to free: locks and ports of processes that were killed a moment ago."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Final

LOOK_AGAIN_S: Final = 0.02


def looks(patience_s: float) -> Iterator[int]:
    """Their numbers from 0 on: as many as fill this time, at least one.

    They are counted, because a clock goes on while this process, or the one that is ending, gets no processor: after two
    seconds away there would have been one look.
    """
    for number in range(1 + max(0, math.ceil(patience_s / LOOK_AGAIN_S))):
        if number:
            time.sleep(LOOK_AGAIN_S)
        yield number
