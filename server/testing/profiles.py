"""Profiles: a broker of the lab behaves as another release of Kafka, or as a hosted service by its documentation.

    profile = profile_of("kafka-2.8")
    settings = profile.settings              the defaults that differ, for the broker's settings
    restrictions = profile.restrictions      versions of APIs and rules for topics, for the broker's `Environment`

A profile imitates what clients see of versions, defaults and refusals. `Profile.differences` has a source for each; those with
`is_imitated=False` are documented differences that the broker does not show. A policy's refusal is POLICY_VIOLATION. Where
a service asks for three replicas the lab keeps as many as it has brokers for.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.server.imitation import NO_RESTRICTIONS, Restrictions, TopicPolicy
from ottla.server.testing.errors import LabError
from ottla.server.testing.profile_versions import (
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

PROFILE: Final = "ottla.profile"
"""Key among the settings of a lab's brokers that names their profile. Snapshots carry it so."""

MIB, GIB, DAY_MS = 1 << 20, 1 << 30, 86_400_000
TRANSACTIONS = ("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "WriteTxnMarkers")
DIRECTORIES = ("AlterReplicaLogDirs", "DescribeLogDirs")


class Difference(NamedTuple):
    """One difference from Kafka 4.4, and the document that says so."""

    text: str
    source: str
    is_imitated: bool = True
    """False: the broker of the lab does not behave so."""


class Profile(NamedTuple):
    """A release of Kafka or a hosted service to behave as: what differs from Kafka 4.4, and how the broker shows it."""

    name: str
    title: str
    differences: tuple[Difference, ...]
    restrictions: Restrictions
    """Versions of APIs and rules for topics."""
    settings: Mapping[str, str] = MappingProxyType({})
    """Broker settings in place of the defaults of Kafka 4.4."""


def profile_of(name: str) -> Profile:
    """Return the profile of a name such as "kafka-2.8". Raises LabError with the nearest names."""
    if name in PROFILES:
        return PROFILES[name]
    near = difflib.get_close_matches(name, PROFILES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the profiles are {', '.join(PROFILES)}."
    raise LabError(f"There is no profile {name!r}; {hint}")


def default_settings(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings of the profile that `settings` name, if they name one. Raises LabError."""
    return profile_of(settings[PROFILE]).settings if PROFILE in settings else {}


def restrictions_of(settings: Mapping[str, str]) -> Restrictions:
    """Return the restrictions of the profile that `settings` name, if they name one. Raises LabError."""
    return profile_of(settings[PROFILE]).restrictions if PROFILE in settings else NO_RESTRICTIONS


API_VERSIONS = "ApiVersions of a broker of this release (recorded in kafka-python's broker_version_data)"
UPGRADE = "Apache Kafka documentation, Upgrading: Notable changes in"

_NO_GROUP_PROTOCOL = {"group.coordinator.rebalance.protocols": "classic"}
_SINCE_4_0 = {"log.message.timestamp.after.max.ms": str((1 << 63) - 1), "num.recovery.threads.per.data.dir": "1"}
_BEFORE_2_0 = {
    "offsets.retention.minutes": "1440",
    "group.max.session.timeout.ms": "300000",
    "message.max.bytes": "1000012",
    "replica.lag.time.max.ms": "10000",
}
_OLD_DEFAULTS = (
    Difference(
        "offsets.retention.minutes is a day (7 days since 2.0), and group.max.session.timeout.ms 5 minutes (30 since 2.3)",
        f"{UPGRADE} 2.0.0 and in 2.3.0; KIP-186",
    ),
    Difference(
        "message.max.bytes is 1000012 (1048588 since 2.5), and replica.lag.time.max.ms 10 s (30 s since 2.5)",
        f"{UPGRADE} 2.5.0; KIP-537; KAFKA-4203",
    ),
)
_NEWER_DEFAULTS = Difference(
    "log.message.timestamp.after.max.ms has no limit (one hour since 4.0), and num.recovery.threads.per.data.dir is 1 (2 since 4.0)",
    "KIP-1030; defaults of Kafka 3.9.2 and 4.4.0",
)
_CLASSIC_GROUPS = Difference(
    "groups are of the classic protocol only; ConsumerGroupHeartbeat is UNSUPPORTED_VERSION unless it is turned on",
    "defaults of Kafka 3.9.2 (group.coordinator.rebalance.protocols); KIP-848",
)
_NO_FEATURES = Difference("no features with levels are told", f"{UPGRADE} 4.0.0; KIP-1022")


def _kafka(release: str, versions: Versions, settings: Mapping[str, str], *differences: Difference) -> Profile:
    told = Difference(f"versions of APIs: those of {release}", API_VERSIONS)
    return Profile(
        name=f"kafka-{release}",
        title=f"Apache Kafka {release}",
        differences=(told, *differences),
        settings=settings,
        restrictions=Restrictions(versions=versions, tells_features=False),
    )


CONFLUENT_TOPICS = "Confluent, Configuration Reference for Topics in Confluent Cloud"
CONFLUENT_CLUSTERS = "Confluent, Kafka Cluster Types in Confluent Cloud"
MSK_SETTINGS = "Amazon MSK Developer Guide, Configuration properties for MSK Serverless clusters"
MSK_QUOTA = "Amazon MSK Developer Guide, Amazon MSK quota (MSK Serverless quota)"
EVENT_HUBS_TIERS = "Microsoft, Compare Azure Event Hubs tiers (standard tier)"
EVENT_HUBS_LIMITS = "Microsoft, Apache Kafka troubleshooting guide for Event Hubs"
EVENT_HUBS_SETTINGS = "Microsoft, Configurations for Azure Event Hubs Apache Kafka clients"
REDPANDA_SOURCE = "Redpanda v24.3, source of the Kafka API's handlers and of the cluster properties"
WARPSTREAM_PAGE = "WarpStream, Protocol and Feature Support"
_AS_3_9 = "its documentation names no versions of APIs; those of Kafka 3.9 are told"

_CONFLUENT = Profile(
    name="confluent-cloud-basic",
    title="Confluent Cloud, Basic cluster",
    differences=(
        Difference(_AS_3_9, CONFLUENT_CLUSTERS),
        Difference("2,048 partitions at most, before replication", CONFLUENT_CLUSTERS),
        Difference("a topic has 6 partitions by default, and 3 replicas, neither more nor fewer", CONFLUENT_TOPICS),
        Difference(
            "messages of 2 MiB by default and 8 MiB at most; delete.retention.ms at most 60566400000;"
            " segment.bytes at least 50 MiB; segment.ms at least 4 hours; min.insync.replicas 1 or 2",
            CONFLUENT_TOPICS,
        ),
        Difference(
            "other topic settings than cleanup.policy, delete.retention.ms, max.compaction.lag.ms, max.message.bytes,"
            " message.timestamp.*, min.compaction.lag.ms, min.insync.replicas, retention.*, segment.bytes and segment.ms are refused",
            CONFLUENT_TOPICS,
        ),
        Difference("topics are not created by asking for them", CONFLUENT_CLUSTERS),
        Difference("limits of throughput, requests and connections", CONFLUENT_CLUSTERS, is_imitated=False),
        Difference("clients log in by SASL/PLAIN with an API key, over TLS", CONFLUENT_CLUSTERS, is_imitated=False),
    ),
    settings={
        **_SINCE_4_0,
        **_NO_GROUP_PROTOCOL,
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
            "topic settings other than cleanup.policy, compression.type, max.message.bytes, message.timestamp.difference.max.ms,"
            " message.timestamp.type, retention.bytes and retention.ms are refused, also segment.bytes, as Kafka Streams sends it",
            MSK_SETTINGS,
        ),
        Difference("cleanup.policy is fixed once the topic exists", MSK_SETTINGS),
        Difference("max.message.bytes is 8 MiB at most; retention.bytes is 250 GiB by default", MSK_SETTINGS),
        Difference("2,400 partitions at most", MSK_QUOTA),
        Difference("a topic has 3 replicas", MSK_SETTINGS),
        Difference("120 partitions of compacted topics at most", MSK_QUOTA, is_imitated=False),
        Difference("limits of throughput, connections and groups", MSK_QUOTA, is_imitated=False),
        Difference(
            "clients log in by AWS_MSK_IAM",
            "Amazon MSK Developer Guide, Security for MSK Serverless",
            is_imitated=False,
        ),
    ),
    settings={**_SINCE_4_0, **_NO_GROUP_PROTOCOL, "log.retention.bytes": str(250 * GIB)},
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
        ),
    ),
)

_EVENT_HUBS = Profile(
    name="event-hubs",
    title="Azure Event Hubs, standard tier",
    differences=(
        Difference(_AS_3_9, "Microsoft, What is Azure Event Hubs for Apache Kafka"),
        Difference("10 topics (event hubs) at most, with 32 partitions at most each", EVENT_HUBS_TIERS),
        Difference("the number of partitions of a topic is fixed", EVENT_HUBS_TIERS),
        Difference("messages of 1 MiB at most, kept for 7 days at most", EVENT_HUBS_TIERS),
        Difference("offset.metadata.max.bytes is 1024", EVENT_HUBS_LIMITS),
        Difference("no transactions", "Microsoft, Transactions in Apache Kafka for Azure Event Hubs"),
        Difference("settings of an existing topic cannot be changed by Kafka's requests", EVENT_HUBS_SETTINGS),
        Difference("compressed records are refused", EVENT_HUBS_LIMITS, is_imitated=False),
        Difference("names of groups of 256 characters at most", EVENT_HUBS_LIMITS, is_imitated=False),
        Difference("4 commits a second and partition; throughput units", EVENT_HUBS_LIMITS, is_imitated=False),
        Difference(
            "clients log in by SASL/PLAIN or OAUTHBEARER over TLS",
            "Microsoft, What is Azure Event Hubs for Apache Kafka",
            is_imitated=False,
        ),
    ),
    settings={
        **_SINCE_4_0,
        **_NO_GROUP_PROTOCOL,
        "message.max.bytes": str(MIB),
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
        Difference("versions of APIs; Metadata before topic ids, Fetch from 4 on", REDPANDA_SOURCE),
        Difference("topics are not created by asking for them", REDPANDA_SOURCE),
        Difference("batches of 1 MiB at most by default", REDPANDA_SOURCE),
        Difference("group.max.session.timeout.ms is 5 minutes", REDPANDA_SOURCE),
        Difference(
            "no users of SCRAM by Kafka's requests, no delegation tokens, no directories of logs to move",
            "Redpanda, Kafka Compatibility; source of the handlers",
        ),
        Difference("no quotas of users", "Redpanda, Kafka Compatibility", is_imitated=False),
    ),
    settings={
        **_SINCE_4_0,
        **_NO_GROUP_PROTOCOL,
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
            "only the requests of its list are served; versions of Kafka 3.9, as the list names none", WARPSTREAM_PAGE
        ),
        Difference("no moves of partitions or of logs, no elections", WARPSTREAM_PAGE),
        Difference("any broker leads every partition", WARPSTREAM_PAGE, is_imitated=False),
    ),
    settings={**_SINCE_4_0, **_NO_GROUP_PROTOCOL},
    restrictions=Restrictions(versions=WARPSTREAM, tells_features=False),
)

_ALL: Final = (
    _kafka(
        "0.10",
        KAFKA_0_10,
        {
            **_SINCE_4_0,
            **_NO_GROUP_PROTOCOL,
            **_BEFORE_2_0,
            "unclean.leader.election.enable": "true",
            "group.initial.rebalance.delay.ms": "0",
        },
        Difference(
            "records have magic 0 or 1 on the wire: no headers, no idempotent producers, no transactions", API_VERSIONS
        ),
        Difference("unclean.leader.election.enable is true (false since 0.11)", f"{UPGRADE} 0.11.0.0; KIP-106"),
        Difference("the first member of a group does not wait for others (3 s since 0.11)", "KIP-134"),
        *_OLD_DEFAULTS,
        _NEWER_DEFAULTS,
        _NO_FEATURES,
    ),
    _kafka(
        "1.1",
        KAFKA_1_1,
        {**_SINCE_4_0, **_NO_GROUP_PROTOCOL, **_BEFORE_2_0},
        Difference("no zstd (since 2.1), no static members (since 2.3), no prefixed ACLs (since 2.0)", API_VERSIONS),
        *_OLD_DEFAULTS,
        _NEWER_DEFAULTS,
        _NO_FEATURES,
    ),
    _kafka(
        "2.8",
        KAFKA_2_8,
        {**_SINCE_4_0, **_NO_GROUP_PROTOCOL},
        Difference("no ids of topics in Fetch (since 3.1), no ListTransactions (since 3.0)", API_VERSIONS),
        _NEWER_DEFAULTS,
        _NO_FEATURES,
    ),
    _kafka(
        "3.9",
        KAFKA_3_9,
        {**_SINCE_4_0, **_NO_GROUP_PROTOCOL},
        _CLASSIC_GROUPS,
        _NEWER_DEFAULTS,
        _NO_FEATURES,
    ),
    Profile(
        name="kafka-4.4",
        title="Apache Kafka 4.4",
        differences=(
            Difference(
                "Fetch 0-3 is not served, which Ottla serves beside it", "ApiVersions of a broker of Kafka 4.4.0"
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
