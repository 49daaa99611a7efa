"""Real producers whose network breaks a connection and delivers what was on it when their transaction is over.

`differential/scenarios/delayed_transactions.py` asks the same directly, of both brokers.
"""

import contextlib
import itertools

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")
pytest.importorskip("aiokafka")
from compat_tests.clients.transactional import Aiokafka, Java, KafkaPython, Librdkafka, committed, read
from compat_tests.support.brokers import free_port
from compat_tests.support.late import LateWay

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

KINDS = (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest)
AN_EPOCH_FOR_EACH_TRANSACTION = 5
"""From this version of EndTxn on."""


@pytest.fixture
def way(start_broker):
    """Leads to a broker that knows no other address of its own."""
    port = free_port()
    way = LateWay(port)
    broker = start_broker({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{way.port}"}, port=port)
    with contextlib.closing(way):
        way.bootstrap = broker.bootstrap
        yield way


@pytest.fixture(params=[Librdkafka, KafkaPython, Aiokafka, Java])
def producer(request, way, unique):
    more = [request.getfixturevalue("coordinated")] if request.param is Java else []
    with contextlib.closing(request.param(*more, f"127.0.0.1:{way.port}", unique("id"))) as producer:
        yield producer


def error_codes(answer):
    """Of EndTxn, or of each partition of a TxnOffsetCommit."""
    partitions = [each for topic in getattr(answer, "topics", ()) for each in topic.partitions]
    return {each.error_code for each in partitions or [answer]}


def test_what_comes_late_changes_no_other_transaction(way, producer, make_topic, unique):
    topic, group, kept = make_topic(servers=f"127.0.0.1:{way.port}"), unique("group"), []

    def transaction(value, offset=None):
        producer.begin()
        producer.send(topic, value)
        if offset is not None:
            producer.send_offset(topic, offset, group)
        producer.commit()
        kept.append(value)

    transaction(b"before", 1)
    have_epochs = way.versions[EndTxnRequest.api_key] >= AN_EPOCH_FOR_EACH_TRANSACTION
    for number, (kind, doubled) in enumerate(itertools.product(KINDS, (False, True))):
        if have_epochs and kind in (AddPartitionsToTxnRequest, AddOffsetsToTxnRequest):
            continue  # no client asks for these then; the broker does, and Kafka asks itself over the same way
        late = way.keep(kind, doubled=doubled)
        transaction(b"%d-asked-twice" % number, 10 + number)
        if have_epochs:
            producer.begin()
            producer.send(topic, b"%d-aborted" % number)
            fenced = {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
            assert (codes := error_codes(late.deliver())) <= fenced, (kind, doubled, codes)
            # It is still open.
            assert read(way.bootstrap, topic, until=kept[-1]) == kept
            producer.abort()
        else:
            # The next one has the same epoch: what came while it is open would belong to it, with Kafka as well.
            late.deliver()
        transaction(b"%d-behind" % number)
        assert committed(way.bootstrap, topic, group) == 10 + number
    assert read(way.bootstrap, topic, until=kept[-1]) == kept
