"""How soon a thread that computes lets others go on."""

import sys
from typing import Final

SWITCH_SECONDS: Final = 0.0005


def switch_soon() -> None:
    """The event loop is not to wait for threads, nor for imports."""
    sys.setswitchinterval(SWITCH_SECONDS)
