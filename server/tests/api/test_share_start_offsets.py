"""Start offsets of groups by share.auto.offset.reset; a group's settings by Kafka's names."""

from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.share.partition.state import ShareGroupSettings
from ottla.replication.partition.reading import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.server.api.share.share_partition_leader import timestamp_of


def test_what_is_looked_up() -> None:
    assert timestamp_of("earliest", 1_000) == EARLIEST_TIMESTAMP
    assert timestamp_of("latest", 1_000) == LATEST_TIMESTAMP
    assert timestamp_of("by_duration:PT1S", 5_000) == 4_000
    assert timestamp_of("by_duration:P1D", 5_000) == 0


def test_a_group_has_settings_of_its_own() -> None:
    own = GroupSettings(
        share_record_lock_duration_ms=15_000,
        share_delivery_count_limit=7,
        share_partition_max_record_locks=100,
        share_auto_offset_reset="by_duration:PT1H",
        share_isolation_level="read_committed",
        share_renew_acknowledge_enable=False,
        errors_deadletterqueue_topic_name="dlq.x",
        errors_deadletterqueue_copy_record_enable=True,
    )
    assert ShareGroupSettings.of(own) == ShareGroupSettings(
        record_lock_duration_ms=15_000,
        delivery_count_limit=7,
        partition_max_record_locks=100,
        auto_offset_reset="by_duration:PT1H",
        reads_committed=True,
        may_renew=False,
        dead_letter_topic="dlq.x",
        copies_dead_letters=True,
    )
    assert ShareGroupSettings.of(GroupSettings()) == ShareGroupSettings()
