"""What requests leave behind. Collections of garbage stop everything, for milliseconds in a broker with much to remember."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_is_left_of(kind: type) -> Iterator[None]:
    """Without any collection of garbage, there are as many objects of this kind afterwards as before."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        before = _count(kind)
        yield
        assert _count(kind) == before
    finally:
        if was_enabled:
            gc.enable()


def _count(kind: type) -> int:
    return sum(type(each) is kind for each in gc.get_objects())
