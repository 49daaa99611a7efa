"""The differences from Apache Kafka that are meant, each with its reason. `test_differential.py` finds those nobody needs."""

from compat_tests.differential.comparison import Allowed

NO_QUORUM = (
    "a broker that is alone has no metadata quorum; it says so, where Kafka describes the quorum of its controllers"
)

ALLOWED: list[Allowed] = [
    Allowed(
        "incremental_alter_configs/operations_that_are_none",
        r"main operation (4|-1|127) responses\[0\]\.error_(code|message)",
        "Kafka's controller meets a null pointer and answers UNKNOWN_SERVER_ERROR",
    ),
    Allowed(
        "consumer_groups/patterns",
        r"member comes error_message",
        "RE2/J and RE2 describe the same mistakes in different words",
    ),
    Allowed(
        "consumer_groups/descriptions",
        r"main describe groups\[[12]\].*",
        "Kafka describes a group as often as it is named; a short request could have an answer of gigabytes",
    ),
    Allowed(
        "client_metrics/values",
        r"main match='client_id=a\*\+' responses\[0\]\.error_(code|message)",
        "patterns are those of RE2, whose time is bounded, as everywhere else in Kafka; here it takes Java's, and this quantifier",
    ),
    Allowed(
        "topic_configs/long_values",
        r"main 32767 characters for retention\.ms responses\[0\]\.error_(code|message)",
        "Kafka's message is too long for its own protocol, which makes it UNKNOWN_SERVER_ERROR; Ottla shortens it",
    ),
    Allowed(
        "broker_configs/values_that_cannot_be",
        r"main (max\.connections\.per\.ip\.overrides='x'|log\.cleaner\.threads='0') .*\.error_message",
        "Kafka tells the message of a Java exception that nobody foresaw",
    ),
    Allowed(
        "broker_configs/every_setting",
        r"main this broker results\[0\]\.configs\[node\.id\]\.synonyms\[1\]",
        "Ottla starts without a node.id, so that the setting has a default",
    ),
    Allowed(
        "record_batches/lengths_of_compressed_records",
        r"length .* (error_code|base_offset)",
        "Kafka does not look at the lengths of compressed records; such a batch would stop every consumer that reads it",
    ),
    Allowed(
        "record_batches/records_of_*",
        r"length in ten bytes error_code",
        "Kafka answers UNKNOWN_SERVER_ERROR to this one malformed record, because nobody catches the exception there",
        ottla=87,
    ),
    Allowed(
        "record_batches/records_of_*",
        r"in the log records\[0\]\[4\]\[0\]\[0\]",  # the key of a header
        "where Kafka compresses anew, header keys that are not UTF-8 lose their bytes; Ottla keeps what was sent",
    ),
    Allowed(
        "produce/null_records",
        r"main hears nothing yet ",
        "Kafka never answers this request (a null pointer while it makes up the answer); Ottla refuses it",
    ),
    Allowed(
        "fetch/*records*",
        r"main .* responses\[0\]\.partitions\[0\]\.records\[\d\]",
        "where records grow as they are converted down, Kafka cuts the last ones off at their former size; they come next",
    ),
    Allowed(
        "transactional_records/committed_records",
        r"main a batch alone .*\.aborted_transactions\[1\]",
        "Kafka names the aborted transactions up to the next index entry, Ottla those of the records that it sends",
    ),
    Allowed(
        "api_versions/*",
        r"main .* api_keys\[1\]\.min_version",  # of Fetch
        "the oldest Fetch requests are still served, which Kafka 3.9 did and 4 does not",
        ottla=0,
    ),
    Allowed(
        "api_versions/*",
        r"main .* (supported_features|finalized_features).*",
        "Kafka's features of its metadata log (metadata.version, kraft.version) mean nothing here",
    ),
    Allowed(
        "quorum/the_quorum",
        r"main DescribeQuorum (error_code|error_message|topics\[0\]|nodes\[0\])",
        NO_QUORUM,
    ),
    Allowed(
        "rights_to_the_quorum/describing_a_quorum_of_another_name",
        r"with all DescribeQuorum (error_code|error_message|topics\[0\])",
        NO_QUORUM,
    ),
    Allowed(
        "group_listing/groups_named_twice",
        r"main describe groups\[[123]\].*",
        "a group is described once, however often it is named, so that a small request cannot ask for a huge answer",
    ),
    Allowed(
        "offset_fetch/everything_twice",
        r"main OffsetFetch groups\[2\]",
        "all offsets of a group are given once, however often they are asked for: as above",
    ),
    Allowed(
        "*/a_member_*",
        r"\w+Rebalance follower hears nothing yet ",
        "Kafka never answers a join or a sync that the same member's next one displaces, nor the sync of one that left",
    ),
    Allowed(
        "join/protocols_listed_twice",
        r"(member|main) .*(protocol_name|protocol_data|metadata)",
        "in Kafka nobody can work with a protocol that somebody lists twice, by accident; in Ottla the first one counts",
    ),
    Allowed(
        "regressions/ConsumerGroupHeartbeat_ConsumerGroupHeartbeat_1d3962ab",
        r"main ConsumerGroupHeartbeat v0 assignment\.topic_partitions\[0\]",
        "Kafka looks for the target of a member under its instance id, which it has not noted yet if the member takes it while it"
        " is in; such a member, which no client is, is given no partition until the next assignment, and nobody reads its own",
    ),
    Allowed(
        "regressions/*",
        r"main ShareFetch v\d responses\[\d\]\.partitions\[\d\]\.error_code",
        "Kafka answers a fetch that does not wait before it has found that nobody has begun the share partition's state",
        ottla=-1,
    ),
]
