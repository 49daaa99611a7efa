"""The clients and the brokers of the security rows do what the rows say."""

import pytest
from benchmarks.logins import by_scram, over_tls, run
from benchmarks.secured import PROTOCOLS, RuledOttla, SecuredKafka, add_quotas, add_rules, add_user, properties
from confluent_kafka import Producer


@pytest.fixture(scope="module")
def ruled(tmp_path_factory):
    broker = RuledOttla(tmp_path_factory.mktemp("ruled") / "broker").start()
    try:
        add_user(broker)
        add_rules(broker, 10)
        add_quotas(broker, 10)
        yield broker
    finally:
        broker.stop()


@pytest.mark.parametrize("listener", ["ECDSA", "RSA"])
def test_handshakes_are_counted_when_a_request_is_answered(ruled, listener):
    assert run(over_tls(ruled.ports[listener]), 0.3, 2, 0)["connections"] >= 1


def test_logins_are_counted_when_they_are_accepted(ruled):
    assert run(by_scram(ruled.ports["SCRAM"]), 0.3, 2, 0)["connections"] >= 1


def test_a_rate_is_kept_to(ruled):
    assert 1 <= run(over_tls(ruled.ports["ECDSA"]), 0.5, 2, 10)["connections"] <= 8


@pytest.mark.parametrize("listener", PROTOCOLS)
def test_librdkafka_produces_on_every_listener(ruled, listener):
    config = {name.replace("_", "."): value for name, value in properties(ruled, listener).items()}
    failures = []
    producer = Producer(config)
    producer.produce("first", b"x", on_delivery=lambda error, _: failures.append(error))
    # The user of SCRAM may not create topics; the others are super users.
    assert producer.flush(30) == 0
    assert failures == [None]


def test_apache_kafka_gets_the_same_listeners_and_one_for_its_controller(tmp_path):
    settings = SecuredKafka(tmp_path / "kafka").settings()
    names = [each.partition("://")[0] for each in settings["listeners"].split(",")]
    assert names == [*PROTOCOLS, "CONTROLLER"]
    assert "CONTROLLER" not in settings["advertised.listeners"]
