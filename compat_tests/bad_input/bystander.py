"""Whoever must notice nothing of peers that misbehave, and the numbers that these tests speak in."""

import threading
import time

from compat_tests.support.raw import Peer, batch, fetch, produce, response

LARGEST_FRAME = 104857600
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
MEGABYTE = 1 << 20
GOOD = [b"a", b"b"]

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
NONE, CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OUT_OF_RANGE, UNKNOWN_SERVER_ERROR = 0, 2, 3, 1, -1
INVALID_TOPIC_EXCEPTION, INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, INVALID_REQUIRED_ACKS = 17, 24, 26, 21
INVALID_TIMESTAMP, UNSUPPORTED_VERSION, INVALID_REQUEST, OUT_OF_ORDER_SEQUENCE_NUMBER = 32, 35, 42, 45
POLICY_VIOLATION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR = 44, 37, 38
INVALID_PRODUCER_EPOCH, UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, MESSAGE_TOO_LARGE = 47, 76, 87, 10


class Bystander(threading.Thread):
    """Produces and reads a hundred times a second on one connection, and remembers its longest wait."""

    def __init__(self, address, topic):
        super().__init__(daemon=True)
        self.address, self.topic = address, topic
        self.acknowledged = 0
        self.longest_wait_s = 0.0
        self.failure = None
        self.stopping = threading.Event()

    def run(self):
        try:
            with Peer(self.address) as peer:
                while not self.stopping.wait(0.01):
                    self.turn(peer)
        except (AssertionError, OSError) as failure:
            self.failure = failure

    def turn(self, peer):
        started = time.monotonic()
        peer.send(produce(self.topic, batch([b"bystander"])))
        offset, code = produced(peer.receive())
        assert (offset, code) == (self.acknowledged, NONE)
        self.acknowledged += 1
        peer.send(fetch(self.topic, offset))
        [answer] = response("Fetch", 11, peer.receive()).responses[0].partitions
        assert (answer.error_code, answer.high_watermark) == (NONE, self.acknowledged)
        self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - started)


def produced(payload, version=7):
    """(base offset, error code) of the answer to a Produce request with one partition."""
    assert payload is not None, "the broker closed the connection"
    [partition] = response("Produce", version, payload).responses[0].partition_responses
    return partition.base_offset, partition.error_code


def is_served(peer):
    """Whether the connection still works."""
    return peer.call("ApiVersions", 0).error_code == NONE
