"""Limits of counts in the bytes of a peer, and so of memory, time and the size of answers.

A frame's size bounds its cost, except where a few bytes stand for much. A tagged field takes two bytes and
a nameless element one, while each of them takes a tenth of a microsecond or more to read and up to a hundred bytes to
hold. No client in use comes near any of these numbers.
"""

from __future__ import annotations

FRAME_BYTES_MAX = 100 << 20
"""Longest request or response: Kafka's default of socket.request.max.bytes."""

STRING_BYTES_MAX = 32_767
"""Longest string of any encoding; the classic encoding has no room for more."""

TAGS_PER_SECTION_MAX = 1_000
"""Tagged fields at the end of one struct or header."""

ELEMENTS_BESIDE_RECORDS_MAX = 10_000
"""Topics, partitions, tagged fields and so on in one request that carries records, whose frame may be large."""

REQUEST_WITHOUT_RECORDS_BYTES_MAX = 1024 * 1024
"""Longest request of a client without records."""

REQUEST_WITH_LONG_BYTES_MAX = 4 * 1024 * 1024
"""Longest request with a long field of bytes instead, such as metrics of a client: such a request is copied in one step, in
which no other thread runs. A little too much is answered, and very much is not."""

REQUEST_ELEMENTS_MAX = 50_000
"""Structs, strings, numbers in lists and tagged fields in one such request. A partition number takes four bytes, and an answer
for it may take a hundred times as many."""

PARTITIONS_TO_CHANGE_MAX = 10_000
"""Partitions that one request names to be elected leaders of or reassigned, as many as one request may create."""
