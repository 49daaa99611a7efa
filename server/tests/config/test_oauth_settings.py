"""Settings of OAUTHBEARER: which win, what is refused in one line, and that unsigned tokens are only taken if asked for."""

import importlib.util
import json
from pathlib import Path

import pytest

from ottla.server.config.broker_config import ConfigError, broker_settings, load_config
from ottla.server.config.sasl_config import OAuthConfig
from ottla.server.config.token_rules import SignedTokenRules, UnsecuredTokenRules
from ottla.wire.settings import settings_of

KAFKAS = "org.apache.kafka.common.security.oauthbearer."
SIGNED = f"{KAFKAS}OAuthBearerValidatorCallbackHandler"
UNSECURED = f"{KAFKAS}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
MODULE = f"{KAFKAS}OAuthBearerLoginModule"
OWN = "listener.name.out.oauthbearer."
HANDLER, LINE = f"{OWN}sasl.server.callback.handler.class", f"{OWN}sasl.jaas.config"
URL = "sasl.oauthbearer.jwks.endpoint.url"
LISTENING = {
    "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9093",
    "listener.security.protocol.map": "OUT:SASL_PLAINTEXT,IN:PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}
CHECKED = {"sasl.oauthbearer.expected.audience": "kafka,more", "sasl.oauthbearer.expected.issuer": "https://issuer/"}
GOOD = {HANDLER: SIGNED, URL: "https://issuer.example:8443/keys?x=y"} | CHECKED


def rules_of(texts: dict[str, str]) -> SignedTokenRules | UnsecuredTokenRules | None:
    return load_config({**LISTENING, **texts}).sasl["OUT"].mechanisms["OAUTHBEARER"].tokens


def test_signed_tokens():
    rules = rules_of(GOOD)
    assert isinstance(rules, SignedTokenRules)
    assert (rules.audiences, rules.issuer, rules.clock_skew_s) == (("kafka", "more"), "https://issuer/", 30)
    assert (rules.scope_claim, rules.subject_claim) == ("scope", "sub")
    assert rules.endpoint.address == GOOD[URL] and not rules.endpoint.is_file and rules.endpoint.tls is not None
    assert (rules.endpoint.refresh_ms, rules.endpoint.retry_backoff_ms) == (3_600_000, 100)


def test_a_mechanism_wins_over_its_listener_and_that_over_all():
    texts = {
        "sasl.oauthbearer.sub.claim.name": "all",
        "listener.name.out.sasl.oauthbearer.sub.claim.name": "listener",
        "listener.name.out.sasl.oauthbearer.scope.claim.name": "listener",
        f"{OWN}sasl.oauthbearer.scope.claim.name": "mechanism",
        f"{OWN}sasl.oauthbearer.clock.skew.seconds": "5",
        f"{OWN}{URL}": "http://127.0.0.1:1/keys",
    }
    rules = rules_of(GOOD | texts)
    assert (rules.subject_claim, rules.scope_claim, rules.clock_skew_s) == ("listener", "mechanism", 5)
    assert rules.endpoint.address == "http://127.0.0.1:1/keys" and rules.endpoint.tls is None


def test_a_file(tmp_path: Path):
    path = tmp_path / "k ys.json"
    path.write_text('{"keys": []}')
    for address in (path.as_uri(), f"file://localhost{path.as_uri()[7:]}"):
        endpoint = rules_of(GOOD | {URL: address}).endpoint
        assert endpoint.is_file and endpoint.address == str(path)


def test_how_https_is_spoken_is_in_the_jaas_line():
    line = f'{MODULE} required ssl.truststore.type=PEM ssl.truststore.location="/a" ssl.endpoint.identification.algorithm="";'
    tls = rules_of(GOOD | {LINE: line}).endpoint.tls
    assert (tls.ssl_truststore_type, tls.ssl_truststore_location) == ("PEM", "/a")
    assert tls.ssl_endpoint_identification_algorithm == ""


def test_opting_out_of_audience_and_issuer():
    texts = {f"sasl.oauthbearer.allow.unverified.{each}": "true" for each in ("audience", "issuer")}
    rules = rules_of({HANDLER: f"{KAFKAS}secured.OAuthBearerValidatorCallbackHandler", URL: GOOD[URL]} | texts)
    assert (rules.audiences, rules.issuer) == ((), None)


@pytest.mark.parametrize(
    "texts",
    [
        {HANDLER: UNSECURED},
        {HANDLER: UNSECURED, LINE: f"{MODULE} required;"},
        {LINE: f'{MODULE} required unsecuredValidatorPrincipalClaimName="sub";'},
        {"listener.name.out.sasl.server.callback.handler.class": UNSECURED, URL: "https://issuer.example/"},
    ],
)
def test_unsigned_tokens_are_taken_where_they_are_asked_for(texts: dict[str, str]):
    assert rules_of(texts) == UnsecuredTokenRules(
        principal_claim="sub", scope_claim="scope", required_scope=(), clock_skew_ms=0
    )


def test_options_of_unsigned_tokens():
    options = {
        "PrincipalClaimName": "who",
        "ScopeClaimName": "what",
        "RequiredScope": " a  b ",
        "AllowableClockSkewMs": "7",
    }
    line = " ".join(f'unsecuredValidator{name}="{value}"' for name, value in options.items())
    assert rules_of({LINE: f"{MODULE} required {line};"}) == UnsecuredTokenRules(
        principal_claim="who", scope_claim="what", required_scope=("a", "b"), clock_skew_ms=7
    )


def without(*names: str) -> dict[str, str]:
    return {name: text for name, text in GOOD.items() if name not in names}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, f"{HANDLER}: OAUTHBEARER needs this setting, {SIGNED} for signed tokens"),
        ({LINE: f"{MODULE} required;"}, "OAUTHBEARER needs this setting"),
        # In Kafka these keys would not be looked at, and whatever token were taken.
        (without(HANDLER), "OAUTHBEARER needs this setting"),
        (without(HANDLER) | {LINE: f'{MODULE} required unsecuredValidatorScopeClaimName="x";'}, "needs this setting"),
        (GOOD | {HANDLER: "org.example.Own"}, f"it is not known; allowed: {SIGNED}, {UNSECURED}"),
        (GOOD | {HANDLER: ""}, "it is not known"),
        (without(URL), f"{OWN}{URL}: OAUTHBEARER needs this setting"),
        (without("sasl.oauthbearer.expected.audience"), "allow.unverified.audience=true says that this is meant"),
        (GOOD | {"sasl.oauthbearer.expected.issuer": " "}, "allow.unverified.issuer=true says that this is meant"),
        (GOOD | {URL: "ftp://issuer.example/keys"}, "begins with https://, http:// or file:///"),
        (GOOD | {URL: "issuer.example"}, "begins with https://"),
        (GOOD | {URL: "https://"}, "names no host"),
        (GOOD | {URL: "https://[::1/"}, "no address"),
        (GOOD | {URL: "https://a:99999/"}, "no address"),
        (GOOD | {URL: "https://a b/"}, "begins with"),
        (GOOD | {URL: "https://ü.example/"}, "begins with"),
        (GOOD | {URL: "https://me:hunter2@a/"}, "no place for a password"),
        (GOOD | {URL: "file://elsewhere/keys"}, "its whole path"),
        (GOOD | {URL: "file:keys"}, "its whole path"),
        (GOOD | {URL: "file:///no/such/file"}, "there is no such file"),
        (GOOD | {URL: "file:///dev"}, "it is no file"),
        (GOOD | {URL: "file:///dev/zero"}, "it is no file"),
        (GOOD | {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "must be positive"),
        (GOOD | {f"{OWN}sasl.oauthbearer.clock.skew.seconds": "x"}, f"{OWN}sasl.oauthbearer.clock.skew.seconds: Not a"),
        (GOOD | {"sasl.oauthbearer.sub.claim.name": " "}, "sub.claim.name: it has to be a name"),
        (GOOD | {"sasl.oauthbearer.jwt.validator.class": f"{KAFKAS}ClientJwtValidator"}, "BrokerJwtValidator"),
        (GOOD | {LINE: "org.example.Module required;"}, f"the login module of OAUTHBEARER has to be {MODULE}"),
        (GOOD | {LINE: f'{MODULE} required ssl.allow.dn.changes="hunter2";'}, "option ssl.allow.dn.changes: Expected"),
        ({LINE: f'{MODULE} required unsecuredValidatorAllowableClockSkewMs="-1";'}, "not negative"),
        ({LINE: f"{MODULE} required unsecuredValidatorRequiredScope='a\"';"}, "RequiredScope"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(texts: dict[str, str], words: str):
    with pytest.raises(ConfigError) as refused:
        load_config({**LISTENING, **texts})
    assert words in str(refused.value) and "hunter2" not in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", '{"keys": 1}', "[" * 100_000, "x" * (1 << 20) + "x"])
def test_a_file_without_keys_ends_the_start(tmp_path: Path, text: str):
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="holds no set of keys|more than 1048576 bytes"):
        rules_of(GOOD | {URL: path.as_uri()})


def test_a_package_that_is_missing_ends_the_start(monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "joserfc" else found(name))
    with pytest.raises(ConfigError, match=r"needs the package joserfc: pip install 'ottla\[oauth\]'"):
        rules_of(GOOD)
    assert rules_of({HANDLER: UNSECURED}) is not None


def test_other_mechanisms_take_no_handler():
    with pytest.raises(ConfigError, match="callback handlers are not served"):
        load_config(
            {
                **LISTENING,
                **GOOD,
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "sasl.server.callback.handler.class": SIGNED,
            }
        )


def test_the_settings_have_an_effect_and_say_what_for():
    for name in settings_of(OAuthConfig):
        declared = broker_settings()[name]
        assert declared.effective and declared.doc and declared.is_read_only
    given = json.loads(json.dumps({name: text for name, text in GOOD.items() if name.startswith("sasl.")}))
    assert load_config({**LISTENING, **GOOD, **given}).ignored_settings == ()
