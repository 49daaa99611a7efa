"""The levels of features: what is told of them, and how they are changed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationUnavailable, Create, SetData
from ottla.server.cluster.features import (
    FEATURES,
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
    Features,
    Update,
    decode_features,
    encode_features,
)
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import all_routes, served_routes
from ottla.server.handlers.api_versions import api_versions
from ottla.server.handlers.update_features import update_features
from ottla.server.settings.broker_config import ConfigError, load_config
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla.wire.messages.share_fetch import ShareFetchRequest
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.wire.messages.streams_group_topology_description_update import StreamsGroupTopologyDescriptionUpdateRequest
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE, UNSAFE = 1, 2, 3
OFF = {GROUP_VERSION: 0, SHARE_VERSION: 0, STREAMS_VERSION: 0}
ALL_KEYS = frozenset(key for feature in FEATURES for key in feature.keys)
TOLD_FAILURE = "The update failed for all features since the following feature had an error: "


def ask_versions(broker: AdministeredBroker, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return cast(ApiVersionsResponse, api_versions(request, broker.context(version)))


def finalized(broker: AdministeredBroker) -> dict[str, int]:
    return {each.name: each.max_version_level for each in ask_versions(broker, 4).finalized_features}


async def change(broker: AdministeredBroker, *updates: tuple[str, int, int], version: int = 2, **more: Any) -> Any:
    listed = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    return await update_features(UpdateFeaturesRequest(feature_updates=listed, **more), broker.context(version))


async def test_features_are_told_if_all_their_requests_are_served(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    served = set(all_routes())
    expected = {each.name: each.latest for each in FEATURES if served.issuperset(each.keys)}
    assert TRANSACTION_VERSION in expected
    answer = ask_versions(broker, 4)
    assert {each.name: (each.min_version, each.max_version) for each in answer.supported_features} == {
        name: (0, latest) for name, latest in expected.items()
    }
    assert finalized(broker) == expected
    assert answer.finalized_features_epoch == 0
    features = broker.member.features
    assert [each.name for each in features.supported(ALL_KEYS)] == [each.name for each in FEATURES]
    assert features.supported(ALL_KEYS - {68}) == [each for each in FEATURES if each.name != GROUP_VERSION]


async def test_older_clients_are_not_told_of_features_from_level_0(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    answer = ask_versions(broker, 3)
    assert answer.supported_features == []
    assert {each.name for each in answer.finalized_features} == set(finalized(broker))
    assert ask_versions(broker, 2).finalized_features_epoch == -1


async def test_a_level_that_was_changed_is_told_and_outlives_a_restart(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert (await change(broker, (TRANSACTION_VERSION, 1, SAFE))).error_code == 0
    assert (finalized(broker)[TRANSACTION_VERSION], broker.transaction_version) == (1, 1)
    assert ask_versions(broker, 4).finalized_features_epoch == 1
    await broker.stop()
    broker = await opened(tmp_path)
    assert (finalized(broker)[TRANSACTION_VERSION], broker.transaction_version) == (1, 1)
    assert (await change(broker, (TRANSACTION_VERSION, 0, UNSAFE))).error_code == 0
    assert TRANSACTION_VERSION not in finalized(broker)
    assert ask_versions(broker, 4).finalized_features_epoch == 2
    assert (await change(broker, (TRANSACTION_VERSION, 2, UPGRADE))).error_code == 0
    assert finalized(broker)[TRANSACTION_VERSION] == 2
    await broker.stop()


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        ((TRANSACTION_VERSION, 1, 7), "The controller does not support the given upgrade type."),
        ((TRANSACTION_VERSION, -1, SAFE), "A feature version cannot be less than 0."),
        ((TRANSACTION_VERSION, 3, UPGRADE), "Local controller 1 only supports versions 0-2"),
        (("metadata.version", 30, UPGRADE), "Local controller 1 does not support this feature."),
        (("metadata.version", 0, SAFE), "Feature metadata.version not found."),
        (
            (TRANSACTION_VERSION, 1, UPGRADE),
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            + " downgrade.",
        ),
    ],
)
async def test_a_change_that_is_refused_leaves_all_as_it_was(
    tmp_path: Path, update: tuple[str, int, int], reason: str
) -> None:
    broker = await opened(tmp_path)
    before = finalized(broker)
    for version in (1, 2):
        answer = await change(broker, (TRANSACTION_VERSION, 1, SAFE), update, version=version)
        told = f"{TOLD_FAILURE}Invalid update version {update[1]} for feature {update[0]}. {reason}"
        assert (answer.error_code, answer.error_message, answer.results) == (95, told, [])
    assert finalized(broker) == before


async def test_only_to_validate_changes_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    answer = await change(broker, (TRANSACTION_VERSION, 1, SAFE), version=1, validate_only=True)
    assert [(each.feature, each.error_code) for each in answer.results] == [(TRANSACTION_VERSION, 0)]
    assert finalized(broker)[TRANSACTION_VERSION] == 2
    assert await broker.coordination.get_all([znodes.FEATURE]) == [None]


async def test_levels_that_cannot_be_written_are_not_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await opened(tmp_path)

    async def fail(operations: Any) -> Any:
        raise CoordinationUnavailable("/")

    with monkeypatch.context() as broken:
        broken.setattr(broker.coordination, "multi", fail)
        assert (await change(broker, (TRANSACTION_VERSION, 1, SAFE))).error_code == ErrorCode.FEATURE_UPDATE_FAILED
    assert finalized(broker)[TRANSACTION_VERSION] == 2
    assert (await change(broker, (TRANSACTION_VERSION, 1, SAFE))).error_code == 0


async def test_levels_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await change(broker, (TRANSACTION_VERSION, 1, SAFE))
    written = json.loads((await broker.coordination.get(znodes.FEATURE)).data)
    levels = {each.name: each.latest for each in FEATURES} | {TRANSACTION_VERSION: 1}
    assert written == {"version": 2, "status": 1, "features": levels}


async def test_levels_of_a_newer_release_are_those_that_this_one_knows(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    data = encode_features({TRANSACTION_VERSION: 9, SHARE_VERSION: 1, "new.version": 1})
    await broker.coordination.multi([Create(znodes.FEATURE, data)])
    await broker.member.features.read()
    assert (broker.transaction_version, broker.member.features.level(SHARE_VERSION)) == (2, 1)
    await broker.coordination.multi([SetData(znodes.FEATURE, b"{")])
    await broker.member.features.read()
    assert (await change(broker, (TRANSACTION_VERSION, 1, SAFE))).error_code == 0


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"status":1,"features":[]}', b"\xff", b"[" * 100_000])
def test_levels_that_cannot_be_read_are_left_aside(data: bytes) -> None:
    assert decode_features(data) == {}


def test_a_disabled_feature_node_says_nothing() -> None:
    assert decode_features(b'{"version":2,"status":0,"features":{"x":1}}') == {}


async def test_what_is_turned_off_is_not_served(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.coordination.multi([Create(znodes.FEATURE, encode_features(OFF))])
    await broker.member.features.read()
    for request in (
        ConsumerGroupHeartbeatRequest,
        ShareAcknowledgeRequest,
        ShareFetchRequest,
        ShareGroupHeartbeatRequest,
        StreamsGroupHeartbeatRequest,
        StreamsGroupTopologyDescriptionUpdateRequest,
    ):
        route = all_routes()[request.api_key]
        with pytest.raises(KafkaError) as caught:
            route.handler(request.zero(), broker.context(1))
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    for asked, code in (
        (ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), lambda each: each.groups[0]),
        (ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), lambda each: each.groups[0]),
        (StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), lambda each: each.groups[0]),
        (AlterShareGroupOffsetsRequest.zero(), lambda each: each),
        (DeleteShareGroupOffsetsRequest.zero(), lambda each: each),
    ):
        answered: Any = all_routes()[asked.api_key].handler(asked, broker.context(1))
        assert code(answered).error_code == ErrorCode.UNSUPPORTED_VERSION
    await broker.coordination.multi([SetData(znodes.FEATURE, encode_features({SHARE_VERSION: 1}))])
    await broker.member.features.read()
    answer: Any = all_routes()[ShareFetchRequest.api_key].handler(ShareFetchRequest.zero(), broker.context(1))
    assert answer.error_code != ErrorCode.UNSUPPORTED_VERSION


async def test_kinds_of_groups_that_the_setting_leaves_out_are_not_served(tmp_path: Path) -> None:
    broker = await opened(tmp_path, {"group.coordinator.rebalance.protocols": "Classic,STREAMS"})
    features = broker.member.features
    assert [features.is_served(each) for each in (GROUP_VERSION, STREAMS_VERSION, SHARE_VERSION)] == [False, True, True]
    assert finalized(broker)[GROUP_VERSION] == 1, "clients are told of the feature as before, as in Kafka"
    with pytest.raises(KafkaError) as caught:
        all_routes()[68].handler(ConsumerGroupHeartbeatRequest.zero(), broker.context(1))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    await broker.stop()


def test_classic_groups_are_always_served() -> None:
    name = "group.coordinator.rebalance.protocols"
    with pytest.raises(ConfigError, match="Disabling the 'classic' protocol is not supported"):
        load_config({name: "consumer,streams"})
    with pytest.raises(ConfigError, match="allowed: a list of consumer, classic, share, streams"):
        load_config({name: "classic,moving"})
    assert load_config({name: "CLASSIC"}).groups.group_coordinator_rebalance_protocols == ("CLASSIC",)


# ------------------------------------------------------------------ in a cluster


class OtherTree:
    """A tree that holds what a broker of Kafka 3.9 writes."""

    async def get_all(self, paths: list[str]) -> list[Any]:
        return [SimpleNamespace(data=b'{"version":2,"status":1,"features":{}}', version=3)]


def member(*, is_controller: bool) -> tuple[Features, RequestContext]:
    features = Features(cast(Any, OtherTree()), 1, is_alone=False)
    controller = object() if is_controller else None
    broker = SimpleNamespace(
        authorizer=None,
        is_in_cluster=True,
        member=SimpleNamespace(features=features, controller=controller),
        node_id=1,
    )
    return features, RequestContext(cast(Any, broker), api_version=1, listener_name="PLAINTEXT")


async def test_a_member_of_a_cluster_tells_of_no_features() -> None:
    features, _ = member(is_controller=True)
    assert features.epoch == -1
    await features.read()
    assert (features.supported(ALL_KEYS), features.finalized(ALL_KEYS), features.epoch) == ([], {}, 3)
    # Brokers of Kafka 3.9 know no newer transactions, but groups are one broker's own affair.
    assert (features.level(TRANSACTION_VERSION), features.level(GROUP_VERSION)) == (0, 1)
    with pytest.raises(KafkaError):
        await features.update([Update(GROUP_VERSION, 1, UPGRADE)], served_routes(is_in_cluster=True), validate_only=False)


async def test_a_cluster_refuses_each_feature_in_the_words_of_kafka_3() -> None:
    listed = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in (("", 1, 1), ("a", 1, 9), ("a", 0, SAFE), ("a", 0, UPGRADE), ("a", 1, UPGRADE))
    ]
    request = UpdateFeaturesRequest(feature_updates=listed)
    _, context = member(is_controller=True)
    answer = await update_features(request, context)
    assert [(each.error_code, each.error_message) for each in answer.results] == [
        (42, "Feature name can not be empty."),
        (42, "Received unknown upgrade type."),
        (42, "Can not delete non-existing finalized feature."),
        (42, "Can not provide versionLevel: 0 less than 1 without setting the SAFE downgradeType in the request."),
        (42, "Could not apply finalized feature update because the provided feature is not supported."),
    ]
    context.api_version = 2
    answer = await update_features(request, context)
    assert (answer.error_code, answer.error_message) == (42, f"{TOLD_FAILURE}Feature name can not be empty.")
    _, context = member(is_controller=False)
    assert (await update_features(request, context)).error_code == ErrorCode.NOT_CONTROLLER
