"""The levels of features: what is told of them, and how they are changed."""

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create, Node, SetData, WriteRefused
from ottla.replication.cluster.metadata_cache import BrokerRegistration
from ottla.server.api.handlers.api_versions import api_versions
from ottla.server.api.handlers.cluster import update_features
from ottla.server.cluster.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
    Features,
    Levels,
    decode_levels,
    encode_levels,
    supported_levels,
)
from ottla.server.cluster.session import JoinProblem
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import all_routes, served_routes
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.wire.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from ottla.wire.messages.streams_group import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
)

UPGRADE, SAFE, UNSAFE = 1, 2, 3
OFF = (GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION)
ALL_KEYS = frozenset(key for feature in FEATURES for key in feature.keys)
TOLD_FAILURE = "The update failed for all features since the following feature had an error: "


def ask_versions(broker: AdministeredBroker, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return cast(ApiVersionsResponse, api_versions(request, broker.context(version)))


def finalized(broker: AdministeredBroker) -> dict[str, int]:
    return {each.name: each.max_version_level for each in ask_versions(broker, 4).finalized_features}


def node(levels: dict[str, int], settled: Iterable[str] = ()) -> bytes:
    return encode_levels(Levels(levels, frozenset(settled)))


async def change(broker: AdministeredBroker, *updates: tuple[str, int, int], version: int = 2, **more: Any) -> Any:
    listed = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
    ]
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
        raise WriteRefused("/")

    with monkeypatch.context() as broken:
        broken.setattr(broker.coordination, "multi", fail)
        assert (await change(broker, (TRANSACTION_VERSION, 1, SAFE))).error_code == ErrorCode.FEATURE_UPDATE_FAILED
    assert finalized(broker)[TRANSACTION_VERSION] == 2
    assert (await change(broker, (TRANSACTION_VERSION, 1, SAFE))).error_code == 0


async def test_levels_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await change(broker, (TRANSACTION_VERSION, 1, SAFE))
    written = json.loads((await broker.coordination.get(znodes.FEATURE)).data)
    levels = {TRANSACTION_VERSION: {"max_version_level": 1}}
    assert written == {"version": 2, "status": 1, "features": levels, "set": [TRANSACTION_VERSION]}


async def test_a_release_does_not_start_with_levels_that_it_does_not_know(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    assert (await change(broker, (SHARE_VERSION, 1, SAFE))).error_code == 0
    await broker.stop()
    broker = await opened(tmp_path)
    await broker.coordination.multi([SetData(znodes.FEATURE, node({TRANSACTION_VERSION: 9, "new.version": 1}))])
    await broker.stop()
    with pytest.raises(JoinProblem) as caught:
        await opened(tmp_path)
    assert str(caught.value) == (
        "the cluster uses new.version=1, transaction.version=9, which this release does not support: start a newer release, or"
        " first lower it with `ottla features downgrade new.version=0 transaction.version=2`"
    )


async def test_a_node_that_cannot_be_read_is_written_anew(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.coordination.multi([Create(znodes.FEATURE, b"{")])
    await broker.stop()
    broker = await opened(tmp_path)
    assert finalized(broker)[TRANSACTION_VERSION] == 2
    assert (await change(broker, (TRANSACTION_VERSION, 1, SAFE))).error_code == 0
    assert finalized(broker)[TRANSACTION_VERSION] == 1
    await broker.stop()


async def test_what_the_release_before_wrote_is_read(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    old = {
        "version": 2,
        "status": 1,
        "features": {GROUP_VERSION: 0, SHARE_VERSION: 1, STREAMS_VERSION: 1, TRANSACTION_VERSION: 1},
    }
    await broker.coordination.multi([Create(znodes.FEATURE, json.dumps(old).encode())])
    await broker.stop()
    broker = await opened(tmp_path)
    told = {SHARE_VERSION: 1, STREAMS_VERSION: 1, TRANSACTION_VERSION: 1}
    assert finalized(broker) == told | {ELIGIBLE_LEADER_REPLICAS_VERSION: 1}, "it knew nothing of that one"
    assert not broker.member.features.is_served(GROUP_VERSION)
    await broker.stop()


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"status":1,"features":[]}', b"\xff", b"[" * 100_000])
def test_levels_that_cannot_be_read_are_left_aside(data: bytes) -> None:
    assert decode_levels(data) == Levels(is_ours=False)


@pytest.mark.parametrize(
    ("data", "levels"),
    [
        (b'{"version":2,"status":0,"features":{"x":{"max_version_level":1}}}', {}),
        (b'{"version":2,"status":1,"features":{"x":{"max_version_level":3}}}', {"x": 3}),
        (b'{"version":1,"status":1,"features":{"x":{"min_version_level":2,"max_version_level":2}}}', {"x": 2}),
    ],
)
def test_nodes_of_kafka_are_left_to_the_operator(data: bytes, levels: dict[str, int]) -> None:
    assert decode_levels(data) == Levels(levels, is_ours=False)


@given(st.dictionaries(st.text(), st.integers(0, 32767)), st.frozensets(st.text()))
def test_levels_are_read_as_they_were_written(levels: dict[str, int], settled: frozenset[str]) -> None:
    expected = {name: level for name, level in levels.items() if level}
    assert decode_levels(encode_levels(Levels(levels, settled))) == Levels(expected, settled)


@given(
    st.binary()
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda each: (
            st.lists(each)
            | st.dictionaries(st.sampled_from(["version", "status", "features", "set", "x", "max_version_level"]), each)
        ),
    ).map(lambda each: json.dumps(each).encode())
)
def test_no_node_stops_a_broker(data: bytes) -> None:
    levels = decode_levels(data)
    assert all(level > 0 for level in levels.finalized.values())


def test_every_feature_is_served_alone_and_in_a_cluster() -> None:
    assert ALL_KEYS.issubset(served_routes(is_in_cluster=False))
    of_members = {key for each in FEATURES if not each.is_alone_only for key in each.keys}
    assert of_members.issubset(served_routes(is_in_cluster=True))


async def test_what_is_turned_off_is_not_served(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await broker.coordination.multi([Create(znodes.FEATURE, node({}, OFF))])
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
        (
            ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
            lambda each: each.groups[0],
        ),
        (ShareGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False), lambda each: each.groups[0]),
        (
            StreamsGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False),
            lambda each: each.groups[0],
        ),
        (AlterShareGroupOffsetsRequest.zero(), lambda each: each),
        (DeleteShareGroupOffsetsRequest.zero(), lambda each: each),
    ):
        answered: Any = all_routes()[asked.api_key].handler(asked, broker.context(1))
        assert code(answered).error_code == ErrorCode.UNSUPPORTED_VERSION
    await broker.coordination.multi([SetData(znodes.FEATURE, node({SHARE_VERSION: 1}, [SHARE_VERSION]))])
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

NEWEST = supported_levels()


class OtherTree:
    """A tree that holds what others write."""

    def __init__(self, data: bytes | None = None, version: int = 3) -> None:
        self.data, self.version, self.creation_id = data, version, 1
        self.watchers: list[Any] = []

    async def get_all(self, paths: list[str]) -> list[Any]:
        await trio.lowlevel.checkpoint()
        return [None if self.data is None else Node(self.data, self.version, self.creation_id)]

    def watch_node(self, path: str, on_change: Any) -> Any:
        self.watchers.append(on_change)
        return self.watchers.clear

    def write(self, data: bytes | None) -> None:
        self.data, self.version = data, self.version + 1
        for watcher in self.watchers:
            watcher(znodes.FEATURE)


def member(data: bytes | None = None) -> tuple[Features, OtherTree]:
    tree = OtherTree(data)
    return Features(cast(Any, tree), is_alone=False), tree


KAFKAS = b'{"version":2,"status":1,"features":{}}'


@pytest.mark.parametrize(("data", "epoch"), [(None, -1), (KAFKAS, 3), (b"rubbish", 3)])
async def test_a_member_tells_of_no_features_before_they_are_finalized(data: bytes | None, epoch: int) -> None:
    features, _ = member(data)
    assert features.epoch == -1
    await features.read()
    assert (features.supported(ALL_KEYS), features.finalized(ALL_KEYS), features.epoch) == ([], {}, epoch)
    # Other brokers may know no newer transactions, but groups are one broker's own affair.
    assert (features.level(TRANSACTION_VERSION), features.level(GROUP_VERSION)) == (0, 1)


async def test_a_member_tells_of_what_is_finalized() -> None:
    features, _ = member(node({TRANSACTION_VERSION: 2, GROUP_VERSION: 1}, [GROUP_VERSION, SHARE_VERSION]))
    await features.read()
    assert [each.name for each in features.supported(ALL_KEYS)] == list(NEWEST)
    assert (features.finalized(ALL_KEYS), features.epoch) == ({TRANSACTION_VERSION: 2, GROUP_VERSION: 1}, 3)
    # One was set to 0, the other was never raised.
    assert [features.is_served(each) for each in (SHARE_VERSION, STREAMS_VERSION)] == [False, True]


async def test_a_member_hears_of_every_change_and_never_goes_back() -> None:
    features, tree = member()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(features.run)
        await trio.testing.wait_all_tasks_blocked()
        assert features.epoch == -1
        for levels in (NEWEST, {**NEWEST, TRANSACTION_VERSION: 1}):
            tree.write(node(levels))
            await trio.testing.wait_all_tasks_blocked()
            assert (features.finalized(ALL_KEYS), features.epoch) == (levels, tree.version)
        tree.version -= 2  # another server of the tree, which is behind
        tree.write(node(NEWEST))
        await trio.testing.wait_all_tasks_blocked()
        assert (features.level(TRANSACTION_VERSION), features.epoch) == (1, 5)
        tree.creation_id += 1  # somebody has removed the node
        tree.write(node(NEWEST))
        await trio.testing.wait_all_tasks_blocked()
        assert (features.level(TRANSACTION_VERSION), features.epoch) == (2, 5)
        tree.write(None)
        await trio.testing.wait_all_tasks_blocked()
        assert (features.level(TRANSACTION_VERSION), features.epoch) == (0, -1)
        nursery.cancel_scope.cancel()
    assert tree.watchers == []


async def test_a_member_ends_when_others_raise_a_level_beyond_it() -> None:
    features, tree = member(node({TRANSACTION_VERSION: 3}))
    with pytest.raises(JoinProblem):
        await features.read()
    tree.data = node({})
    reasons: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(features.run)

        async def wait() -> None:
            reasons.append(await features.until_broken(cast(Any, trio.sleep_forever)))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        tree.write(node({TRANSACTION_VERSION: 3}))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert "transaction.version=3, which this release does not support" in reasons[0]


async def test_beside_kafka_a_member_supports_nothing() -> None:
    tree = OtherTree(KAFKAS)
    features = Features(cast(Any, tree), is_alone=False, beside_kafka="3.9")
    await features.read()
    assert (features.supported_levels, features.level(GROUP_VERSION)) == ({}, 1)
    tree.write(node({GROUP_VERSION: 1}))
    with pytest.raises(JoinProblem, match=r"inter\.broker\.protocol\.version=3\.9 does not support"):
        await features.read()


async def test_a_member_ends_for_other_reasons_too() -> None:
    features, _ = member()

    async def broken() -> str:
        await trio.lowlevel.checkpoint()
        return "the disk"

    assert await features.until_broken(broken) == "the disk"


def at_controller(*, is_mixed: bool = True) -> RequestContext:
    brokers = {
        1: BrokerRegistration(1, {}, features=NEWEST),
        2: BrokerRegistration(2, {}, features={} if is_mixed else NEWEST),
    }
    broker = SimpleNamespace(
        authorizer=None,
        is_in_cluster=True,
        member=SimpleNamespace(
            features=member()[0], controller=SimpleNamespace(states=SimpleNamespace(brokers=brokers))
        ),
        node_id=1,
    )
    return RequestContext(cast(Any, broker), api_version=1, listener_name="PLAINTEXT")


async def test_a_mixed_cluster_refuses_each_feature_in_the_words_of_kafka_3() -> None:
    listed = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in (("", 1, 1), ("a", 1, 9), ("a", 0, SAFE), ("a", 0, UPGRADE), ("a", 1, UPGRADE))
    ]
    request = UpdateFeaturesRequest(feature_updates=listed)
    context = at_controller()
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
    context.broker.member.controller = None
    assert (await update_features(request, context)).error_code == ErrorCode.NOT_CONTROLLER


async def test_a_controller_that_is_too_slow_fails(autojump_clock: trio.testing.MockClock) -> None:
    context = at_controller(is_mixed=False)

    async def hang(*_: Any, **__: Any) -> None:
        await trio.sleep_forever()

    context.broker.member.controller.update_features = hang
    answer = await update_features(UpdateFeaturesRequest(feature_updates=[], timeout_ms=500), context)
    assert answer.error_code == ErrorCode.FEATURE_UPDATE_FAILED


async def test_eligible_leaders_are_a_feature_of_a_broker_that_is_alone(tmp_path: Path) -> None:
    """Members of a cluster elect by other rules: they tell of no level, and one that is left in the tree stops nobody."""
    broker = await opened(tmp_path)
    assert finalized(broker)[ELIGIBLE_LEADER_REPLICAS_VERSION] == 1
    assert broker.configs.has_eligible_leaders()
    await change(broker, (ELIGIBLE_LEADER_REPLICAS_VERSION, 0, SAFE))
    assert ELIGIBLE_LEADER_REPLICAS_VERSION not in finalized(broker) and not broker.configs.has_eligible_leaders()
    await broker.stop()
    assert ELIGIBLE_LEADER_REPLICAS_VERSION not in NEWEST
    features, _ = member(
        node({ELIGIBLE_LEADER_REPLICAS_VERSION: 1, GROUP_VERSION: 1}, [ELIGIBLE_LEADER_REPLICAS_VERSION])
    )
    await features.read()
    assert features.finalized(ALL_KEYS) == {GROUP_VERSION: 1}
    assert features.level(ELIGIBLE_LEADER_REPLICAS_VERSION) == 0
