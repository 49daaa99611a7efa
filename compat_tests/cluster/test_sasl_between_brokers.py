"""Brokers log in at each other: three of Ottla by SCRAM, and Ottla beside Apache Kafka 3.9 by PLAIN."""

from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.cluster.secured import (
    BY_PLAIN,
    BY_SCRAM,
    OttlaWithUser,
    made,
    port_of,
    running,
    settings_of,
    works,
)
from compat_tests.support.brokers import OttlaProcess
from compat_tests.support.raw import Peer

SETTINGS = settings_of("SASL_PLAINTEXT")


@pytest.mark.long
def test_three_brokers_log_in_by_scram(tmp_path: Path) -> None:
    with running(made(tmp_path, [OttlaWithUser] * 3, SETTINGS | BY_SCRAM)) as cluster:
        works(cluster, "scram")
        # Nobody comes in there without a login.
        with (
            pytest.raises((AssertionError, OSError)),
            Peer(("127.0.0.1", port_of(cluster.brokers[0])), timeout_s=5) as peer,
        ):
            peer.call("Metadata", 12, topics=[])


def test_ottla_and_kafka_log_in_at_each_other(tmp_path: Path) -> None:
    with running(made(tmp_path, [ApacheKafka3, OttlaProcess, OttlaProcess], SETTINGS | BY_PLAIN)) as cluster:
        works(cluster, "plain")
