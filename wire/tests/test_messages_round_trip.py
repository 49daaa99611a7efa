"""Every version of every message: what is encoded is decoded again, and the fast codec agrees with the plain construct."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.schema import Struct
from ottla.wire.tests.effort import examples
from ottla.wire.tests.message_values import cases, values


@pytest.mark.parametrize(("cls", "version"), cases())
@settings(max_examples=examples(8), deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_encodes_as_the_plain_construct_does_and_decodes_again(
    cls: type[Struct], version: int, data: st.DataObject
) -> None:
    message = data.draw(values(cls, version))
    encoded = message.encode(version)
    assert cls.decode_prefix(encoded, version) == (message, len(encoded))
    surrounded = bytearray(b"before" + encoded + b"after")
    assert cls.decode(surrounded, version, 6, 6 + len(encoded)) == message
    assert cls.decode_prefix(surrounded, version, 6) == (message, 6 + len(encoded))
    plain = cls.construct(version)
    assert plain.build(message) == encoded
    assert plain.parse(encoded) == message


class Region:
    def __len__(self) -> int:
        return 1000


@pytest.mark.parametrize("version", [0, 11, 12, 18])
def test_a_file_region_is_passed_through_between_the_encoded_parts(version: int) -> None:
    def answer(records: object) -> FetchResponse:
        partition = PartitionData(partition_index=1, error_code=0, high_watermark=5, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

    region = Region()
    parts = answer(region).encode_parts(version)
    assert parts.count(region) == 1
    filled = [bytes(1000) if part is region else part for part in parts]
    assert b"".join(filled) == answer(bytes(1000)).encode(version)
