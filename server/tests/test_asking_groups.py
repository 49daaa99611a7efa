"""What members of classic groups have written about themselves."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.asking.groups import assigned
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_protocol import TopicPartition as Assigned


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_any_assignment_is_read_or_passed_over(blob):
    assert len(assigned(blob)) <= len(blob)


def test_an_assignment_of_a_later_version_is_read():
    parts = [Assigned(topic="t", partitions=[0, 2])]
    body = ConsumerProtocolAssignment(assigned_partitions=parts).encode(3)
    assert assigned(b"\0\x09" + body + b"more") == (("t", 0), ("t", 2))
