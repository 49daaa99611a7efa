"""Records that are longer than their topic allows."""

from contextlib import nullcontext

import pytest

from ottla.replication.log.record_sizes import check_sizes_until
from ottla.wire.compression import Compression
from ottla.wire.errors import KafkaError
from ottla.wire.legacy_records import encode_message_set
from ottla.wire.records import Record, encode_batch


@pytest.mark.parametrize("limit", [6, 7, 106, 107])
def test_records_of_compressed_batches_are_refused_if_they_are_longer_than_a_limit(limit: int) -> None:
    records = [Record(index, 5, None, b"x" * size) for index, size in enumerate((1, 100, 1))]
    lengths = [7, 107, 7]
    for codec in Compression:
        batch = encode_batch(records, base_offset=100, compression=codec)
        for index in range(3):
            is_refused = codec and max(lengths[: index + 1]) > limit
            with pytest.raises(KafkaError) if is_refused else nullcontext():
                check_sizes_until(batch, 100 + index, limit)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_wrappers_are_refused_if_one_is_longer_than_a_limit(magic: int) -> None:
    records = [Record(index, 5, None, b"x" * size) for index, size in enumerate((1, 100))]
    length = (22 if magic else 14) + 100
    wrapper = encode_message_set(records, magic, compression=Compression.GZIP)
    check_sizes_until(wrapper, 0, length)
    with pytest.raises(KafkaError):
        check_sizes_until(wrapper, 0, length - 1)
    check_sizes_until(encode_message_set(records[1:], magic), 0, 1)
