"""The levels of features: which changes are refused, with what words, and what a change makes ApiVersions tell.

Each on a broker of its own, whose levels are as they were in the end. Only features that Ottla has.
"""

from typing import Any

from compat_tests.differential.asking_share import alteration, deletion, offsets_of
from compat_tests.differential.asking_streams import StreamsMember, subtopology, topology
from compat_tests.differential.conversation import Talk, newest, scenario
from compat_tests.differential.scenarios.api_versions import named

from ottla.server.dispatch.dispatch import response_class_of
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.consumer_group import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from ottla.wire.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from ottla.wire.messages.share_group import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from ottla.wire.messages.streams_group import StreamsGroupDescribeRequest

CHANGED_LEVELS = {"group.share.max.size": "202"}
TRANSACTIONS = "transaction.version"
UNKNOWN, UPGRADE, SAFE, UNSAFE = range(4)


def update(talk: Talk, *changes: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level, _ in changes]
    for each, (_, _, kind) in zip(updates, changes, strict=True):
        if talk.version:
            each.upgrade_type = kind
        else:
            each.allow_downgrade = kind in (SAFE, UNSAFE)
    request = UpdateFeaturesRequest(feature_updates=updates)
    if talk.version:
        request.validate_only = validate_only
    return request


def ask(talk: Talk, label: str, *changes: tuple[str, int, int], validate_only: bool = False) -> Any:
    return talk.ask(update(talk, *changes, validate_only=validate_only), label=label)


def level_now(answer: Any) -> int:
    return next((each.max_version_level for each in answer.finalized_features if each.name == TRANSACTIONS), 0)


def told(talk: Talk, level: int) -> None:
    """Notes that ApiVersions comes to tell this level, and what the epoch has done."""
    talk.until(named(), lambda answer: level_now(answer) == level)
    answer = talk.do(named())
    talk.note("supported", [list(fields(each)) for each in answer.supported_features if each.name == TRANSACTIONS])
    talk.note("finalized", [list(fields(each)) for each in answer.finalized_features if each.name == TRANSACTIONS])
    old = talk.do(named(), 3)
    talk.note("supported in v3", [each.name for each in old.supported_features if each.name == TRANSACTIONS])
    talk.note("finalized in v3", level_now(old))


def fields(each: Any) -> tuple[Any, ...]:
    if hasattr(each, "min_version"):
        return each.name, each.min_version, each.max_version
    return each.name, each.min_version_level, each.max_version_level


@scenario(UpdateFeaturesRequest, settings=CHANGED_LEVELS)
def refused(talk: Talk) -> None:
    for kind in (-1, UNKNOWN, UPGRADE, SAFE, UNSAFE, 4):
        for name, level in (
            (TRANSACTIONS, -1),
            (TRANSACTIONS, 2),
            (TRANSACTIONS, 3),
            (TRANSACTIONS, 32767),
            ("no.such", 0),
            ("no.such", 1),
            ("no.such", -1),
            ("", 0),
            ("Transaction.version", 1),
        ):
            ask(talk, f"{name!r} {level} by {kind}", (name, level, kind))


@scenario(UpdateFeaturesRequest, "1+", settings=CHANGED_LEVELS)
def only_to_validate(talk: Talk) -> None:
    """v1 brought it."""
    for level in (0, 1, 2, 3):
        for kind in (UPGRADE, SAFE, UNSAFE):
            ask(talk, f"level {level} by {kind}", (TRANSACTIONS, level, kind), validate_only=True)
    told(talk, 2)


@scenario(UpdateFeaturesRequest, settings=CHANGED_LEVELS)
def several(talk: Talk) -> None:
    ask(talk, "none")
    ask(talk, "one that is as it was", (TRANSACTIONS, 2, UPGRADE))
    ask(talk, "a good one and a bad one", (TRANSACTIONS, 2, UPGRADE), ("no.such", 1, UPGRADE))
    ask(talk, "one twice", (TRANSACTIONS, 3, UPGRADE), (TRANSACTIONS, 2, UPGRADE))
    ask(talk, "two bad ones", ("streams.version", -1, UPGRADE), ("no.such", 1, UPGRADE))
    ask(talk, "two bad ones, the other way round", ("no.such", 1, UPGRADE), ("streams.version", -1, UPGRADE))
    ask(talk, "three bad ones", ("a", 1, UPGRADE), ("nothing", 1, UPGRADE), ("streams.version", -1, UPGRADE))
    ask(talk, "one twice, the bad one last", (TRANSACTIONS, 2, UPGRADE), (TRANSACTIONS, 3, UPGRADE))


@scenario(UpdateFeaturesRequest, "1+", settings=CHANGED_LEVELS)
def down_and_up(talk: Talk) -> None:
    before = talk.do(named()).finalized_features_epoch
    try:
        ask(talk, "down by an upgrade", (TRANSACTIONS, 1, UPGRADE))
        ask(talk, "down", (TRANSACTIONS, 1, SAFE))
        told(talk, 1)
        ask(talk, "up by a downgrade", (TRANSACTIONS, 2, SAFE))
        ask(talk, "to nothing", (TRANSACTIONS, 0, UNSAFE))
        told(talk, 0)
        ask(talk, "to nothing again", (TRANSACTIONS, 0, SAFE))
    finally:
        ask(talk, "up", (TRANSACTIONS, 2, UPGRADE))
    told(talk, 2)
    talk.note("the epoch has grown", talk.do(named()).finalized_features_epoch > before)


GROUPS = (("group.version", 1), ("share.version", 2), ("streams.version", 1))


@scenario(UpdateFeaturesRequest, "2", settings={"group.share.max.size": "203"})
def groups_that_are_turned_off(talk: Talk) -> None:
    """What is asked of them in each version, in words that would be right."""
    group = talk.group()
    asked = [
        ConsumerGroupHeartbeatRequest(group_id=group, member_id="a", member_epoch=0, rebalance_timeout_ms=1000),
        ConsumerGroupDescribeRequest(group_ids=[group, ""], include_authorized_operations=True),
        ShareGroupHeartbeatRequest(group_id=group, member_id="a", member_epoch=0, subscribed_topic_names=["t"]),
        ShareGroupDescribeRequest(group_ids=[group, ""], include_authorized_operations=True),
        offsets_of(group),
        offsets_of(group, ("t", (0, 1))),
        alteration(group, ("t", 0, 0)),
        deletion(group, "t"),
        StreamsMember(talk, group, "a", topology(subtopology("0", "t"))).join_request(),
        StreamsGroupDescribeRequest(group_ids=[group, ""], include_authorized_operations=True),
    ]
    try:
        for name, _ in GROUPS:
            ask(talk, "off", (name, 0, SAFE))
        for request in asked[::2]:
            if hasattr(response_class_of(type(request)).zero(), "error_code"):
                talk.until(request, lambda answer: answer.error_code == ErrorCode.UNSUPPORTED_VERSION)
        for request in asked:
            for version in range(type(request).versions.first, newest(type(request)) + 1):
                talk.ask(request, version, label=f"{type(request).__name__} v{version}")
    finally:
        for name, level in GROUPS:
            ask(talk, "on", (name, level, UPGRADE))


TURNED_OFF = {"group.share.max.size": "204"}


@scenario(UpdateFeaturesRequest, "1-2", settings=TURNED_OFF)
def what_is_turned_off(talk: Talk) -> None:
    share = ShareGroupHeartbeatRequest(
        group_id=talk.name("share"), member_id="A" * 22, member_epoch=0, rack_id=None, subscribed_topic_names=["t"]
    )
    try:
        ask(talk, "off", ("share.version", 0, SAFE))
        talk.until(share, lambda answer: answer.error_code == ErrorCode.UNSUPPORTED_VERSION)
        talk.ask(share, label="a member")
        talk.ask(ShareFetchRequest.zero(), label="a fetch")
        talk.ask(ShareAcknowledgeRequest.zero(), label="an acknowledgement")
        ask(talk, "half", ("share.version", 1, UPGRADE))
    finally:
        ask(talk, "on", ("share.version", 2, UPGRADE))
    talk.until(share, lambda answer: answer.error_code != ErrorCode.UNSUPPORTED_VERSION)
