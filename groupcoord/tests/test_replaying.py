"""A partition of an internal topic is read into its shard."""

from typing import Any

import pytest

from ottla.groupcoord.runtime import replaying
from ottla.groupcoord.runtime.replaying import replay_batch
from ottla.wire.records import Record, decode_records, encode_batch, iter_batches


class Kind:
    """Records that are their values."""

    topic = "a topic"

    def decode(self, key: bytes | None, value: bytes | None) -> bytes | None:
        return value


class Replayed:
    """A shard that writes down what it replays: record, offset, producer id."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, int, int]] = []

    def replay(self, record: bytes, offset: int, producer_id: int) -> None:
        self.records.append((record, offset, producer_id))


def test_headers_of_records_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header of two bytes would become objects of eighty, and nobody asks for them."""
    headers = ((b"", None),) * 1_000
    batch = encode_batch([Record(offset, 0, b"key", b"value %d" % offset, headers) for offset in range(3)])
    decoded: list[Record] = []

    def decoding(*arguments: Any, **options: Any) -> Any:
        decoded.extend(decode_records(*arguments, **options))
        return iter(decoded)

    monkeypatch.setattr(replaying, "decode_records", decoding)
    shard: Any = Replayed()
    kind: Any = Kind()
    [(header, start, _)] = iter_batches(batch)
    for _ in replay_batch(kind, shard, header, batch, start):
        pass
    assert shard.records == [(b"value 0", 0, -1), (b"value 1", 1, -1), (b"value 2", 2, -1)]
    assert [each.headers for each in decoded] == [()] * 3
