"""How much one call of a shard does, and how long names may be that groups keep."""

RECORDS_PER_CALL = 500
TIMERS_PER_CALL = 100
WORK_PER_CALL = 10_000
GROUPS_PER_SCAN = 100
OFFSETS_PER_CALL = 2_000
"""What one call may do at most, so that nobody waits long behind it; the rest is due at once."""

PIECE = 100
"""Members, partitions or records that a step of a long call handles at most, before others have a turn."""

TEXT_LENGTH_MAX = 8_000
"""Characters of a name that is kept: at most 32,000 bytes, so that it still fits into a record with a UUID behind it."""

NAMED_MAX = 10_000
"""Topics and partitions that a member, or an administrator, may name at once for one group. They are looked at in one step,
and kept in one record."""
