"""Threads that a test leaves behind and that never wait: the end of a run names them (`conftest.py`)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the processor time of another thread")
def test_a_thread_that_never_waits_is_named_and_one_that_waits_is_not(
    spinning_threads: Callable[[], list[str]],
) -> None:
    is_over = threading.Event()

    def spin() -> None:
        while not is_over.is_set():
            pass

    threads = [threading.Thread(target=spin, name="spins"), threading.Thread(target=is_over.wait, name="waits")]
    for each in threads:
        each.start()
    try:
        # A very busy machine may give it no processor at all for a while.
        found = next((each for _ in range(100) if "spins" in (each := spinning_threads())), [])
        assert "spins" in found and "waits" not in found
    finally:
        is_over.set()
        for each in threads:
            each.join()
    assert "spins" not in spinning_threads()
