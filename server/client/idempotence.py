"""Who a producer is, so that leaders know a batch that comes again (KIP-98): its id, and a sequence for each partition.

A leader remembers the last five batches of a producer. So a batch whose answer was lost may be sent again, and is written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.server.client.cluster import Cluster
from ottla.server.client.connection import BrokerConnection
from ottla.server.client.failures import WrongUse
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

SETTING, ALL = "enable.idempotence", -1
SEQUENCES = 1 << 31  # they begin again at 0 after the highest
NEVER_MS = (1 << 31) - 1  # there is no transaction that could time out


class Place(NamedTuple):
    """What a batch says of its producer: id, epoch, and the sequence of its first record."""

    producer_id: int
    epoch: int
    sequence: int


class Sequences:
    """One producer."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        self._next: dict[int, int] = {}

    def take(self, partition: int, count: int) -> Place:
        """For the next batch of a partition, with so many records. It has to be written before the one after it."""
        sequence = self._next.get(partition, 0)
        self._next[partition] = (sequence + count) % SEQUENCES
        return Place(self._producer_id, self._epoch, sequence)


def begun(cluster: Cluster, texts: Mapping[str, str], acks: int) -> Sequences | None:
    """A producer as the settings want it; None: one that nobody knows. WrongUse, AskingFailed.

    As Kafka's producer it is known by default, where all in-sync replicas acknowledge and the cluster allows it.
    """
    wanted = texts.get(SETTING, "").lower()
    if wanted not in ("", "true", "false"):
        raise WrongUse(f"{SETTING}={wanted}: must be true or false")
    is_demanded = wanted == "true"
    if is_demanded and acks != ALL:
        raise WrongUse(f"{SETTING}=true needs --acks all")
    if wanted == "false" or acks != ALL:
        return None
    return cluster.patiently(lambda: cluster.ask_any(lambda broker: _asked(cluster, broker, is_demanded)))


def _asked(cluster: Cluster, broker: BrokerConnection, is_demanded: bool) -> Sequences | None:
    if not is_demanded and InitProducerIdRequest.api_key not in broker.versions:
        return None  # it is older than Kafka 0.11
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NEVER_MS)
    answer: InitProducerIdResponse = broker.ask(request)
    # Before Kafka 2.8 a right of its own was needed.
    if not is_demanded and answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return None
    cluster.check("a producer id", answer.error_code)
    return Sequences(answer.producer_id, answer.producer_epoch)
