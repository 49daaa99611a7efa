import pytest

from ottla.replication.config import LogConfig
from ottla.wire.settings import InvalidSetting, settings_of


def test_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert config.retention_ms == 604_800_000
    assert config.segment_bytes == 1 << 30
    assert config.max_message_bytes == 1_048_588
    assert config.flush_messages == 2**63 - 1
    assert config.message_timestamp_after_max_ms == 3_600_000
    assert config.is_deleting
    assert not config.is_compacted
    assert len(settings_of(LogConfig)) == 41


def test_overrides_are_parsed_and_laid_over() -> None:
    config = LogConfig(retention_ms=7).with_overrides({"cleanup.policy": "compact, delete", "segment.ms": "1000"})
    assert (config.retention_ms, config.segment_ms) == (7, 1000)
    assert config.is_compacted
    assert config.is_deleting
    assert LogConfig().with_overrides({"cleanup.policy": ""}).cleanup_policy == ()
    base = LogConfig()
    assert base.with_overrides({}) is base


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("foo", "1", "Unknown topic config name: foo"),
        ("retention.ms", "-5", "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
        (
            "segment.bytes",
            "100",
            "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "leader.replication.throttled.replicas",
            "abc",
            (
                "Invalid value [abc] for configuration leader.replication.throttled.replicas: "
                "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following "
                "format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        ),
        (
            "remote.storage.enable",
            "true",
            (
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            ),
        ),
    ],
)
def test_what_a_topic_cannot_have_is_refused_in_kafkas_words(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as failure:
        LogConfig().with_overrides({name: text})
    assert str(failure.value) == message


def test_compaction_lags_must_not_contradict_each_other() -> None:
    with pytest.raises(InvalidSetting) as failure:
        LogConfig().with_overrides({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})
    assert str(failure.value) == ("conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)")


@pytest.mark.parametrize("replicas", ["*", "0:1,1:2", ""])
def test_throttled_replicas_are_pairs_or_a_star(replicas: str) -> None:
    assert LogConfig().with_overrides({"follower.replication.throttled.replicas": replicas})
