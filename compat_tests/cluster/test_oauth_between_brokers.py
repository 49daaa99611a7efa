"""Brokers log in at each other by tokens of a server: Ottla and Apache Kafka 3.9 in one cluster, with the same settings."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.cluster.secured import LISTENER, made, running, settings_of, works
from compat_tests.support.brokers import OttlaProcess
from compat_tests.support.token_server import CLIENT, SECRET, token_server

KAFKAS = "org.apache.kafka.common.security.oauthbearer"
OWN = f"{LISTENER}.oauthbearer"


@pytest.fixture
def issuer() -> Iterator[str]:
    with token_server() as address:
        yield address


@pytest.mark.long
def test_ottla_and_kafka_log_in_at_each_other(tmp_path: Path, issuer: str) -> None:
    credentials = f'clientId="{CLIENT}" clientSecret="{SECRET}"'
    by_tokens = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        f"{OWN}.sasl.jaas.config": f"{KAFKAS}.OAuthBearerLoginModule required {credentials};",
        f"{OWN}.sasl.login.callback.handler.class": f"{KAFKAS}.secured.OAuthBearerLoginCallbackHandler",
        f"{OWN}.sasl.server.callback.handler.class": f"{KAFKAS}.secured.OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": f"{issuer}/token",
        "sasl.oauthbearer.jwks.endpoint.url": f"{issuer}/keys",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer/",
    }
    kinds = [ApacheKafka3, OttlaProcess, OttlaProcess]
    with running(made(tmp_path, kinds, settings_of("SASL_PLAINTEXT") | by_tokens)) as cluster:
        works(cluster, "tokens")
    for broker in cluster.brokers:
        assert SECRET not in broker.log and "eyJ" not in broker.log
