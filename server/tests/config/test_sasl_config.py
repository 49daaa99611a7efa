"""SASL settings of a listener: which win, and what is refused in one line."""

import pytest

from ottla.server.config.broker_config import ConfigError, load_config

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LISTENING = {
    "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9093",
    "listener.security.protocol.map": "OUT:SASL_PLAINTEXT,IN:PLAINTEXT",
    "inter.broker.listener.name": "IN",
}
PLAIN_LINE = {"listener.name.out.plain.sasl.jaas.config": f'{MODULE} required user_a="hunter2";'}


def test_only_listeners_with_sasl_have_settings_of_it():
    assert load_config({}).sasl == {}
    config = load_config({**LISTENING, **PLAIN_LINE, "sasl.enabled.mechanisms": "PLAIN"})
    assert list(config.sasl) == ["OUT"]
    assert config.sasl["OUT"].mechanisms["PLAIN"].jaas.options == {"user_a": "hunter2"}


def test_a_listener_and_a_mechanism_have_settings_of_their_own():
    texts = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.out.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "connections.max.reauth.ms": "1000",
        "listener.name.out.scram-sha-512.connections.max.reauth.ms": "2000",
        "listener.name.out.sasl.server.max.receive.size": "1024",
        "connection.failed.authentication.delay.ms": "7",
    }
    config = load_config({**LISTENING, **PLAIN_LINE, **texts}).sasl["OUT"]
    assert {name: each.max_reauth_ms for name, each in config.mechanisms.items()} == {
        "SCRAM-SHA-512": 2000,
        "PLAIN": 1000,
    }
    assert (config.receive_bytes_max, config.failure_delay_ms) == (1024, 7)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, "listener.name.out.gssapi.sasl.jaas.config: mechanism GSSAPI needs this setting"),
        ({"sasl.enabled.mechanisms": ""}, "listener.name.out.sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "X,PLAIN"}, "mechanism X is not served; allowed: GSSAPI, PLAIN, SCRAM-SHA-256"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "listener.name.out.plain.sasl.jaas.config": ""},
            "listener.name.out.plain.sasl.jaas.config: Login module not specified",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "listener.name.in.plain.sasl.jaas.config": f"{MODULE} required;"},
            "listener.name.out.plain.sasl.jaas.config: mechanism PLAIN needs this setting",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.out.plain.sasl.jaas.config": f'{MODULE} required; {MODULE} required password="hunter2";',
            },
            "contains 2 login modules",
        ),
        (
            {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.out.plain.sasl.jaas.config": f'{SCRAM_MODULE} required password="hunter2";',
            },
            "the login module of PLAIN has to be",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "listener.name.out.scram-sha-256.sasl.server.callback.handler.class": "org.example.Own",
            },
            "callback handlers are not served",
        ),
        (
            {"sasl.enabled.mechanisms": "SCRAM-SHA-256", "listener.name.out.connections.max.reauth.ms": "soon"},
            "connections.max.reauth.ms",
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line_without_secrets(texts: dict[str, str], words: str):
    with pytest.raises(ConfigError) as refused:
        load_config({**LISTENING, **texts})
    assert words in str(refused.value) and "hunter2" not in str(refused.value) and "\n" not in str(refused.value)
