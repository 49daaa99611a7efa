"""A producer that sends at a steady pace, whatever comes of it."""

import threading
import time
from abc import ABC, abstractmethod


class SteadyProducer(threading.Thread, ABC):
    """Sends a record every `interval_s` seconds until `finish`; what is late is sent as soon as that is possible."""

    def __init__(self, interval_s: float) -> None:
        super().__init__(daemon=True)
        self.errors: list[str] = []
        self._interval_s = interval_s
        self._is_over = threading.Event()

    @abstractmethod
    def _send(self) -> None:
        """Hand one record over."""

    @abstractmethod
    def _wait(self, seconds: float) -> None:
        """Until the next record is due."""

    @abstractmethod
    def _flush(self) -> None: ...

    def run(self) -> None:
        due = time.perf_counter()
        while not self._is_over.is_set():
            self._send()
            due += self._interval_s
            while (left := due - time.perf_counter()) > 0:
                self._wait(left)
        self._flush()

    def finish(self) -> None:
        self._is_over.set()
        self.join()
