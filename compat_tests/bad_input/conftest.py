"""Peers that misbehave, against a real broker process: the reaction is Apache Kafka's, and nobody else notices.

In each file a bystander produces to and reads from a topic of its own on one connection. After every test it must still
be served; at the end its topic must hold exactly what was acknowledged to it. A traceback in the broker's log fails the
run when the shared broker is stopped.
"""

import os

import pytest
from compat_tests.bad_input.bystander import Bystander
from compat_tests.support.raw import Peer, fetch, response


@pytest.fixture(scope="module")
def address(broker):
    return broker.host, broker.port


@pytest.fixture(scope="module", autouse=True)
def bystander(address, broker, wait_until):
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    topic = f"bystander-{os.urandom(4).hex()}"
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    admin.close()
    thread = Bystander(address, topic)
    thread.start()
    # Its first turn loads kafka-python's messages, for which a busy machine has taken more time than a wait may.
    wait_until(lambda: thread.failure or thread.acknowledged > 1, "the bystander is served")
    yield thread
    thread.stopping.set()
    thread.join()
    assert thread.failure is None
    with Peer(address) as peer:
        peer.send(fetch(topic))
        [answer] = response("Fetch", 11, peer.receive()).responses[0].partitions
    assert answer.high_watermark == thread.acknowledged


@pytest.fixture(autouse=True)
def nobody_else_notices(bystander, wait_until):
    bystander.longest_wait_s = 0.0
    yield
    before = bystander.acknowledged
    wait_until(lambda: bystander.failure or bystander.acknowledged > before + 1, "the bystander is served")
    assert bystander.failure is None
    # Far above what is meant (a turn of the loop is 50 ms at most), so that a busy machine fails nothing.
    assert bystander.longest_wait_s < 30


@pytest.fixture
def peer(address):
    with Peer(address) as peer:
        yield peer
