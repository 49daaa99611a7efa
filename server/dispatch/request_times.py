"""Latencies of requests, as counts in buckets: plain integers, because requests are many.

The buckets are log-linear. Each octave, from a power of two seconds to the next, has eight of the same width, so that a quantile
read off them is wrong by some percent at most. They begin at half a microsecond and end after 34 years: whatever is measured
has a bucket. `math.frexp` gives the octave and the place in it. A call takes half a microsecond to some, by what the caches hold,
so that of very many requests not each is counted (`Route.count_time`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import frexp

TINY_S = 2.0**-21  # is added to what is measured, so that the logarithm of nothing is never asked for
OFFSET = 152
"""Offset that makes the index of TINY_S zero: its exponent is -20, and the eighths of its octave begin at 8."""

PER_OCTAVE = 8
_FIRST_EXPONENT = -20
BUCKETS = 51 * PER_OCTAVE


def no_times() -> list[int]:
    """Nothing counted yet."""
    return [0] * BUCKETS


def count(times: list[int], seconds: float, weight: int = 1) -> None:
    """Count something that took so long, and stands for as many."""
    mantissa, exponent = frexp(seconds + TINY_S)
    times[(exponent << 3) + int(mantissa * 16) + OFFSET] += weight


def upper_end(index: int) -> float:
    """Upper end of a bucket in seconds; the next one begins there."""
    octave, eighth = divmod(index, PER_OCTAVE)
    end: float = (9 + eighth) / 16 * 2.0 ** (octave + _FIRST_EXPONENT)
    return end


def shorter_than(times: Sequence[int], exponents: Sequence[int]) -> list[int]:
    """Numbers of requests that took less than 2 ** exponent seconds, for each of the exponents."""
    counted = list(accumulate(times, initial=0))
    return [counted[(exponent - _FIRST_EXPONENT + 1) * PER_OCTAVE] for exponent in exponents]


def quantiles(times: Sequence[int], shares: Sequence[float]) -> Iterator[float]:
    """Quantiles in seconds for shares in rising order. There has to be one request at least."""
    total, counted, index = sum(times), 0, 0
    for share in shares:
        wanted = share * total
        while counted + times[index] < wanted or not times[index]:
            counted += times[index]
            index += 1
        begin = upper_end(index - 1) if index else 0.0
        yield begin + (upper_end(index) - begin) * max(0.0, wanted - counted) / times[index]
