"""Everything that happened in a simulation, as one number: two runs of one seed have to agree in it."""

import hashlib
from collections.abc import Callable

import trio


class Trace:
    """A hash over everything that is noted, with the time; `tell` gets the words, if anybody wants to read them."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._tell = tell
        self.count = 0

    def note(self, words: str, data: bytes = b"") -> None:
        now = trio.current_time()
        self.count += 1
        self._hash.update(f"{now!r} {words} {len(data)}\n".encode())
        self._hash.update(data)
        if self._tell is not None:
            self._tell(f"{now:12.6f} {words} {len(data) or ''}")

    def __str__(self) -> str:
        return self._hash.hexdigest()
