"""Asking for Kafka's own metadata quorum, which neither Ottla nor Apache Kafka in ZooKeeper mode has."""

import struct

from compat_tests.differential.asking_raw import frame, head, tell
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.fetch import FetchRequest

DESCRIBE_QUORUM = 55
TOPIC = b"__cluster_metadata"


@scenario(FetchRequest, "0")
def described(talk: Talk) -> None:
    """The oldest Fetch, because that is told to Apache Kafka 3.9, which runs in ZooKeeper mode."""
    body = b"\x02" + bytes([len(TOPIC) + 1]) + TOPIC + b"\x02" + struct.pack(">i", 0) + b"\x00\x00\x00"
    for version in (0, 1, 2, 3):
        tell(talk, f"v{version}", frame(head(DESCRIBE_QUORUM, version) + b"\x00" + body), FetchRequest, 0)
    answer = talk.do(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    talk.note("is told of", any(each.api_key == DESCRIBE_QUORUM for each in answer.api_keys))
