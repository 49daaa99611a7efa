"""Answers of Apache Kafka itself, kept as it sent them, are read and written back byte for byte.

golden/<api>.hex holds one answer a line: the version it was asked in and the body that came after the header. Versions that
came with 4.4 were answered by 4.4.0, all others by 4.3.1.
DescribeLogDirs is left out, because its answer names the machine's own directories.
"""

from pathlib import Path
from typing import Any

import pytest

from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.metadata import MetadataResponse
from ottla.wire.schema import Message
from ottla.wire.tests.message_values import messages, snake_case, versions

GOLDEN = Path(__file__).parent / "golden"
RESPONSES = {cls.__name__.removesuffix("Response"): cls for cls in messages() if cls.__name__.endswith("Response")}
OF_OLD_CLIENTS = (
    *("Fetch", "ListOffsets", "OffsetCommit", "OffsetFetch", "CreateTopics", "DeleteTopics", "OffsetForLeaderEpoch"),
    *("WriteTxnMarkers", "DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeConfigs", "AlterReplicaLogDirs"),
    *("DescribeLogDirs", "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken"),
    "DescribeDelegationToken",
)
WITH_PLUG_IN_ONLY = ("GetTelemetrySubscriptions", "PushTelemetry")
# Not what the capture asked for, or what Kafka 4 no longer answers.
NOT_CAPTURED = {
    "Produce": [0, 1, 2],
    "Fetch": [0, 1, 2, 3],
    "ListOffsets": [0],
    "CreateTopics": [0, 1],
    "DeleteTopics": [0],
    "OffsetCommit": [0, 1],
    "OffsetFetch": [0],
    "OffsetForLeaderEpoch": [0, 1],
    "DescribeConfigs": [0],
    "ListGroups": [0, 1, 2, 3],
    "DescribeLogDirs": [0, 1, 2, 3, 4, 5],
    "AlterPartitionReassignments": [0, 1],
    "AlterReplicaLogDirs": [0, 1, 2],
    "ElectLeaders": [0, 1, 2],
    "ListPartitionReassignments": [0],
    "SaslHandshake": [0, 1],
    "DescribeUserScramCredentials": [0],
    "AlterUserScramCredentials": [0],
    "SaslAuthenticate": [0, 1, 2],
    "GetTelemetrySubscriptions": [0],
    "PushTelemetry": [0],
    # Their answers are compared field by field in compat_tests/differential.
    "DescribeQuorum": [0, 1, 2],
    "UnregisterBroker": [0],
    "AddRaftVoter": [0, 1],
    "RemoveRaftVoter": [0],
    "UnregisterController": [0],
    "AddPartitionsToTxn": [0, 1, 2, 3, 4, 5],
    "AddOffsetsToTxn": [0, 1, 2, 3, 4],
    "EndTxn": [0, 1, 2, 3, 4, 5],
    "WriteTxnMarkers": [0, 1, 2],
    "TxnOffsetCommit": [0, 1, 2, 3, 4, 5, 6],
    "DescribeAcls": [0, 1, 2, 3],
    "CreateAcls": [0, 1, 2, 3],
    "DeleteAcls": [0, 1, 2, 3],
    "CreateDelegationToken": [0, 1, 2, 3],
    "RenewDelegationToken": [0, 1, 2],
    "ExpireDelegationToken": [0, 1, 2],
    "DescribeDelegationToken": [0, 1, 2, 3],
    "DescribeClientQuotas": [0, 1],
    "AlterClientQuotas": [0, 1],
    "UpdateFeatures": [0, 1, 2],
    "DescribeTransactions": [0],
    "ListTransactions": [0, 1, 2],
    "ConsumerGroupHeartbeat": [0, 1],
    "ConsumerGroupDescribe": [0, 1],
    "ListConfigResources": [0, 1],
    "ShareGroupHeartbeat": [1],
    "ShareGroupDescribe": [1],
    "ShareFetch": [1, 2],
    "ShareAcknowledge": [1, 2],
    "InitializeShareGroupState": [0],
    "ReadShareGroupState": [0],
    "WriteShareGroupState": [0, 1],
    "DeleteShareGroupState": [0],
    "ReadShareGroupStateSummary": [0, 1],
    "StreamsGroupHeartbeat": [0, 1],
    "StreamsGroupDescribe": [0, 1],
    "DescribeShareGroupOffsets": [0, 1],
    "AlterShareGroupOffsets": [0],
    "DeleteShareGroupOffsets": [0],
    "StreamsGroupTopologyDescriptionUpdate": [0],
}
# What brokers say to each other and to their controller, which no client is told of.
BETWEEN_BROKERS = {
    "LeaderAndIsr",
    "StopReplica",
    "UpdateMetadata",
    "ControlledShutdown",
    "AlterPartition",
    "AllocateProducerIds",
    "Envelope",
}
FOR_CLIENTS = {api: cls for api, cls in RESPONSES.items() if api not in BETWEEN_BROKERS}


def answers(api: str) -> list[tuple[int, bytes]]:
    path = GOLDEN / f"{snake_case(api)}.hex"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(version.removeprefix("v")), bytes.fromhex(body)) for version, body in map(str.split, lines)]


def cases() -> list[Any]:
    return [
        pytest.param(cls, version, body, id=f"{cls.__name__}-v{version}-{number}")
        for api, cls in RESPONSES.items()
        for number, (version, body) in enumerate(answers(api))
    ]


@pytest.mark.parametrize(("cls", "version", "body"), cases())
def test_an_answer_of_kafka_is_read_and_written_back(cls: type[Message], version: int, body: bytes) -> None:
    decoded, end = cls.decode_prefix(body, version)
    assert end == len(body)
    assert decoded.encode(version) == body


def test_there_is_an_answer_of_every_version() -> None:
    for api, cls in FOR_CLIENTS.items():
        captured = {version for version, _body in answers(api)}
        assert sorted(set(versions(cls)) - captured) == NOT_CAPTURED.get(api, []), api


def test_the_declared_versions_are_those_that_kafka_advertises() -> None:
    version, body = answers("ApiVersions")[-1]
    advertised = {
        api.api_key: (api.min_version, api.max_version) for api in ApiVersionsResponse.decode(body, version).api_keys
    }
    for api, cls in FOR_CLIENTS.items():
        if api in WITH_PLUG_IN_ONLY:
            continue
        first, last = advertised[cls.api_key]
        assert (0 if api in OF_OLD_CLIENTS else first, last) == (cls.versions.first, cls.versions.last), api


@pytest.mark.parametrize("number", range(14))
def test_metadata_tells_the_same_in_every_version(number: int) -> None:
    version, body = answers("Metadata")[number]
    decoded = MetadataResponse.decode(body, version)
    topic = next(topic for topic in decoded.topics if topic.name == "ottla-golden")
    assert [(broker.node_id, broker.host, broker.port) for broker in decoded.brokers] == [(1, "127.0.0.1", 29092)]
    assert sorted(partition.partition_index for partition in topic.partitions) == [0, 1]
    assert {partition.leader_id for partition in topic.partitions} == {1}
    assert (topic.topic_id == bytes(16)) == (version < 10)
    assert len(decoded.topics) == (1 if version < 4 else 2)


def test_fetched_records_are_a_view_of_the_answer() -> None:
    for version, body in answers("Fetch"):
        decoded = FetchResponse.decode(body, version)
        by_index = {part.partition_index: part for topic in decoded.responses for part in topic.partitions}
        records = by_index[0].records
        assert isinstance(records, memoryview)
        assert records.obj is body
        assert records[:8] == (18).to_bytes(8, "big")
        assert (by_index[0].high_watermark, by_index[1].error_code) == (22, 1)
