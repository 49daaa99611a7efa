"""Profiles: a broker of the lab behaves as another release of Kafka, or as a hosted service by its documentation.

    profile = profile_of("kafka-2.8")
    settings = profile.settings              the defaults that differ, for the broker's settings
    restrictions = profile.restrictions      versions of APIs and rules for topics, for the broker's `Environment`

A profile imitates what clients see of versions, defaults and refusals. `Profile.differences` has a source for each; those with
`is_imitated=False` are documented differences that the broker does not show. A policy's refusal is POLICY_VIOLATION. Where
a service asks for three replicas the lab keeps as many as it has brokers for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.server.imitation import NO_RESTRICTIONS, Restrictions, TopicPolicy
from ottla.server.testing.errors import LabError, nearest
from ottla.server.testing.profiles.versions import (
    KAFKA_0_10,
    KAFKA_1_1,
    KAFKA_2_8,
    KAFKA_3_9,
    KAFKA_4_4,
    REDPANDA,
    WARPSTREAM,
    Versions,
    without,
)
from ottla.wire.errors import ErrorCode

PROFILE: Final = "ottla.profile"
"""Key among the settings of a lab's brokers that names their profile. Snapshots carry it so."""

MIB, GIB, DAY_MS = 1 << 20, 1 << 30, 86_400_000
TRANSACTIONS = ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "WriteTxnMarkers")
DIRECTORIES = ("AlterReplicaLogDirs", "DescribeLogDirs")


class Source(NamedTuple):
    """A document, and where it is on the web."""

    title: str
    url: str


class Difference(NamedTuple):
    """One difference from Kafka 4.4, and the document that says so."""

    text: str
    source: Source
    is_imitated: bool = True
    """False: the broker of the lab does not behave so."""


class Profile(NamedTuple):
    """A release of Kafka or a hosted service that brokers can behave as, and how it differs from Kafka 4.4."""

    name: str
    title: str
    differences: tuple[Difference, ...]
    restrictions: Restrictions
    """Versions of APIs and rules for topics."""
    settings: Mapping[str, str] = MappingProxyType({})
    """Broker settings in place of the defaults of Kafka 4.4."""


def profile_of(name: str) -> Profile:
    """Return a profile by its name, such as "kafka-2.8". Raises LabError with the nearest name."""
    if name in PROFILES:
        return PROFILES[name]
    hint = nearest(name, PROFILES, f"; the profiles are {', '.join(PROFILES)}.")
    raise LabError(f"There is no profile {name!r}{hint}")


def default_settings(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings of the profile that `settings` name, if they name one. Raises LabError."""
    return profile_of(settings[PROFILE]).settings if PROFILE in settings else {}


def restrictions_of(settings: Mapping[str, str]) -> Restrictions:
    """Return the restrictions of the profile that `settings` name, if they name one. Raises LabError."""
    return profile_of(settings[PROFILE]).restrictions if PROFILE in settings else NO_RESTRICTIONS


def _kip(name: str, title: str) -> Source:
    page = f"{name} {title}".replace(":", "%3A").replace(" ", "+")
    return Source(name.removesuffix(":"), f"https://cwiki.apache.org/confluence/display/KAFKA/{page}")


API_VERSIONS = Source(
    "ApiVersions answer of a broker of this release, as kafka-python has recorded it",
    "https://github.com/dpkp/kafka-python/blob/master/kafka/protocol/broker_version_data.py",
)
KIP_106 = _kip("KIP-106", "- Change Default unclean.leader.election.enabled from True to False")
KIP_134 = _kip("KIP-134:", "Delay initial consumer group rebalance")
KIP_186 = _kip("KIP-186:", "Increase offsets retention default to 7 days")
KIP_537 = _kip("KIP-537:", "Increase default zookeeper session timeout")
KIP_848 = _kip("KIP-848:", "The Next Generation of the Consumer Rebalance Protocol")
KIP_1022 = _kip("KIP-1022:", "Formatting and Updating Features")
KIP_1030 = _kip("KIP-1030:", "Change constraints and default values for various configurations")
UPGRADE_2_3 = Source(
    "Kafka's upgrade notes, notable changes in 2.3.0", "https://kafka.apache.org/23/documentation.html#upgrade"
)
KAFKA_4203 = Source("KAFKA-4203", "https://issues.apache.org/jira/browse/KAFKA-4203")

_CLASSIC_ALONE = {"group.coordinator.rebalance.protocols": "classic"}
_BEFORE_4_0 = {"log.message.timestamp.after.max.ms": str((1 << 63) - 1), "num.recovery.threads.per.data.dir": "1"}
_BEFORE_2_0 = {
    "offsets.retention.minutes": "1440",
    "group.max.session.timeout.ms": "300000",
    "message.max.bytes": "1000012",
    "replica.lag.time.max.ms": "10000",
}
_OLD_DEFAULTS = (
    Difference("`offsets.retention.minutes` is a day; 7 days since 2.0", KIP_186),
    Difference("`group.max.session.timeout.ms` is 5 minutes; 30 minutes since 2.3", UPGRADE_2_3),
    Difference("`message.max.bytes` is 1,000,012; 1,048,588 since 2.5", KAFKA_4203),
    Difference("`replica.lag.time.max.ms` is 10 s; 30 s since 2.5", KIP_537),
)
_NEWER_DEFAULTS = (
    Difference("`log.message.timestamp.after.max.ms` has no limit; one hour since 4.0", KIP_1030),
    Difference("`num.recovery.threads.per.data.dir` is 1; 2 since 4.0", KIP_1030),
    Difference(
        "ApiVersions answers list no features; `group.version` and `transaction.version` came with 4.0", KIP_1022
    ),
)


def _kafka(release: str, versions: Versions, settings: Mapping[str, str], *differences: Difference) -> Profile:
    told = Difference(f"requests are served in the versions of {release}", API_VERSIONS)
    return Profile(
        name=f"kafka-{release}",
        title=f"Apache Kafka {release}",
        differences=(told, *differences, *_NEWER_DEFAULTS),
        settings={**_BEFORE_4_0, **_CLASSIC_ALONE, **settings},
        restrictions=Restrictions(versions=versions, tells_features=False),
    )


CONFLUENT_TOPICS = Source(
    "Confluent, Configuration Reference for Topics in Confluent Cloud",
    "https://docs.confluent.io/cloud/current/topics/manage.html",
)
CONFLUENT_CLUSTERS = Source(
    "Confluent, Kafka Cluster Types in Confluent Cloud",
    "https://docs.confluent.io/cloud/current/clusters/cluster-types.html",
)
MSK_SETTINGS = Source(
    "Amazon MSK Developer Guide, Configuration properties for MSK Serverless clusters",
    "https://docs.aws.amazon.com/msk/latest/developerguide/serverless-config.html",
)
MSK_QUOTA = Source(
    "Amazon MSK Developer Guide, MSK Serverless quota",
    "https://docs.aws.amazon.com/msk/latest/developerguide/limits.html#serverless-quota",
)
MSK_ACCESS = Source(
    "Amazon MSK Developer Guide, What is MSK Serverless?",
    "https://docs.aws.amazon.com/msk/latest/developerguide/serverless.html",
)
EVENT_HUBS_TIERS = Source(
    "Microsoft, Compare Azure Event Hubs tiers", "https://learn.microsoft.com/azure/event-hubs/compare-tiers"
)
EVENT_HUBS_LIMITS = Source(
    "Microsoft, Apache Kafka troubleshooting guide for Event Hubs",
    "https://learn.microsoft.com/azure/event-hubs/apache-kafka-troubleshooting-guide",
)
EVENT_HUBS_CLIENTS = Source(
    "Microsoft, Apache Kafka client configurations for Azure Event Hubs",
    "https://learn.microsoft.com/azure/event-hubs/apache-kafka-configurations",
)
REDPANDA_HANDLERS = Source(
    "Redpanda 24.3, handlers of the Kafka API",
    "https://github.com/redpanda-data/redpanda/tree/v24.3.1/src/v/kafka/server/handlers",
)
REDPANDA_DEFAULTS = Source(
    "Redpanda 24.3, cluster properties",
    "https://github.com/redpanda-data/redpanda/blob/v24.3.1/src/v/config/configuration.cc",
)
REDPANDA_PAGE = Source("Redpanda 24.3, Kafka Compatibility", "https://docs.redpanda.com/24.3/develop/kafka-clients")
WARPSTREAM_PAGE = Source(
    "WarpStream, Protocol and Feature Support",
    "https://docs.warpstream.com/warpstream/reference/protocol-and-feature-support",
)
_AS_3_9 = "the documentation names no versions of requests; the profile serves those of Kafka 3.9"

_CONFLUENT = Profile(
    name="confluent-cloud-basic",
    title="Confluent Cloud, Basic cluster",
    differences=(
        Difference(_AS_3_9, CONFLUENT_CLUSTERS),
        Difference("all topics together have 2,048 partitions at most, replicas not counted", CONFLUENT_CLUSTERS),
        Difference("topics are not created automatically", CONFLUENT_CLUSTERS),
        Difference("a topic has 6 partitions by default", CONFLUENT_TOPICS),
        Difference("a topic has 3 replicas; any other number is refused", CONFLUENT_TOPICS),
        Difference("`max.message.bytes` is 2,097,164 by default and 8 MiB at most", CONFLUENT_TOPICS),
        Difference("`delete.retention.ms` is 60,566,400,000 at most", CONFLUENT_TOPICS),
        Difference("`segment.bytes` is 50 MiB to 1 GiB, `segment.ms` 4 hours or more", CONFLUENT_TOPICS),
        Difference("`min.insync.replicas` is 1 or 2", CONFLUENT_TOPICS),
        Difference(
            "topic settings can be given if they are `cleanup.policy`, `max.compaction.lag.ms`, `min.compaction.lag.ms`,"
            " `message.timestamp.*`, `retention.*` or one of those above; others are refused",
            CONFLUENT_TOPICS,
        ),
        Difference(
            "throughput, requests, connections and login attempts are limited", CONFLUENT_CLUSTERS, is_imitated=False
        ),
        Difference("clients need TLS 1.2 or newer, and log in with an API key", CONFLUENT_CLUSTERS, is_imitated=False),
    ),
    settings={
        **_BEFORE_4_0,
        **_CLASSIC_ALONE,
        "auto.create.topics.enable": "false",
        "num.partitions": "6",
        "message.max.bytes": "2097164",
    },
    restrictions=Restrictions(
        versions=without(KAFKA_3_9, DIRECTORIES),
        tells_features=False,
        topics=TopicPolicy(
            editable=frozenset(
                {
                    *("cleanup.policy", "delete.retention.ms", "max.compaction.lag.ms", "max.message.bytes"),
                    *("message.timestamp.type", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"),
                    *("message.timestamp.difference.max.ms", "min.compaction.lag.ms", "min.insync.replicas"),
                    *("retention.bytes", "retention.ms", "segment.bytes", "segment.ms"),
                }
            ),
            limits={
                "max.message.bytes": (None, 8 * MIB),
                "delete.retention.ms": (None, 60_566_400_000),
                "segment.bytes": (50 * MIB, GIB),
                "segment.ms": (14_400_000, None),
                "min.insync.replicas": (1, 2),
            },
            replication_factor=3,
            partitions_max=2_048,
        ),
    ),
)

_MSK_SERVERLESS = Profile(
    name="msk-serverless",
    title="Amazon MSK Serverless",
    differences=(
        Difference(_AS_3_9, MSK_QUOTA),
        Difference(
            "topic settings can be given if they are `cleanup.policy`, `compression.type`, `max.message.bytes`, `retention.bytes`,"
            " `retention.ms`, `message.timestamp.type` or `message.timestamp.difference.max.ms`; others are refused",
            MSK_SETTINGS,
        ),
        Difference("`segment.bytes` is refused, although Kafka Streams gives it to its internal topics", MSK_SETTINGS),
        Difference("`cleanup.policy` can be given only when a topic is created", MSK_SETTINGS),
        Difference("`max.message.bytes` is 8 MiB at most", MSK_SETTINGS),
        Difference("`retention.bytes` is 250 GiB by default", MSK_SETTINGS),
        Difference(
            "all topics together have 2,400 partitions at most; more are refused with INVALID_REQUEST", MSK_QUOTA
        ),
        Difference("compacted topics have 120 partitions at most", MSK_QUOTA, is_imitated=False),
        Difference("there are 500 consumer groups at most", MSK_QUOTA, is_imitated=False),
        Difference("throughput, requests and connections are limited", MSK_QUOTA, is_imitated=False),
        Difference("clients log in by IAM", MSK_ACCESS, is_imitated=False),
    ),
    settings={**_BEFORE_4_0, **_CLASSIC_ALONE, "log.retention.bytes": str(250 * GIB)},
    restrictions=Restrictions(
        versions=without(KAFKA_3_9, DIRECTORIES),
        tells_features=False,
        topics=TopicPolicy(
            editable=frozenset(
                {
                    *("compression.type", "max.message.bytes", "message.timestamp.difference.max.ms"),
                    *("message.timestamp.type", "retention.bytes", "retention.ms"),
                }
            ),
            editable_at_creation=frozenset({"cleanup.policy"}),
            limits={"max.message.bytes": (None, 8 * MIB)},
            replication_factor=3,
            partitions_max=2_400,
            partitions_error=ErrorCode.INVALID_REQUEST,
        ),
    ),
)

_EVENT_HUBS = Profile(
    name="event-hubs",
    title="Azure Event Hubs, standard tier",
    differences=(
        Difference(_AS_3_9, EVENT_HUBS_CLIENTS),
        Difference("there are 10 topics (event hubs) at most, with 32 partitions at most each", EVENT_HUBS_TIERS),
        Difference("a topic keeps the number of partitions that it was created with", EVENT_HUBS_TIERS),
        Difference("records are kept for 7 days at most", EVENT_HUBS_TIERS),
        Difference("a batch has 1 MiB at most", EVENT_HUBS_TIERS),
        Difference("a request of more than 1,046,528 bytes ends its connection", EVENT_HUBS_CLIENTS),
        Difference("`session.timeout.ms` is 6 s to 5 minutes", EVENT_HUBS_CLIENTS),
        Difference("there are no transactions", EVENT_HUBS_CLIENTS),
        Difference("settings of an existing topic cannot be changed by Kafka's requests", EVENT_HUBS_CLIENTS),
        Difference("the metadata of a committed offset have 1,024 bytes at most", EVENT_HUBS_LIMITS),
        Difference(
            "compressed records are refused unless they are compressed by gzip", EVENT_HUBS_CLIENTS, is_imitated=False
        ),
        Difference("names of groups have 256 characters at most", EVENT_HUBS_LIMITS, is_imitated=False),
        Difference("offsets of a partition can be committed 4 times a second", EVENT_HUBS_LIMITS, is_imitated=False),
        Difference("throughput is limited by throughput units", EVENT_HUBS_TIERS, is_imitated=False),
        Difference("clients need TLS, and log in by PLAIN or OAUTHBEARER", EVENT_HUBS_CLIENTS, is_imitated=False),
    ),
    settings={
        **_BEFORE_4_0,
        **_CLASSIC_ALONE,
        "message.max.bytes": str(MIB),
        "socket.request.max.bytes": "1046528",
        "group.max.session.timeout.ms": "300000",
        "offset.metadata.max.bytes": "1024",
    },
    restrictions=Restrictions(
        versions=without(KAFKA_3_9, (*TRANSACTIONS, *DIRECTORIES)),
        tells_features=False,
        topics=TopicPolicy(
            editable=frozenset(),
            editable_at_creation=frozenset({"retention.ms", "cleanup.policy", "max.message.bytes"}),
            limits={"retention.ms": (1, 7 * DAY_MS), "max.message.bytes": (None, MIB)},
            partitions_of_topic_max=32,
            topics_max=10,
            grows=False,
        ),
    ),
)

_REDPANDA = Profile(
    name="redpanda",
    title="Redpanda 24.3",
    differences=(
        Difference(
            "requests are served in Redpanda's versions: Metadata up to 8 (no topic ids), Fetch 4 to 11",
            REDPANDA_HANDLERS,
        ),
        Difference(
            "there are no delegation tokens, and partitions cannot move between log directories", REDPANDA_HANDLERS
        ),
        Difference("users of SCRAM cannot be managed by Kafka's requests", REDPANDA_PAGE),
        Difference("topics are not created automatically", REDPANDA_DEFAULTS),
        Difference("a batch has 1 MiB at most by default", REDPANDA_DEFAULTS),
        Difference("`group.max.session.timeout.ms` is 5 minutes", REDPANDA_DEFAULTS),
        Difference("there are no quotas of users, only of client ids", REDPANDA_PAGE, is_imitated=False),
    ),
    settings={
        **_BEFORE_4_0,
        **_CLASSIC_ALONE,
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(MIB),
        "group.max.session.timeout.ms": "300000",
    },
    restrictions=Restrictions(versions=REDPANDA, tells_features=False),
)

_WARPSTREAM = Profile(
    name="warpstream",
    title="WarpStream",
    differences=(
        Difference(
            "requests are served if WarpStream lists them; partitions cannot be moved, nor leaders elected",
            WARPSTREAM_PAGE,
        ),
        Difference("the list names no versions of requests; the profile serves those of Kafka 3.9", WARPSTREAM_PAGE),
        Difference("every broker serves every partition; there are no leaders", WARPSTREAM_PAGE, is_imitated=False),
    ),
    settings={**_BEFORE_4_0, **_CLASSIC_ALONE},
    restrictions=Restrictions(versions=WARPSTREAM, tells_features=False),
)

_ALL: Final = (
    _kafka(
        "0.10",
        KAFKA_0_10,
        {**_BEFORE_2_0, "unclean.leader.election.enable": "true", "group.initial.rebalance.delay.ms": "0"},
        Difference("records have magic 0 or 1 on the wire, so they have no headers", API_VERSIONS),
        Difference("there are no idempotent producers and no transactions", API_VERSIONS),
        Difference("`unclean.leader.election.enable` is true; false since 0.11", KIP_106),
        Difference("the first member of a group does not wait for others; 3 s since 0.11", KIP_134),
        *_OLD_DEFAULTS,
    ),
    _kafka(
        "1.1",
        KAFKA_1_1,
        _BEFORE_2_0,
        Difference("there is no zstd (since 2.1), no static member (2.3), no prefixed ACL (2.0)", API_VERSIONS),
        *_OLD_DEFAULTS,
    ),
    _kafka(
        "2.8",
        KAFKA_2_8,
        {},
        Difference("Fetch names topics and no ids (since 3.1), and there is no ListTransactions (3.0)", API_VERSIONS),
    ),
    _kafka(
        "3.9",
        KAFKA_3_9,
        {},
        Difference(
            "groups have the classic protocol alone; ConsumerGroupHeartbeat is answered with UNSUPPORTED_VERSION",
            KIP_848,
        ),
    ),
    Profile(
        name="kafka-4.4",
        title="Apache Kafka 4.4",
        differences=(
            Difference(
                "Fetch versions 0 to 3 are not served, which Ottla serves without a profile",
                Source(
                    "Kafka 4.4, FetchRequest.json",
                    "https://github.com/apache/kafka/blob/4.4/clients/src/main/resources/common/message/FetchRequest.json",
                ),
            ),
        ),
        restrictions=Restrictions(versions=KAFKA_4_4),
    ),
    _CONFLUENT,
    _MSK_SERVERLESS,
    _EVENT_HUBS,
    _REDPANDA,
    _WARPSTREAM,
)

PROFILES: Final[Mapping[str, Profile]] = MappingProxyType({each.name: each for each in _ALL})
"""All profiles by name."""
