"""Delegation tokens in one cluster of Ottla and Apache Kafka 3.9: made at one, they are good, renewed and removed at the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, free_port, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.logging_in import Refused, by_plain, by_token
from compat_tests.support.wire_client import WireClient

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.schema import Message

SECRET, KEY = "word-of-everybody", "key-of-the-tokens"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USERS = " ".join(f'user_{name}="{SECRET}"' for name in ("broker", "alice", "bob"))
LISTENER = "listener.name.within"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,WITHIN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "WITHIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{LISTENER}.plain.sasl.jaas.config": f'{PLAIN} username="broker" password="{SECRET}" {USERS};',
    **{f"{LISTENER}.{each.lower()}.sasl.jaas.config": f"{SCRAM};" for each in MECHANISMS},
    "delegation.token.expiry.check.interval.ms": "1000",
}
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Each knows the key by another of its names.
    keys = [{f"delegation.token.{name}.key": KEY} for name in ("master", "secret")]
    cluster = Cluster(tmp_path_factory.mktemp("tokens"), [ApacheKafka3, OttlaProcess], SETTINGS, each=keys)
    for broker in cluster.brokers:
        broker.settings["listeners"] = f"PLAINTEXT://{broker.host}:{broker.port},WITHIN://{broker.host}:{free_port()}"
    with cluster:
        yield cluster
    for broker in cluster.brokers:
        assert SECRET not in broker.log and KEY not in broker.log


def connected(broker: BrokerProcess) -> WireClient:
    return WireClient((broker.host, int(broker.settings["listeners"].rpartition(":")[2])), client_id="tokens")


def ask(broker: BrokerProcess, who: str, request: Message, version: int) -> Any:
    with closing(connected(broker)) as client:
        by_plain(client, who, SECRET)
        return client.ask(request, version)


def described(broker: BrokerProcess, token_id: str) -> Any:
    """What bob is told of a token; None: there is none."""
    answer = ask(broker, "bob", DescribeDelegationTokenRequest(owners=None), 3)
    assert answer.error_code == 0
    return next((each for each in answer.tokens if each.token_id == token_id), None)


def logs_in(broker: BrokerProcess, mechanism: str, token_id: str, hmac: bytes) -> bool:
    with closing(connected(broker)) as client:
        try:
            answers = by_token(client, mechanism, token_id, hmac)
        except Refused:
            return False
        assert 0 < answers[-1].session_lifetime_ms <= 24 * HOUR_MS
        return bool(client.ask(MetadataRequest(topics=[]), 12).brokers)


def made_at(broker: BrokerProcess, lifetime_ms: int = -1) -> Any:
    bob = CreatableRenewers(principal_type="User", principal_name="bob")
    request = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=[bob], max_lifetime_ms=lifetime_ms
    )
    made = ask(broker, "alice", request, 3)
    assert made.error_code == 0
    return made


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)], ids=["of Kafka", "of Ottla"])
def test_a_token_is_good_renewed_and_removed_at_the_other(mixed: Cluster, first: int, second: int) -> None:
    maker, other = mixed.brokers[first], mixed.brokers[second]
    made = made_at(maker)
    told = wait_until(lambda: described(other, made.token_id), "the other has heard of the token")
    assert (told.hmac, told.principal_name, told.token_requester_principal_name) == (made.hmac, "alice", "alice")
    assert (told.issue_timestamp, told.expiry_timestamp, told.max_timestamp) == (
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
    )
    assert [(each.principal_type, each.principal_name) for each in told.renewers] == [("User", "bob")]
    for broker in (maker, other):
        assert all(logs_in(broker, mechanism, made.token_id, made.hmac) for mechanism in MECHANISMS)
        assert not logs_in(broker, MECHANISMS[0], made.token_id, made.hmac[1:])
    renewed = ask(other, "bob", RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=2 * HOUR_MS), 2)
    assert renewed.error_code == 0 and renewed.expiry_timestamp_ms < made.expiry_timestamp_ms
    wait_until(
        lambda: described(maker, made.token_id).expiry_timestamp == renewed.expiry_timestamp_ms, "the maker has heard"
    )
    assert logs_in(maker, MECHANISMS[1], made.token_id, made.hmac)
    # Back again, so that each has changed what the other wrote.
    later = ask(maker, "alice", ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=5 * HOUR_MS), 2)
    wait_until(
        lambda: described(other, made.token_id).expiry_timestamp == later.expiry_timestamp_ms, "the other has heard"
    )
    removed = ask(other, "alice", ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
    assert removed.error_code == 0
    wait_until(lambda: described(maker, made.token_id) is None, "the maker has heard that it is gone")
    again = ask(maker, "alice", RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1), 2)
    assert again.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert not any(logs_in(broker, MECHANISMS[0], made.token_id, made.hmac) for broker in (maker, other))


def test_whoever_is_the_controller_removes_what_has_expired(mixed: Cluster) -> None:
    for controller in mixed.brokers:
        if (before := mixed.controller()) is not controller:
            before.stop()
            before.restart()
            mixed.wait_until_whole()
        assert mixed.controller() is controller
        tokens = [made_at(broker, lifetime_ms=1) for broker in mixed.brokers]
        for broker in mixed.brokers:
            for made in tokens:
                wait_until(lambda: described(broker, made.token_id) is None, "an expired token is gone")  # noqa: B023


def test_tokens_are_there_after_a_restart(mixed: Cluster) -> None:
    made = made_at(mixed.brokers[0])
    for broker in mixed.brokers:
        broker.stop()
        broker.restart()
        mixed.wait_until_whole()
        assert logs_in(broker, MECHANISMS[0], made.token_id, made.hmac)
