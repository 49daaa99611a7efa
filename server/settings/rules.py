"""Kafka's rules for settings that depend on others; and which data directories get no new partitions (KIP-1066)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ottla.replication.config import ReplicationConfig
from ottla.wire.settings import InvalidSetting

BROKEN_RULE = "requirement failed"
NAME, ALL = "cordoned.log.dirs", "*"


def cordoned_among(log_dirs: Sequence[Path], cordoned: Collection[str]) -> list[Path]:
    """Those of the data directories that the setting names."""
    named = {Path(each) for each in cordoned}
    return [each for each in log_dirs if ALL in cordoned or each in named]


def check_cordoned(cordoned: Collection[str], log_dirs: Collection[Path]) -> None:
    """Raises InvalidSetting if the setting names what is no data directory, or all and some."""
    if ALL in cordoned and len(cordoned) > 1:
        message = f"When {NAME} is set to {ALL}, it must not contain other values"
        raise InvalidSetting(NAME, cordoned, BROKEN_RULE, message=message)
    missing = [each for each in cordoned if each != ALL and Path(each) not in log_dirs]
    if missing:
        message = (
            f"All entries in {NAME} must be present in log.dirs or log.dir. Missing entries : {', '.join(missing)}"
        )
        raise InvalidSetting(NAME, cordoned, BROKEN_RULE, message=message)


def check_follower_wait(replication: ReplicationConfig) -> None:
    """Raises InvalidSetting if a follower may wait longer than others wait for it."""
    name, wait_ms = "replica.fetch.wait.max.ms", replication.replica_fetch_wait_max_ms
    if wait_ms > replication.replica_socket_timeout_ms:
        message = f"replica.socket.timeout.ms should always be at least {name} to prevent unnecessary socket timeouts"
        raise InvalidSetting(name, wait_ms, BROKEN_RULE, message=message)
    if wait_ms > replication.replica_lag_time_max_ms:
        message = (
            f"{name} should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR"
        )
        raise InvalidSetting(name, wait_ms, BROKEN_RULE, message=message)
