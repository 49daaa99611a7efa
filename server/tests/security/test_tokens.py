"""Delegation tokens: when they end, what their nodes hold, and how they log in."""

import base64
import hashlib
import hmac as standard_hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.cluster.znodes import MalformedNode
from ottla.server.config.broker_config import ConfigError, load_config, settings_of_member
from ottla.server.config.security_config import TokenConfig
from ottla.server.security.mechanism import Login, LoginFailed
from ottla.server.security.scram import ScramClient, ScramServer
from ottla.server.security.scram_credentials import HASHES, MadeUpCredentials
from ottla.server.security.scram_users import ScramUsers
from ottla.server.security.tokens import (
    DelegationToken,
    DelegationTokens,
    decode_token,
    encode_token,
    expired,
    hmac_of,
    is_token_id,
    new_token,
    renewed,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import LONG_MAX

NOW_MS = 1_000_000
CONFIG = TokenConfig(delegation_token_max_lifetime_ms=10_000, delegation_token_expiry_time_ms=4_000)
KEY, SECRET = b"key of the tokens", b"s" * 32
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
TOKEN = DelegationToken("id", ALICE, BOB, (CAROL,), NOW_MS, NOW_MS + 10_000, NOW_MS + 4_000)


def code_of(raised: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return raised.value.code


# ---------------------------------------------------------------------- when a token ends


@pytest.mark.parametrize(
    ("lifetime_ms", "max_ms", "expires_ms"),
    [(-1, 10_000, 4_000), (0, 10_000, 4_000), (LONG_MAX, 10_000, 4_000), (5_000, 5_000, 4_000), (1, 1, 1)],
)
def test_how_long_a_new_token_is_good_for(lifetime_ms: int, max_ms: int, expires_ms: int) -> None:
    token = new_token(ALICE, BOB, (CAROL,), lifetime_ms, CONFIG, NOW_MS)
    assert (token.issued_ms, token.max_ms, token.expires_ms) == (NOW_MS, NOW_MS + max_ms, NOW_MS + expires_ms)
    assert (token.requester, token.owner, token.renewers) == (ALICE, BOB, (CAROL,))


def test_times_end_where_they_cannot_be_written_any_more() -> None:
    config = TokenConfig(delegation_token_max_lifetime_ms=LONG_MAX, delegation_token_expiry_time_ms=LONG_MAX)
    token = new_token(ALICE, BOB, (), -1, config, NOW_MS)
    assert token.max_ms == token.expires_ms == LONG_MAX
    later = expired(token, BOB, LONG_MAX, NOW_MS)
    assert later is not None and later.expires_ms == LONG_MAX


def test_ids_are_kafkas_and_all_different() -> None:
    ids = {new_token(ALICE, ALICE, (), -1, CONFIG, NOW_MS).token_id for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(is_token_id(each) and len(each) == 22 and each[0] != "-" for each in ids)


@pytest.mark.parametrize(
    ("period_ms", "expires_ms"),
    [(-1, 4_000), (0, 4_000), (1, 1), (4_001, 4_000), (-LONG_MAX, 4_000), (LONG_MAX, 4_000)],
)
def test_renewing(period_ms: int, expires_ms: int) -> None:
    for principal in (ALICE, CAROL):
        assert renewed(TOKEN, principal, period_ms, CONFIG, NOW_MS + 100).expires_ms == NOW_MS + 100 + expires_ms
    # Nothing outlives its greatest age.
    old = TOKEN._replace(expires_ms=TOKEN.max_ms)
    assert renewed(old, ALICE, 4_000, CONFIG, TOKEN.max_ms - 1).expires_ms == TOKEN.max_ms


@pytest.mark.parametrize(
    ("period_ms", "expires_ms"), [(0, 100), (1, 101), (9_000, 9_100), (9_999, 10_000), (LONG_MAX, 10_000)]
)
def test_letting_it_expire_at_another_time(period_ms: int, expires_ms: int) -> None:
    for principal in (ALICE, CAROL):
        changed = expired(TOKEN, principal, period_ms, NOW_MS + 100)
        assert changed is not None and changed.expires_ms == NOW_MS + expires_ms
    assert expired(TOKEN, ALICE, -1, NOW_MS) is None
    assert expired(TOKEN, ALICE, -1, TOKEN.max_ms + 1) is None


def test_who_may_not_and_when_it_is_too_late() -> None:
    over_ms = TOKEN.expires_ms + 1
    assert not TOKEN.is_over(TOKEN.expires_ms) and TOKEN.is_over(over_ms)
    assert TOKEN._replace(max_ms=NOW_MS).is_over(NOW_MS + 1)
    for principal in (BOB, "User:mallory", "alice", "Group:alice"):
        with pytest.raises(KafkaError) as raised:
            renewed(TOKEN, principal, 1, CONFIG, NOW_MS)
        assert code_of(raised) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        for period_ms in (-1, 1):
            with pytest.raises(KafkaError) as raised:
                expired(TOKEN, principal, period_ms, over_ms)
            assert code_of(raised) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        with pytest.raises(KafkaError) as raised:
            renewed(TOKEN, principal, 1, CONFIG, over_ms)
        assert code_of(raised) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    with pytest.raises(KafkaError) as raised:
        expired(TOKEN, ALICE, 1, over_ms)
    assert code_of(raised) is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_whom_a_token_concerns() -> None:
    assert all(TOKEN.concerns([each]) for each in (ALICE, BOB, CAROL))
    assert not TOKEN.concerns([]) and not TOKEN.concerns({"User:mallory"})


# ---------------------------------------------------------------------- nodes

# As Kafka 3.9.2 has written it.
OF_KAFKA = {
    "version": 3,
    "owner": "User%3Aalice",
    "tokenRequester": "User%3Abob",
    "renewers": ["User%3Acarol"],
    "issueTimestamp": NOW_MS,
    "maxTimestamp": NOW_MS + 10_000,
    "expiryTimestamp": NOW_MS + 4_000,
    "tokenId": "id",
}
principals = st.text(max_size=40).map(lambda name: f"User:{name}")
times = st.integers(-LONG_MAX, LONG_MAX)


def encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def test_a_node_is_kafkas() -> None:
    assert json.loads(encode_token(TOKEN)) == OF_KAFKA
    assert decode_token("id", json.dumps(OF_KAFKA).encode()) == TOKEN
    for version in (1, 2):
        older = {**OF_KAFKA, "version": version}
        del older["tokenRequester"]
        assert decode_token("id", json.dumps(older).encode()) == TOKEN._replace(requester=ALICE)


@given(principals, principals, st.lists(principals, max_size=3), times, times, times)
def test_a_token_is_kept_and_read(
    owner: str, requester: str, renewers: list[str], issued_ms: int, max_ms: int, expires_ms: int
) -> None:
    token = DelegationToken("id", owner, requester, tuple(renewers), issued_ms, max_ms, expires_ms)
    if all(map(encodable, (owner, requester, *renewers))):
        assert decode_token("id", encode_token(token)) == token


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"version": 4},
        {"version": True},
        {"version": 3.0},
        {"owner": "alice"},
        {"owner": None},
        {"owner": 7},
        {"owner": "User:" + "x" * 5_000},
        {"owner": "User:\ud800"},
        {"tokenRequester": None},
        {"renewers": "User:carol"},
        {"renewers": [None]},
        {"renewers": None},
        {"tokenId": "other"},
        {"tokenId": None},
        {"maxTimestamp": 1 << 63},
        {"expiryTimestamp": "1"},
        {"issueTimestamp": None},
    ],
)
def test_a_node_of_which_one_thing_is_wrong_is_no_token(change: dict[str, object]) -> None:
    with pytest.raises(MalformedNode):
        decode_token("id", json.dumps({**OF_KAFKA, **change}).encode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(OF_KAFKA)), inner, max_size=8),
    max_leaves=10,
)
foreign_nodes = (
    st.binary(max_size=100)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(st.sampled_from(list(OF_KAFKA)), json_values, max_size=3).map(
        lambda changes: json.dumps({**OF_KAFKA, **changes}).encode()
    )
)


@given(st.sampled_from(["id", "", "a/b", "x" * 200, "é"]), foreign_nodes)
def test_whatever_a_node_holds_is_a_token_or_malformed(name: str, data: bytes) -> None:
    try:
        token = decode_token(name, data)
    except MalformedNode as error:
        assert len(str(error)) < 300
        return
    assert decode_token(name, encode_token(token)) == token


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b"9" * 100_000, b'{"version":' + b"1" * 5_000 + b"}", b"x" * (2 << 20)]
)
def test_a_node_that_is_dear_to_read_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedNode):
        decode_token("id", data)


# ---------------------------------------------------------------------- in force, and logging in


def table_with(*tokens: DelegationToken) -> DelegationTokens:
    table = DelegationTokens(KEY)
    table.salt_of = MadeUpCredentials(SECRET).salt_of_token
    for each in tokens:
        table.put(each)
    return table


def test_the_hmac_is_kafkas() -> None:
    assert hmac_of("id", KEY) == standard_hmac.new(KEY, b"id", hashlib.sha512).digest()


def test_tokens_come_change_and_go() -> None:
    table = table_with(TOKEN, TOKEN._replace(token_id="other", requester=CAROL))
    hmac = table.hmac("id")
    assert table.by_hmac(hmac) == TOKEN and table.by_hmac(b"") is None and table.by_hmac(hmac + b"x") is None
    later = TOKEN._replace(expires_ms=NOW_MS + 9_000)
    table.put(later)
    assert table.by_hmac(hmac) == table.get("id") == later and len(table) == 2
    assert (table.count_of(BOB), table.count_of(CAROL), table.count_of(ALICE)) == (1, 1, 0)
    for _ in range(2):
        table.remove("id")
    assert table.by_hmac(hmac) is None and [each.token_id for each in table] == ["other"]
    assert (table.count_of(BOB), table.count_of(CAROL)) == (0, 1)
    table.remove("other")
    assert not any(vars(table)[name] for name in ("_tokens", "_hmacs", "_ids", "_counts", "_credentials", "_underived"))


def log_in(
    table: DelegationTokens, mechanism: str, password: str, now_ms: int = NOW_MS, token_id: str = "id"
) -> Login | None:
    server = ScramServer(mechanism, ScramUsers(SECRET, table), lambda: "server")
    client = ScramClient(mechanism, token_id, password, "client", with_token=True)
    client.step(server.step(client.step(server.step(client.step(b""), now_ms)), now_ms))
    return server.login


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("is_derived", [True, False])
def test_a_token_logs_its_owner_in_until_it_expires(mechanism: str, is_derived: bool) -> None:
    table = table_with(TOKEN)
    password = base64.b64encode(table.hmac("id")).decode()
    if is_derived:
        table.take(table.derive(table.underived(10)))
        assert table.underived(10) == []
    for now_ms in (NOW_MS, TOKEN.expires_ms):
        assert log_in(table, mechanism, password, now_ms) == Login(ALICE, TOKEN.expires_ms, by_token=True)
    with pytest.raises(LoginFailed):
        log_in(table, mechanism, password[:-4])
    with pytest.raises(LoginFailed):
        log_in(table, mechanism, password, TOKEN.expires_ms + 1)
    table.put(TOKEN._replace(owner="Group:x:y", expires_ms=NOW_MS + 9_000))
    assert log_in(table, mechanism, password, NOW_MS + 8_000) == Login("User:x:y", NOW_MS + 9_000, by_token=True)
    table.remove("id")
    with pytest.raises(LoginFailed):
        log_in(table, mechanism, password)
    # What was in the making when the token went is not kept.
    table.take({"id": {}})
    assert table._credentials == {}


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_first_answer_does_not_tell_whether_there_is_such_a_token(mechanism: str) -> None:
    first = b"n,,n=id,r=client,tokenauth=true"
    answers = [
        ScramServer(mechanism, ScramUsers(SECRET, table), lambda: "server").step(first, NOW_MS)
        for table in (table_with(TOKEN), table_with(TOKEN), table_with(), None)
    ]
    assert len(set(answers)) == 1 and b",i=4096" in answers[0]


def test_credentials_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_with(TOKEN)
    made = []
    derive = table._credential
    monkeypatch.setattr(table, "_credential", lambda *given: made.append(given[0]) or derive(*given))
    for _ in range(3):
        for mechanism in HASHES:
            assert table.known(mechanism, "id", NOW_MS) is not None
    assert made == list(HASHES)


# ---------------------------------------------------------------------- settings


def test_the_secret_key_has_an_older_name_and_nobody_sees_it() -> None:
    for name in ("delegation.token.secret.key", "delegation.token.master.key"):
        config = load_config({name: "hidden word"})
        assert config.tokens.secret_key == b"hidden word" and "hidden word" not in repr(config)
        assert name not in config.ignored_settings and settings_of_member()[name].is_sensitive
    both = {"delegation.token.secret.key": "new", "delegation.token.master.key": "old"}
    assert load_config(both).tokens.secret_key == b"new"
    assert (
        load_config({}).tokens.secret_key == load_config({"delegation.token.secret.key": ""}).tokens.secret_key == b""
    )
    with pytest.raises(ConfigError, match=r"delegation\.token\.expiry\.time\.ms"):
        load_config({"delegation.token.expiry.time.ms": "0"})
