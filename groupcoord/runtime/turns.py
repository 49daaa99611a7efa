"""How long a task of a coordinator holds the event loop."""

import time

import trio

TURN_S = 0.002
"""By the clock, not by records or batches: where turns of the loop are long, one turn for each of ten thousand batches would
take ten seconds."""


class Turn:
    """The present turn of a task that has much to do: `await turn.give_way()` after each piece of work."""

    def __init__(self) -> None:
        self._end_s = time.perf_counter() + TURN_S

    def is_over(self) -> bool:
        return time.perf_counter() >= self._end_s

    async def give_way(self) -> None:
        """Let others run, if this turn is over."""
        if self.is_over():
            await trio.lowlevel.checkpoint()
            self._end_s = time.perf_counter() + TURN_S
