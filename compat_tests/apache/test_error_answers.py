"""An error of a whole request is answered as kafka-clients 4.4 does (getErrorResponse), byte for byte, but for texts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compat_tests.apache.brokers import FAST_START, bound_to_us, jars

from ottla.server.dispatch.dispatch import all_routes
from ottla.server.network.calls import Call
from ottla.server.tests.network.test_error_answers import filled
from ottla.wire.error_answers import error_answer
from ottla.wire.errors import ErrorCode

CODE = ErrorCode.UNKNOWN_LEADER_EPOCH
TEXTS = (None, "because", CODE.message)
"""Kafka tells the text of an exception in some answers, that of its code in others, or none."""

OTHERWISE = {
    "CreateDelegationToken": "ours has no principal and no times",
    "DescribeClientQuotas": "Kafka's array is null, ours is empty",
    "DescribeUserScramCredentials": "Kafka's has an element without a name for each user",
    "Fetch": "Kafka's repeats the id of the session",
    "InitProducerId": "Kafka's epoch is -1, ours is 0",
    "JoinGroup": "Kafka's name of the protocol is null, ours is empty",
    "ListPartitionReassignments": "Kafka's has an element without replicas for each partition",
    "WriteTxnMarkers": "Kafka's has one marker of each producer id",
}
"""Differences that a client which has seen the error does not look at."""
NOT_PARSED = {"Produce", "LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"}
"""Kafka's Produce wants records, and 4.4 has no others of these."""


def test_errors_have_kafkas_form() -> None:
    requests = [
        (route, version, filled(route.request_class, version).encode(version))
        for _, route in sorted(all_routes().items())
        for version in range(route.versions.first, route.versions.last + 1)
    ]
    asked = "".join(
        f"{route.request_class.api_key} {version} {bytes(body).hex()}\n" for route, version, body in requests
    )
    source = Path(__file__).with_name("ErrorAnswers.java")
    command = [*bound_to_us(), "java", *FAST_START, "-cp", f"{jars('kafka_4')}/*", str(source)]
    told = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, timeout=600).stdout
    differ, not_parsed = set(), set()
    for (route, version, body), theirs in zip(requests, told.split("\n")[:-1], strict=True):
        request, call = route.request_class.decode(body, version), Call(route, version)
        ours = [error_answer(request, route.response_class, version, CODE, text) for text in TEXTS]
        if not theirs:
            not_parsed.add(route.name)
        elif theirs not in [b"".join(map(bytes, call.encoded(each))).hex() for each in ours]:
            differ.add(route.name)
    assert differ == OTHERWISE.keys()
    assert not_parsed - {"Fetch"} == NOT_PARSED  # versions that 4.4 does not know any more
