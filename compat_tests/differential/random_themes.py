"""What random sequences are about. One random request alone says little where answers depend on what was said before.

A theme has *lines*: requests that fit each other, as members and producers would send them. A step is such a line, in which
now and then one or two fields are replaced by any of their values, or it is a request of which every field was drawn.
In a line a tuple stands for a choice. Symbols follow the conversation: `<epoch>` is what the last heartbeat of this member
was answered, `<producer>` and `<producer epoch>` what this transactional id was given last, and so on.
"""

from typing import Any, NamedTuple

from compat_tests.differential.random_values import PLAIN, STATEFUL, TWO_PARTS, topologies

Line = tuple[str, dict[str, Any]]
GROUP = ("<group>", "<group>", "<group>", "<other group>")
NAME = ("a", "a", "b")
ID = ("<first id>", "<first id>", "<first id>", "<second id>")
GROUP_REQUESTS = ("DeleteGroups", "DescribeGroups", "ListGroups", "OffsetFetch", "OffsetDelete", "OffsetCommit")


class Theme(NamedTuple):
    """`opening`: the lines that most sequences begin with. `others`: requests that are drawn freely."""

    opening: tuple[Line, ...]
    lines: tuple[Line, ...]
    others: tuple[str, ...]
    steps_max: int = 12


# --- transactions -----------------------------------------------------------------------------------------------------

itself = {"transactional_id": ID, "producer_id": "<producer>", "producer_epoch": "<producer epoch>"}
places = [{"name": ("<one>", "<two>"), "partitions": ([0], [0], [0, 1])}]
in_old_words = {f"v3_and_below_{name}": value for name, value in itself.items()} | {"v3_and_below_topics": places}
offset = {"partition_index": 0, "committed_offset": (3, 4), "committed_leader_epoch": -1, "committed_metadata": "words"}
offsets_of_one = [{"name": "<one>", "topic_id": "<id of one>", "partitions": [offset]}]
transactional_batch = {
    "values": (1, 2),
    "key": True,
    "time": 1000,
    "codec": 0,
    "flags": (16, 16, 16, 0),
    "producer": {"producer_id": "<producer>", "producer_epoch": "<producer epoch>", "base_sequence": "<sequence>"},
    "wrong": {},
}
place = ("<one>", "<id of one>"), ("<one>", "<id of one>"), ("<two>", "<id of two>")
offered = tuple(
    [{"name": name, "topic_id": topic_id, "partition_data": [{"index": 0, "records": transactional_batch}]}]
    for name, topic_id in place
)
fetched = {
    "partition": 0,
    "current_leader_epoch": -1,
    "fetch_offset": (0, 0, 3, 5, 6),
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
    "partition_max_bytes": 1 << 20,
}
marker = {
    "producer_id": "<producer>",
    "producer_epoch": ("<producer epoch>", "<producer epoch + 1>"),
    "transaction_result": (True, False),
    "topics": [{"name": "<one>", "partition_indexes": [0]}],
    "coordinator_epoch": 0,
    "transaction_version": (0, 1, 2),
}
begin = {"transactional_id": ID, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
first_id = {"transactional_id": "<first id>"}
adds_places = in_old_words | {"v3_and_below_transactional_id": "<first id>"}
adds_places |= {"transactions": [itself | first_id | {"verify_only": False, "topics": places}]}
TRANSACTIONS = Theme(
    (("InitProducerId", begin | first_id), ("AddPartitionsToTxn", adds_places)),
    (
        *[("InitProducerId", begin)] * 3,
        ("InitProducerId", itself | {"transaction_timeout_ms": 60_000}),
        (
            "AddPartitionsToTxn",
            in_old_words | {"transactions": [itself | {"verify_only": (False, False, True), "topics": places}]},
        ),
        (
            "AddPartitionsToTxn",
            in_old_words | {"transactions": [itself | {"verify_only": (False, False, True), "topics": places}]},
        ),
        ("AddOffsetsToTxn", itself | {"group_id": GROUP}),
        *[("EndTxn", itself | {"committed": (True, False)})] * 3,
        (
            "TxnOffsetCommit",
            itself
            | {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
            | {"topics": offsets_of_one},
        ),
        *[
            ("Produce", {"transactional_id": ID, "acks": -1, "timeout_ms": 10_000, "topic_data": each})
            for each in offered
        ],
        (
            "Fetch",
            {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": (1, 1, 0)}
            | {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
            | {"topics": [{"topic": "<one>", "topic_id": "<id of one>", "partitions": [fetched]}]},
        ),
        ("DescribeProducers", {"topics": [{"name": ("<one>", "<two>"), "partition_indexes": [0]}]}),
        ("DescribeTransactions", {"transactional_ids": ["<first id>", "<second id>"]}),
        (
            "ListTransactions",
            {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None},
        ),
        ("WriteTxnMarkers", {"markers": [marker]}),
    ),
    (
        *(
            "InitProducerId",
            "AddPartitionsToTxn",
            "AddOffsetsToTxn",
            "EndTxn",
            "TxnOffsetCommit",
            "DescribeTransactions",
        ),
        *("ListTransactions", "DescribeProducers", "WriteTxnMarkers", "OffsetFetch", "ListOffsets", "OffsetDelete"),
    ),
)

# --- consumer groups --------------------------------------------------------------------------------------------------

consumer = {"group_id": GROUP, "member_id": NAME, "instance_id": None, "rack_id": None}
says_nothing = {
    "rebalance_timeout_ms": -1,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}
comes = {
    "member_epoch": 0,
    "rebalance_timeout_ms": 30_000,
    "subscribed_topic_names": (["<two>"], ["<two>"], ["<one>", "<two>"]),
    "subscribed_topic_regex": None,
    "server_assignor": ("range", "range", None),
    "topic_partitions": [],
}
committed = {
    "group_id": GROUP,
    "generation_id_or_member_epoch": "<epoch>",
    "member_id": NAME,
    "group_instance_id": None,
    "topics": offsets_of_one,
}
CONSUMER_GROUPS = Theme(
    (("ConsumerGroupHeartbeat", consumer | comes | {"group_id": "<group>"}),),
    (
        *[("ConsumerGroupHeartbeat", consumer | comes)] * 3,
        ("ConsumerGroupHeartbeat", consumer | comes | {"instance_id": "instance"}),
        *[("ConsumerGroupHeartbeat", consumer | says_nothing | {"member_epoch": "<epoch>"})] * 2,
        *[
            (
                "ConsumerGroupHeartbeat",
                consumer | says_nothing | {"member_epoch": "<epoch>", "topic_partitions": "<assigned>"},
            )
        ]
        * 3,
        ("ConsumerGroupHeartbeat", consumer | says_nothing | {"member_epoch": (-1, -1, -2)}),
        ("ConsumerGroupHeartbeat", consumer | says_nothing | {"member_epoch": -2, "instance_id": "instance"}),
        (
            "ConsumerGroupDescribe",
            {"group_ids": ["<group>", "<other group>"], "include_authorized_operations": (False, True)},
        ),
        ("OffsetCommit", committed),
        ("TxnOffsetCommit", committed | {"transactional_id": "<first id>", "producer_id": -1, "producer_epoch": -1}),
    ),
    (
        *("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup"),
        *("ShareGroupHeartbeat", "ShareGroupDescribe", "StreamsGroupDescribe", *GROUP_REQUESTS),
    ),
)

# --- share groups -----------------------------------------------------------------------------------------------------

sharer = {"group_id": GROUP, "member_id": NAME, "rack_id": None}
said = {"first_offset": (0, 0, 1, 2, 3), "last_offset": (0, 1, 2, 4, 5), "acknowledge_types": ([1], [2], [3])}
unshared = {"partition_index": 0, "acknowledgement_batches": []}
shared = {"partition_index": 0, "acknowledgement_batches": ([], [], [], [said])}
session = {"group_id": "<group>", "member_id": NAME, "share_session_epoch": "<share epoch>", "is_renew_ack": False}
fetches = {
    "max_wait_ms": 0,
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "max_records": (500, 500, 2),
    "batch_size": 500,
    "share_acquire_mode": (0, 0, 0, 1),
    "topics": [{"topic_id": "<id of one>", "partitions": [shared]}],
    "forgotten_topics_data": [],
}
acknowledged = {"topics": [{"topic_id": "<id of one>", "partitions": [shared | {"acknowledgement_batches": [said]}]}]}
altered = [{"topic_name": ("<one>", "<two>"), "partitions": [{"partition_index": 0, "start_offset": (0, 1, 3)}]}]
SHARE_GROUPS = Theme(
    (("ShareFetch", session | fetches | {"topics": [{"topic_id": "<id of one>", "partitions": [unshared]}]}),),
    (
        *[
            (
                "ShareGroupHeartbeat",
                sharer | {"member_epoch": 0, "subscribed_topic_names": (["<one>"], ["<one>"], ["<compacted>"])},
            )
        ]
        * 2,
        *[
            (
                "ShareGroupHeartbeat",
                sharer | {"member_epoch": ("<epoch>", "<epoch>", -1), "subscribed_topic_names": None},
            )
        ]
        * 2,
        ("ShareGroupHeartbeat", sharer | {"member_epoch": -1, "subscribed_topic_names": None}),
        (
            "ShareGroupDescribe",
            {"group_ids": ["<group>", "<other group>"], "include_authorized_operations": (False, True)},
        ),
        *[("ShareFetch", session | fetches)] * 5,
        *[("ShareAcknowledge", session | acknowledged)] * 3,
        ("ShareFetch", session | fetches | {"share_session_epoch": -1}),
        ("AlterShareGroupOffsets", {"group_id": GROUP, "topics": altered}),
        ("DeleteShareGroupOffsets", {"group_id": GROUP, "topics": [{"topic_name": ("<one>", "<two>")}]}),
        ("DescribeShareGroupOffsets", {"groups": [{"group_id": GROUP, "topics": None}]}),
    ),
    (
        *("ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge", "DescribeShareGroupOffsets"),
        *("AlterShareGroupOffsets", "DeleteShareGroupOffsets", "ConsumerGroupHeartbeat", *GROUP_REQUESTS),
    ),
)

state_of = {"partition": (0, 0, 1), "leader_epoch": (0, 0, 1, -1)}
batch = {"first_offset": (0, 1, 2), "last_offset": (2, 4, 6), "delivery_state": (0, 2, 4), "delivery_count": (1, 2)}
written = state_of | {
    "state_epoch": (0, 1, 2),
    "start_offset": (0, 1, 3, -1),
    "delivery_complete_count": (0, 1, -1),
    "state_batches": ([], [batch], [batch], [batch, batch]),
}


def _of_state(*partitions: dict[str, Any]) -> dict[str, Any]:
    return {"group_id": GROUP, "topics": [{"topic_id": ("<id of one>", "<id of two>"), "partitions": list(partitions)}]}


begun = {"partition": (0, 0, 1), "state_epoch": (0, 1, 2), "start_offset": (0, 1, -1)}
SHARE_STATE = Theme(
    (("InitializeShareGroupState", _of_state(begun)),),
    (
        *[("InitializeShareGroupState", _of_state(begun))] * 2,
        *[("WriteShareGroupState", _of_state(written))] * 4,
        *[("ReadShareGroupState", _of_state(state_of))] * 2,
        *[("ReadShareGroupStateSummary", _of_state(state_of))] * 2,
        ("DeleteShareGroupState", _of_state({"partition": (0, 0, 1)})),
    ),
    (
        *("InitializeShareGroupState", "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState"),
        "ReadShareGroupStateSummary",
    ),
)

# --- streams groups ---------------------------------------------------------------------------------------------------

streamer = {"group_id": GROUP, "member_id": NAME, "instance_id": None, "rack_id": None, "endpoint_information_epoch": 0}
says_nothing_new = {
    "rebalance_timeout_ms": -1,
    **dict.fromkeys(("topology", "active_tasks", "standby_tasks", "warmup_tasks", "process_id", "user_endpoint")),
    **dict.fromkeys(("client_tags", "task_offsets", "task_end_offsets")),
    "shutdown_application": False,
}
arrives = says_nothing_new | {
    "member_epoch": 0,
    "rebalance_timeout_ms": 30_000,
    "topology": (PLAIN, PLAIN, TWO_PARTS, STATEFUL, *topologies[3:5]),
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
    "process_id": ("process", "another"),
    "client_tags": [],
}
does_as_told = {"active_tasks": "<active_tasks>", "standby_tasks": "<standby_tasks>", "warmup_tasks": "<warmup_tasks>"}
stays = streamer | says_nothing_new | {"member_epoch": "<epoch>"}
STREAMS_GROUPS = Theme(
    (("StreamsGroupHeartbeat", streamer | arrives | {"group_id": "<group>"}),),
    (
        *[("StreamsGroupHeartbeat", streamer | arrives)] * 3,
        ("StreamsGroupHeartbeat", streamer | arrives | {"instance_id": "instance"}),
        ("StreamsGroupHeartbeat", stays),
        *[("StreamsGroupHeartbeat", stays | does_as_told)] * 3,
        ("StreamsGroupHeartbeat", stays | {"member_epoch": (-1, -1, -2)}),
        ("StreamsGroupHeartbeat", stays | {"member_epoch": -2, "instance_id": "instance"}),
        (
            "StreamsGroupDescribe",
            {"group_ids": ["<group>", "<other group>"], "include_authorized_operations": (False, True)},
        ),
        ("OffsetCommit", committed),
    ),
    (
        *("StreamsGroupHeartbeat", "StreamsGroupDescribe", "StreamsGroupTopologyDescriptionUpdate", "JoinGroup"),
        *("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", *GROUP_REQUESTS),
    ),
)

THEMES = {
    "transactions": TRANSACTIONS,
    "consumer groups": CONSUMER_GROUPS,
    "share groups": SHARE_GROUPS,
    "share state": SHARE_STATE,
    "streams groups": STREAMS_GROUPS,
}
