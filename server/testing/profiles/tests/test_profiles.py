"""Profiles: versions that are told and served, defaults and refusals. compat_tests/clients/test_profiles.py has old clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tests.support.raw import receive_frame
from compat_tests.support.wire_client import WireClient, decode_response
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.server.dispatch.apis import APIS
from ottla.server.imitation import TopicPolicy
from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.profiles.profiles import PROFILES, profile_of
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.create_topics import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest

GOLDEN = Path(__file__).parents[4] / "compat_tests" / "differential" / "golden" / "api_versions" / "what_is_served.txt"
API_VERSIONS = 18
TOPIC, BROKER = 2, 4
POLICY_VIOLATION = ErrorCode.POLICY_VIOLATION


@pytest.fixture(params=PROFILES)
def profiled(request: pytest.FixtureRequest) -> Iterator[tuple[str, Kafka]]:
    with Kafka(profile=request.param) as kafka:
        yield request.param, kafka


def client_of(kafka: Kafka) -> WireClient:
    host, _, port = kafka.bootstrap.split(",")[0].partition(":")
    return WireClient((host, int(port)), client_id="old", timeout_s=30)


def ranges(answer: Any) -> dict[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


def table(name: str) -> dict[int, tuple[int, int]]:
    versions = PROFILES[name].restrictions.versions
    assert versions is not None
    return {key: (each.first, each.last) for key, each in versions.items()}


# ---------------------------------------------------------------------- versions


def test_versions_of_4_4_are_those_of_its_golden_answer() -> None:
    line = next(each for each in GOLDEN.read_text().splitlines() if each.startswith("main ApiVersions: "))
    told = json.loads(line.partition(": ")[2])["api_keys"]
    assert table("kafka-4.4") == {each["api_key"]: (each["min_version"], each["max_version"]) for each in told}


@pytest.mark.parametrize("name", PROFILES)
def test_clients_are_told_nothing_that_is_not_served(name: str) -> None:
    served = {api.api_key: api.served(has_older=True) for api in APIS if not api.between_brokers}
    told = {key: each for key, each in table(name).items() if key in served}
    assert all(served[key].first <= first <= last <= served[key].last for key, (first, last) in told.items())


def test_a_broker_tells_and_serves_the_versions_of_its_profile(profiled: tuple[str, Kafka]) -> None:
    name, kafka = profiled
    expected = table(name)
    client = client_of(kafka)
    assert ranges(client.ask(ApiVersionsRequest(), 0)) == expected
    _, newest = expected[API_VERSIONS]
    told = client.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), newest)
    assert ranges(told) == expected
    assert (getattr(told, "supported_features", []) != []) is (name == "kafka-4.4")
    first, last = expected[MetadataRequest.api_key]
    assert client.ask(MetadataRequest(topics=[]), last).brokers
    assert client.ask(MetadataRequest(topics=[]), first).brokers
    if last < MetadataRequest.versions.last:
        with pytest.raises(ConnectionError):
            client.ask(MetadataRequest(topics=[]), last + 1)
    client.close()


@pytest.mark.parametrize(("name", "own"), [("kafka-0.10", {}), ("kafka-1.1", {}), ("kafka-2.8", {18: (0, 3)})])
def test_a_newer_question_for_versions_is_answered_in_format_0(name: str, own: dict[int, tuple[int, int]]) -> None:
    with Kafka(profile=name) as kafka:
        client = client_of(kafka)
        asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        client.send(asked, 4, answered=False)
        frame = receive_frame(client.socket)
        assert frame is not None
        _, answer = decode_response(frame, ApiVersionsResponse, 0)
        assert (answer.error_code, ranges(answer)) == (ErrorCode.UNSUPPORTED_VERSION, own)
        client.close()


def test_a_cluster_replicates_whatever_its_clients_are_told() -> None:
    with Kafka(3, profile="kafka-0.10") as kafka:
        kafka.topic("t", replication_factor=3)
        kafka.produce("t", b"one")
        assert [each.value for each in kafka.records("t")] == [b"one"]
        client = client_of(kafka)
        assert ranges(client.ask(ApiVersionsRequest(), 0)) == table("kafka-0.10")
        told = client.ask(MetadataRequest(topics=None), 2)
        assert sorted(f"{each.host}:{each.port}" for each in told.brokers) == sorted(kafka.bootstrap.split(","))
        with pytest.raises(ConnectionError):  # a version that the profile does not tell
            client.ask(MetadataRequest(topics=[]), MetadataRequest.versions.last)
        client.close()


# ---------------------------------------------------------------------- defaults


def described(kafka: Kafka, name: str) -> str | None:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name="0", configuration_keys=[name])
    return kafka.ask(DescribeConfigsRequest(resources=[resource])).results[0].configs[0].value


def test_defaults_are_those_of_the_profile_and_a_test_may_give_others() -> None:
    with Kafka(settings={"message.max.bytes": 5_000}, profile="kafka-1.1") as kafka:
        assert described(kafka, "offsets.retention.minutes") == "1440"
        assert described(kafka, "message.max.bytes") == "5000"


def test_snapshots_and_forks_keep_the_profile() -> None:
    with Kafka(profile="kafka-2.8") as kafka, kafka.fork() as other:
        client = client_of(other)
        assert ranges(client.ask(ApiVersionsRequest(), 0)) == table("kafka-2.8")
        client.close()


@pytest.mark.parametrize(
    ("name", "hint"), [("kafka-2.80", "did you mean 'kafka-2.8'?"), ("?", "the profiles are kafka-0.10,")]
)
def test_an_unknown_profile_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(LabError) as refused:
        Kafka(profile=name)
    assert hint in str(refused.value)


# ---------------------------------------------------------------------- refusals


def refused(code: ErrorCode = POLICY_VIOLATION) -> Any:
    return pytest.raises(KafkaError, check=lambda error: error.code is code)


def alter(kafka: Kafka, topic: str, **texts: str | None) -> int:
    configs = [
        IncrementalConfig(name=name.replace("_", "."), config_operation=1 if text is None else 0, value=text)
        for name, text in texts.items()
    ]
    resource = IncrementalConfigsResource(resource_type=TOPIC, resource_name=topic, configs=configs)
    code: int = (
        kafka.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)).responses[0].error_code
    )
    return code


def test_confluent_cloud_refuses_what_its_basic_clusters_refuse() -> None:
    with Kafka(profile="confluent-cloud-basic") as kafka:
        kafka.topic("t", partitions=-1, replication_factor=3, settings={"retention.ms": 1_000})
        assert kafka.topics() == {"t": 6}
        for wrong in (
            {"replication_factor": 1},
            {"partitions": 2_043},
            {"settings": {"flush.ms": 1}},
            {"settings": {"max.message.bytes": 8_388_609}},
            {"settings": {"segment.bytes": 52_428_799}},
        ):
            with refused():
                kafka.topic("u", **wrong)
        with refused(ErrorCode.INVALID_CONFIG):
            kafka.topic("u", settings={"max.message.bytes": "many"})
        kafka.topic("u", partitions=2_042 - 2_000)
        assert alter(kafka, "t", min_insync_replicas="3") == POLICY_VIOLATION
        assert alter(kafka, "t", min_insync_replicas="2") == ErrorCode.NONE
        assert alter(kafka, "t", compression_type="gzip") == POLICY_VIOLATION


def test_msk_serverless_fixes_the_cleanup_policy_of_a_topic() -> None:
    with Kafka(profile="msk-serverless") as kafka:
        kafka.topic("t", settings={"cleanup.policy": "compact"})
        assert alter(kafka, "t", cleanup_policy="delete") == POLICY_VIOLATION
        assert alter(kafka, "t", cleanup_policy=None) == POLICY_VIOLATION
        assert alter(kafka, "t", retention_ms="5000") == ErrorCode.NONE
        with refused():
            kafka.topic("u", settings={"segment.bytes": 1 << 20})


def test_msk_serverless_counts_all_partitions() -> None:
    with Kafka(profile="msk-serverless") as kafka, refused(ErrorCode.INVALID_REQUEST):
        kafka.topic("t", partitions=2_401)


def test_a_policy_lets_every_broker_create_internal_topics() -> None:
    with Kafka(3, profile="event-hubs") as kafka:
        other = next(each for each in kafka.brokers if each.node_id != kafka.controller)
        kafka.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), broker=other.node_id)
        kafka.call(kafka.world.until_shown, GROUP_METADATA_TOPIC)
        assert kafka.topics() == {}


def test_event_hubs_hangs_up_on_a_long_request() -> None:
    with Kafka(profile="event-hubs") as kafka:
        client = client_of(kafka)
        client.socket.sendall((1_046_529).to_bytes(4, "big"))  # without a limit the broker waits for the rest
        assert receive_frame(client.socket) is None
        client.close()


def test_event_hubs_has_ten_topics_of_a_fixed_size() -> None:
    with Kafka(profile="event-hubs") as kafka:
        with refused():
            kafka.topic("t0", partitions=33)
        for number in range(10):
            kafka.topic(f"t{number}")
        with refused():
            kafka.topic("t10")
        with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
            kafka.topic("t0")
        assert alter(kafka, "t0", retention_ms="5000") == POLICY_VIOLATION
        grown = [CreatePartitionsTopic(name=name, count=3, assignments=None) for name in ("t0", "nowhere")]
        answer = kafka.ask(CreatePartitionsRequest(topics=grown, timeout_ms=10_000, validate_only=False))
        codes = [each.error_code for each in answer.results]
        assert codes == [POLICY_VIOLATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


SETTINGS = st.dictionaries(st.sampled_from(["a", "b", "c"]) | st.text(max_size=3), st.text(max_size=30))


@given(SETTINGS, SETTINGS)
def test_a_policy_refuses_or_lets_pass_whatever_clients_send(before: dict[str, str], after: dict[str, str]) -> None:
    policy = TopicPolicy(editable=frozenset("ab"), limits={"a": (0, 10), "b": (None, 5)})
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    try:
        policy.check_change(before, after)
    except KafkaError as error:
        assert error.code is POLICY_VIOLATION and changed
    else:
        assert changed <= {"a", "b"}


def test_every_difference_has_a_source() -> None:
    for name in PROFILES:
        for each in profile_of(name).differences:
            assert each.text and each.source.title and each.source.url.startswith("https://"), each
