"""Which tokens are taken, and whom they name. What Kafka says to the same ones: compat_tests/clients/test_oauth.py."""

import contextlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.config.token_rules import KeyEndpoint, SignedTokenRules, UnsecuredTokenRules
from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.security.oauth.key_sets import KEYS_MAX, KeySet, MalformedKeySet, parse_key_set
from ottla.server.security.oauth.signed_tokens import SignedTokens
from ottla.server.security.oauth.tokens import EXPIRES_S_MAX, InvalidToken, UnsecuredTokens, ValidToken, take_apart
from ottla.server.tests.oauth_issuer import (
    AUDIENCE,
    CLAIMS,
    ISSUER,
    NOW_MS,
    NOW_S,
    curve,
    part,
    published,
    rsa,
    signed,
    unsigned,
)
from ottla.wire.tests.effort import examples

ENDPOINT = KeyEndpoint(address="/keys", is_file=True, refresh_ms=1, retry_backoff_ms=1, retry_backoff_max_ms=1)


class FixedKeys:
    def __init__(self, data: bytes | None) -> None:
        self.current: KeySet | None = None if data is None else parse_key_set(data)
        self.missed: list[str] = []

    def miss(self, key_id: str) -> None:
        self.missed.append(key_id)


def rules(**changed: Any) -> SignedTokenRules:
    usual = {"audiences": (AUDIENCE, "other"), "issuer": ISSUER, "clock_skew_s": 30}
    return SignedTokenRules(
        **({"endpoint": ENDPOINT, "scope_claim": "scope", "subject_claim": "sub"} | usual | changed)
    )


@pytest.fixture(scope="module")
def keys() -> FixedKeys:
    return FixedKeys(published(rsa(), curve("P-256", "p256"), curve("P-384", "p384"), curve("P-521", "p521")))


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in CLAIMS.items() if name not in names}


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_each_algorithm_of_rsa(keys: FixedKeys, algorithm: str):
    token = signed(algorithm=algorithm)
    assert SignedTokens(rules(), keys)(token, NOW_MS) == ValidToken("alice", (NOW_S + 600) * 1000)


@pytest.mark.parametrize(("algorithm", "name"), [("ES256", "P-256"), ("ES384", "P-384"), ("ES512", "P-521")])
def test_each_curve(keys: FixedKeys, algorithm: str, name: str):
    token = signed(key=curve(name, f"p{name[2:]}"), algorithm=algorithm)
    assert SignedTokens(rules(), keys)(token, NOW_MS).name == "alice"


@pytest.mark.parametrize(
    "claims",
    [
        CLAIMS | {"aud": ["x", "other"]},
        CLAIMS | {"exp": NOW_S - 29},
        CLAIMS | {"nbf": NOW_S + 30},
        CLAIMS | {"iat": NOW_S + 60},
        CLAIMS | {"exp": NOW_S + 600.9, "iat": NOW_S + 0.5},
        CLAIMS | {"scope": "a b"},
        CLAIMS | {"scope": 5},
        CLAIMS | {"sub": " alice "},
        CLAIMS | {"more": [{"a": [1, None, True]}]},
        without("scope"),
    ],
)
def test_what_is_taken(keys: FixedKeys, claims: dict[str, Any]):
    assert SignedTokens(rules(), keys)(signed(claims), NOW_MS).name == "alice"


WRONG_CLAIMS = [
    (without("exp"), "when it was issued"),
    (without("iat"), "when it was issued"),
    (without("sub"), "names no user"),
    (without("aud"), "another audience"),
    (without("iss"), "another issuer"),
    (CLAIMS | {"exp": NOW_S - 30}, "has expired"),
    (CLAIMS | {"exp": "soon"}, "no number"),
    (CLAIMS | {"exp": True}, "no number"),
    (CLAIMS | {"iat": "now"}, "no number"),
    (CLAIMS | {"iat": NOW_S + 601}, "before it begins"),
    (CLAIMS | {"nbf": NOW_S + 31}, "not good yet"),
    (CLAIMS | {"nbf": NOW_S + 601}, "before it begins"),
    (CLAIMS | {"nbf": []}, "no number"),
    (CLAIMS | {"iat": -1}, "before 1970"),
    (CLAIMS | {"iss": "https://issuer.example/"}, "another issuer"),
    (CLAIMS | {"iss": [ISSUER]}, "no text"),
    (CLAIMS | {"aud": "KAFKA"}, "another audience"),
    (CLAIMS | {"aud": []}, "another audience"),
    (CLAIMS | {"aud": [AUDIENCE, 5]}, "another audience"),
    (CLAIMS | {"aud": {AUDIENCE: 1}}, "another audience"),
    (CLAIMS | {"sub": ""}, "names no user"),
    (CLAIMS | {"sub": "  "}, "names no user"),
    (CLAIMS | {"sub": 5}, "no text"),
    (CLAIMS | {"jti": 5}, "no text"),
    (CLAIMS | {"sub": "a\nb"}, "what is no text"),
    (CLAIMS | {"sub": "\ud800"}, "what is no text"),
    (CLAIMS | {"sub": "a" * 1001}, "too long"),
    (CLAIMS | {"scope": ""}, "scope"),
    (CLAIMS | {"scope": ["a", "a"]}, "scope"),
    (CLAIMS | {"scope": ["a", " "]}, "scope"),
    (CLAIMS | {"scope": ["a", 5]}, "scope"),
]


@pytest.mark.parametrize(("claims", "words"), WRONG_CLAIMS)
def test_wrong_claims(keys: FixedKeys, claims: dict[str, Any], words: str):
    with pytest.raises(InvalidToken, match=words) as refused:
        SignedTokens(rules(), keys)(signed(claims), NOW_MS)
    assert refused.value.status == "invalid_token" and "alice" not in str(refused.value)


def test_what_the_operator_does_not_want_checked_is_not(keys: FixedKeys):
    judge = SignedTokens(rules(audiences=(), issuer=None), keys)
    for claims in (without("aud", "iss"), CLAIMS | {"aud": "x", "iss": "y"}):
        assert judge(signed(claims), NOW_MS).name == "alice"


def test_claims_have_the_names_that_the_operator_gives_them(keys: FixedKeys):
    judge = SignedTokens(rules(subject_claim="email", scope_claim="roles"), keys)
    assert judge(signed(without("sub") | {"email": "a@b.c", "scope": ""}), NOW_MS).name == "a@b.c"
    with pytest.raises(InvalidToken, match="scope"):
        judge(signed(CLAIMS | {"email": "a@b.c", "roles": ""}), NOW_MS)


def test_names_of_any_script(keys: FixedKeys):
    assert (
        SignedTokens(rules(), keys)(signed(CLAIMS | {"sub": "Ottla Kafková 奥特拉"}), NOW_MS).name
        == "Ottla Kafková 奥特拉"
    )


def test_a_far_end_is_one_that_can_be_counted_with(keys: FixedKeys):
    for far in (10**12, 10**300, 1e300):
        assert SignedTokens(rules(), keys)(signed(CLAIMS | {"exp": far}), NOW_MS).expires_ms == EXPIRES_S_MAX * 1000
    for endless in (f"1{'0' * 400}", "1e999"):
        text = json.dumps(CLAIMS | {"exp": 0}).replace('"exp": 0', f'"exp": {endless}')
        with pytest.raises(InvalidToken):
            SignedTokens(rules(), keys)(signed(text.encode()), NOW_MS)


def signed_with_the_public_key() -> str:
    """By HMAC with what everybody can read: taken by whoever lets the token choose the algorithm."""
    text = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(CLAIMS)}"
    return f"{text}.{part(hmac.digest(rsa().as_pem(private=False), text.encode(), 'sha256'))}"


def changed(token: str, position: int) -> str:
    return token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]


WRONG_SIGNATURES = [
    (lambda: unsigned(), "not signed"),
    (lambda: unsigned(header={"alg": "none", "kid": "first"}) + "AAAA", "not signed"),
    (lambda: unsigned(header={"alg": "NONE"}) + "AAAA", "not taken"),
    (lambda: signed()[: signed().rindex(".") + 1], "not signed"),
    (signed_with_the_public_key, "not taken"),
    (lambda: signed(key=rsa("second"), kid="first"), "signature is wrong"),
    (lambda: changed(signed(), -10), "signature is wrong"),
    (lambda: changed(signed(), 60), "JSON|signature|base64url|object"),
    (lambda: signed() + "=", "signature is wrong"),
    (lambda: signed(key=curve("P-256", "p256"), algorithm="ES256", kid="p384"), "no key"),
    (lambda: signed(key=rsa("unknown")), "no key"),
    (lambda: f"{part({'alg': 'RS256', 'kid': 5})}.{part(CLAIMS)}.AAAA", "malformed"),
    (lambda: f"{part({'alg': 5})}.{part(CLAIMS)}.AAAA", "malformed"),
    (lambda: f"{part({'kid': 'first'})}.{part(CLAIMS)}.AAAA", "malformed"),
    (lambda: f"{part({'alg': 'RS256', 'crit': ['b64'], 'b64': False})}.{part(CLAIMS)}.AAAA", "not served"),
]


@pytest.mark.parametrize(("made", "words"), WRONG_SIGNATURES)
def test_wrong_signatures(keys: FixedKeys, made: Any, words: str):
    with pytest.raises(InvalidToken, match=words):
        SignedTokens(rules(), keys)(made(), NOW_MS)


def test_the_header_of_the_token_brings_no_key_of_its_own(keys: FixedKeys):
    own = rsa("mallory").as_dict(private=False)
    with pytest.raises(InvalidToken, match="signature is wrong"):
        SignedTokens(rules(), keys)(signed(key=rsa("mallory"), kid="first", jwk=own), NOW_MS)


def test_a_long_header_is_fine(keys: FixedKeys):
    chain = ["A" * 4000] * 3
    assert SignedTokens(rules(), keys)(signed(x5c=chain), NOW_MS).name == "alice"


def test_only_unknown_keys_are_missed(keys: FixedKeys):
    before = len(keys.missed)
    for token in (signed(key=rsa("new")), signed(CLAIMS | {"exp": 1}), signed(kid=None), signed_with_the_public_key()):
        with contextlib.suppress(InvalidToken):
            SignedTokens(rules(), keys)(token, NOW_MS)
    assert keys.missed[before:] == ["new"]


def test_a_token_without_a_key_id_is_of_the_first_key_that_fits(keys: FixedKeys):
    judge = SignedTokens(rules(), keys)
    assert judge(signed(kid=None), NOW_MS).name == "alice"
    assert judge(signed(key=curve("P-384", "p384"), algorithm="ES384", kid=None), NOW_MS).name == "alice"


def test_without_keys_the_client_is_to_come_back():
    with pytest.raises(CloseConnection):
        SignedTokens(rules(), FixedKeys(None))(signed(), NOW_MS)
    with pytest.raises(InvalidToken, match="not signed"):
        SignedTokens(rules(), FixedKeys(None))(unsigned(), NOW_MS)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        *(
            f"{part(header)}.{part({})}.x"
            for header in (b"[]", b"{", b'{"a":' * 5_000, b'{"alg":"none","alg":"RS256"}')
        ),
        *(
            f"{part({'alg': 'RS256'})}.{part(claims)}.x"
            for claims in (b"null", b"[" * 30_000, b'{"exp":NaN}', b'{"exp":' + b"9" * 5_000 + b"}", b'{"sub":"\xff"}')
        ),
        f"{part({})}=.{part({})}.x",
        f"{part({})}.{part({})}.x.x",
        f"{part({})} .{part({})}.x",
        f"a.{part({})}.x",
    ],
)
def test_what_is_no_token(keys: FixedKeys, token: str):
    for judge in (SignedTokens(rules(), keys), UnsecuredTokens(unsecured())):
        with pytest.raises(InvalidToken):
            judge(token, NOW_MS)


@given(
    st.text(max_size=60) | st.lists(st.sampled_from(["e30", ".", "eyJhbGciOiJub25lIn0", "=", "A", "ü"])).map("".join)
)
def test_any_text_is_taken_apart_or_refused(text: str):
    try:
        parts = take_apart(text)
    except InvalidToken as refused:
        assert len(str(refused)) < 100
    else:
        assert isinstance(parts.header, dict) and isinstance(parts.claims, dict)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_NAMES = st.sampled_from([*CLAIMS, "nbf", "jti", "cty"])
ANY_KEYS = FixedKeys(published(rsa()))


@given(
    st.dictionaries(_NAMES, _JSON, max_size=4),
    st.dictionaries(st.sampled_from(["alg", "kid", "crit", "typ", "b64"]), _JSON),
)
@settings(max_examples=examples(60), deadline=None)
def test_any_claims_and_headers_are_judged(claims: dict[str, Any], header: dict[str, Any]):
    claims = CLAIMS | claims
    for judge, token in (
        (SignedTokens(rules(), ANY_KEYS), signed(json.dumps(claims).encode())),
        (SignedTokens(rules(), ANY_KEYS), f"{part({'alg': 'RS256'} | header)}.{part(claims)}.AAAA"),
        (UnsecuredTokens(unsecured()), unsigned(claims)),
        (UnsecuredTokens(unsecured()), unsigned(claims, {"alg": "none"} | header)),
    ):
        try:
            valid = judge(token, NOW_MS)
        except InvalidToken:
            continue
        assert valid.name == claims["sub"].strip() and 0 < valid.expires_ms <= EXPIRES_S_MAX * 1000


@given(st.integers(0, 10_000), st.sampled_from("AZaz09-_=.~\x00ü"))
@settings(max_examples=examples(60), deadline=None)
def test_no_changed_token_is_taken(position: int, character: str):
    token = signed()
    position %= len(token)
    other = token[:position] + character + token[position + 1 :]
    if other != token:
        with pytest.raises(InvalidToken):
            SignedTokens(rules(), ANY_KEYS)(other, NOW_MS)


# ---------------------------------------------------------------------- tokens that nobody has signed


def unsecured(**changed: Any) -> UnsecuredTokenRules:
    usual: dict[str, Any] = {"principal_claim": "sub", "scope_claim": "scope", "required_scope": (), "clock_skew_ms": 0}
    return UnsecuredTokenRules(**usual | changed)


def test_an_unsigned_token_names_somebody():
    assert UnsecuredTokens(unsecured())(unsigned(), NOW_MS) == ValidToken("alice", (NOW_S + 600) * 1000)
    judge = UnsecuredTokens(unsecured(principal_claim="who", clock_skew_ms=1000))
    assert judge(unsigned({"who": "x", "exp": NOW_S - 0.5}), NOW_MS) == ValidToken("x", NOW_MS - 500)


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        (without("exp"), "when it expires"),
        (without("sub"), "names no user"),
        (CLAIMS | {"exp": NOW_S}, "has expired"),
        (CLAIMS | {"iat": NOW_S + 1}, "of the future"),
        (CLAIMS | {"iat": "x"}, "no number"),
        (CLAIMS | {"sub": 1}, "names no user"),
    ],
)
def test_unsigned_tokens_have_rules_too(claims: dict[str, Any], words: str):
    with pytest.raises(InvalidToken, match=words):
        UnsecuredTokens(unsecured())(unsigned(claims), NOW_MS)


def test_an_unsigned_token_that_begins_after_its_end():
    with pytest.raises(InvalidToken, match="before it is issued"):
        UnsecuredTokens(unsecured(clock_skew_ms=10_000))(
            unsigned(CLAIMS | {"iat": NOW_S + 2, "exp": NOW_S + 1}), NOW_MS
        )


@pytest.mark.parametrize(
    "made", [lambda: signed(), lambda: unsigned() + "AA", lambda: unsigned(header={"alg": "None"})]
)
def test_signed_ones_are_not_taken_for_unsigned(made: Any):
    with pytest.raises(InvalidToken):
        UnsecuredTokens(unsecured())(made(), NOW_MS)


def test_a_required_scope_is_told():
    judge = UnsecuredTokens(unsecured(required_scope=("a", "c")))
    assert judge(unsigned(CLAIMS | {"scope": ["c", "a "]}), NOW_MS).name == "alice"
    for scope in (["a"], "a c", None, 5, [["a"], "c"]):
        with pytest.raises(InvalidToken) as refused:
            judge(unsigned(CLAIMS | {"scope": scope}), NOW_MS)
        assert (refused.value.status, refused.value.scope) == ("insufficient_scope", "[a, c]")


# ---------------------------------------------------------------------- sets of keys


def key_count(*jwks: Any) -> int:
    return len(parse_key_set(json.dumps({"keys": jwks}).encode()))


def test_keys_that_cannot_be_used_are_left_out():
    good = rsa().as_dict(private=False)
    point = curve("P-256", "p256").as_dict(private=False)
    assert key_count(good, point) == 2
    for bad in (
        5,
        None,
        {},
        {"kty": "oct", "k": "AAAA", "kid": "first"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"},
        {"kty": ["RSA"]},
        good | {"use": "enc"},
        good | {"use": 5},
        good | {"key_ops": ["encrypt"]},
        good | {"key_ops": 5},
        good | {"alg": "RSA-OAEP"},
        good | {"alg": "HS256"},
        good | {"alg": 5},
        good | {"kid": 5},
        good | {"n": 5},
        good | {"n": "AQAB"},
        good | {"n": "!" * 400},
        good | {"n": "ü" * 400},
        good | {"n": good["n"] * 5},
        good | {"e": ""},
        good | {"e": "AA"},
        {"kty": "RSA", "n": good["n"]},
        point | {"x": point["y"]},
        point | {"crv": "P-384"},
        point | {"crv": "secp256k1"},
        point | {"crv": ["P-256"]},
        point | {"x": None},
    ):
        found = parse_key_set(json.dumps({"keys": [bad, good]}).encode())
        assert (len(found), found.unusable) == (1, 1), bad


def test_private_parts_and_what_others_need_do_not_matter():
    whole = rsa().as_dict(private=True) | {"x5u": 5, "x5c": "no list", "own": {}}
    assert key_count(whole) == 1


def test_a_key_for_one_algorithm_is_for_no_other():
    keys = parse_key_set(published(rsa(), alg="RS512", key_ops=["verify"], use="sig"))
    assert keys.find("first", "RS512") is not None
    assert keys.find("first", "RS256") is None and keys.find(None, "RS256") is None


def test_of_two_keys_with_one_id_the_first_counts():
    keys = FixedKeys(published(rsa("first"), rsa("second"), kid="same"))
    judge = SignedTokens(rules(), keys)
    assert judge(signed(kid="same"), NOW_MS).name == "alice"
    with pytest.raises(InvalidToken, match="signature is wrong"):
        judge(signed(key=rsa("second"), kid="same"), NOW_MS)
    # Another kind of key under that id is another one.
    both = parse_key_set(
        json.dumps(
            {
                "keys": [
                    each | {"kid": "same"}
                    for each in (rsa().as_dict(private=False), curve("P-256", "p256").as_dict(private=False))
                ]
            }
        ).encode()
    )
    assert both.find("same", "RS256") is not None and both.find("same", "ES256") is not None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": {}}',
        b"[" * 100_000,
        b"\xff",
        b'{"keys": [%s]}' % b",".join([b"1"] * (KEYS_MAX + 1)),
    ],
)
def test_what_is_no_set_of_keys(data: bytes):
    with pytest.raises(MalformedKeySet):
        parse_key_set(data)


_MEMBERS = st.dictionaries(st.sampled_from(["kty", "n", "e", "crv", "x", "y", "alg", "kid", "use", "key_ops"]), _JSON)


@given(
    st.binary(max_size=60)
    | _JSON.map(lambda value: json.dumps({"keys": value}).encode())
    | st.lists(
        st.tuples(
            st.sampled_from([rsa().as_dict(private=False), curve("P-256", "p256").as_dict(private=False)]), _MEMBERS
        ),
        max_size=3,
    ).map(lambda pairs: json.dumps({"keys": [key | other for key, other in pairs]}).encode())
)
@settings(max_examples=examples(60), deadline=None)
def test_any_bytes_are_a_set_of_keys_or_not(data: bytes):
    try:
        found = parse_key_set(data)
    except MalformedKeySet:
        return
    assert len(found) + found.unusable <= 3
