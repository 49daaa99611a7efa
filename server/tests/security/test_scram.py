"""SCRAM and PLAIN: what is said in which order, and what is refused."""

import base64
import contextlib
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.security.mechanism import Login, LoginFailed, LoginRefused, PlainClient, PlainServer, PlainUsers
from ottla.server.security.scram import (
    KnownToken,
    ScramClient,
    ScramServer,
    decode_client_final,
    decode_client_first,
    sasl_name,
)
from ottla.server.security.scram_credentials import (
    HASHES,
    LOOKS_MAX,
    SALT_BYTES_MAX,
    MalformedCredential,
    ScramCredential,
    credential_of,
    decode_credential,
    encode_credential,
    salted_password,
)
from ottla.server.security.scram_users import ScramUsers, new_salt

MECHANISMS = pytest.mark.parametrize("mechanism", HASHES)
NOW_MS = 1_000


def credential(mechanism: str, password: str, salt: bytes = b"salt", iterations: int = 4096) -> ScramCredential:
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


class Users(ScramUsers):
    """Users with passwords, and tokens."""

    def __init__(self, passwords: dict[str, str], tokens: dict[str, str] | None = None) -> None:
        super().__init__()
        for name, password in passwords.items():
            self.put(name, {each: encode_credential(credential(each, password)) for each in HASHES})
        self.tokens = tokens or {}

    def token(self, mechanism: str, token_id: str, now_ms: int) -> KnownToken | None:
        if token_id not in self.tokens:
            return None
        return KnownToken("User:owner", 5_000, credential(mechanism, self.tokens[token_id]))


def converse(client: ScramClient | PlainClient, server: ScramServer | PlainServer) -> None:
    answer = b""
    while not client.is_complete:
        token = client.step(answer)
        if token or not client.is_complete:
            answer = server.step(token, NOW_MS)


def test_the_example_of_rfc_7677():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    users = Users({})
    users.put("user", {"SCRAM-SHA-256": encode_credential(credential("SCRAM-SHA-256", "pencil", salt))})
    server = ScramServer("SCRAM-SHA-256", users, lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    first = client.step(b"")
    assert first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = server.step(first, NOW_MS)
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = client.step(challenge)
    assert final == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.login is None
    signature = server.step(final, NOW_MS)
    assert signature == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.login == Login("User:user")
    assert client.step(signature) == b"" and client.is_complete


@MECHANISMS
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "Zoë", "アリス", "a b"])
def test_names_of_any_script_log_in(mechanism: str, name: str):
    server = ScramServer(mechanism, Users({name: "pässword,="}), lambda: "server")
    converse(ScramClient(mechanism, name, "pässword,=", "client"), server)
    assert server.login == Login(f"User:{name}")


@MECHANISMS
def test_a_wrong_password_and_an_unknown_user_cannot_be_told_apart(mechanism: str):
    failures = []
    for name in ("alice", "nobody", "nobody"):
        server = ScramServer(mechanism, Users({"alice": "right"}), lambda: "server")
        with pytest.raises(LoginFailed) as failed:
            converse(ScramClient(mechanism, name, "wrong", "client"), server)
        failures.append(str(failed.value))
        with pytest.raises(LoginFailed):
            server.step(b"n,,n=alice,r=again", NOW_MS)
    assert set(failures) == {"Invalid client credentials"}


def test_who_is_unknown_has_the_same_salt_each_time():
    users = Users({"alice": "x"})
    salts = [users.no_credential("SCRAM-SHA-256", name).salt for name in ("bob", "bob", "carol")]
    assert salts[0] == salts[1] != salts[2]
    assert users.no_credential("SCRAM-SHA-512", "bob").salt != salts[0]


# ---------------------------------------------------------------------- who does not exist

SECRET = b"s" * 32
STRANGERS = [f"stranger {number}" for number in range(2_000)]


def known(*kinds: tuple[int, int, bytes], mechanism: str = "SCRAM-SHA-256", secret: bytes = SECRET) -> ScramUsers:
    """Users of these kinds: how many, with so many iterations and such a salt."""
    users = ScramUsers(secret)
    for count, iterations, salt in kinds:
        kept = encode_credential(ScramCredential(salt, b"key", b"key", iterations))
        for number in range(count):
            users.put(f"{iterations} {len(salt)} {number}", {mechanism: kept})
    return users


def look(users: ScramUsers, name: str, mechanism: str = "SCRAM-SHA-256") -> tuple[int, int]:
    credential = users.no_credential(mechanism, name)
    return credential.iterations, len(credential.salt)


def first_answer(users: ScramUsers, name: str, extension: bytes = b"") -> bytes:
    server = ScramServer("SCRAM-SHA-256", users, lambda: "server")
    return server.step(b"n,,n=%s,r=client%s" % (name.encode(), extension), NOW_MS)


def test_without_users_strangers_look_as_kafkas_tools_make_them():
    users = ScramUsers(SECRET)
    looks = [look(users, name) for name in STRANGERS]
    assert {iterations for iterations, _ in looks} == {4096}
    # A number below 2**130 has 26 digits to the base of 36 in 41 of 100 cases.
    assert {25, 26} <= {salt for _, salt in looks} <= set(range(20, 27))
    assert 600 < sum(salt == 26 for _, salt in looks) < 1_000


def test_strangers_look_like_users_and_as_often():
    users = known((30, 4096, new_salt()), (10, 8192, bytes(range(64))))
    looks = Counter((iterations, salt == 64) for iterations, salt in (look(users, name) for name in STRANGERS))
    assert set(looks) == {(4096, False), (8192, True)}
    assert 0.21 < looks[8192, True] / len(STRANGERS) < 0.29
    # Each mechanism has users of its own.
    assert {look(users, name, "SCRAM-SHA-512")[0] for name in STRANGERS[:50]} == {4096}


def test_strangers_look_the_same_on_every_broker_and_after_a_restart():
    kinds = ((3, 4096, new_salt()), (3, 8192, bytes(64)))
    one, other, foreign = known(*kinds), known(*reversed(kinds)), known(*kinds, secret=b"t" * 32)
    for name in STRANGERS[:50]:
        assert first_answer(one, name) == first_answer(other, name) != first_answer(foreign, name)
        token = b",tokenauth=true"
        assert first_answer(one, name, token) == first_answer(other, name, token) != first_answer(one, name)


def test_a_new_user_changes_few_strangers_and_those_look_as_after_a_new_password():
    users = known((40, 4096, new_salt()), (10, 8192, bytes(64)), (10, 16384, bytes(32)))
    before = {name: users.no_credential("SCRAM-SHA-256", name) for name in STRANGERS}
    kept = encode_credential(ScramCredential(bytes(64), b"key", b"key", 8192))
    users.put("one more", {"SCRAM-SHA-256": kept})
    after = {name: users.no_credential("SCRAM-SHA-256", name) for name in STRANGERS}
    changed = [name for name in STRANGERS if before[name] != after[name]]
    assert 0 < len(changed) < len(STRANGERS) / 20
    for name in changed:
        assert after[name].iterations == 8192 and before[name].iterations != 8192
        assert before[name].salt != after[name].salt
    users.put("one more", {})
    assert {name: users.no_credential("SCRAM-SHA-256", name) for name in STRANGERS} == before


def test_what_is_drawn_from_has_bounds():
    users = known(*((1, 4096 + number, bytes(number)) for number in range(1, 600)))
    looks = {look(users, name) for name in STRANGERS}
    assert len(looks) == LOOKS_MAX and all(salt <= SALT_BYTES_MAX for _, salt in looks)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([4095, 4096, 8192, None])), max_size=20))
def test_whatever_users_come_and_go_strangers_look_like_those_that_are_there(changes: list[tuple[str, int | None]]):
    users, kept = ScramUsers(SECRET), {}
    for name, iterations in changes:
        kept[name] = iterations
        credential = encode_credential(ScramCredential(b"salt", b"key", b"key", iterations or 0))
        users.put(name, {} if iterations is None else {"SCRAM-SHA-256": credential})
    usable = {each for each in kept.values() if each is not None and each >= 4096} or {4096}
    assert {look(users, name)[0] for name in STRANGERS[:100]} <= usable


@MECHANISMS
def test_a_delegation_token_logs_its_owner_in(mechanism: str):
    users = Users({"id": "password of a user"}, {"id": "hmac"})
    server = ScramServer(mechanism, users, lambda: "server")
    converse(ScramClient(mechanism, "id", "hmac", "client", with_token=True), server)
    assert server.login == Login("User:owner", 5_000, by_token=True)
    with pytest.raises(LoginFailed):
        converse(ScramClient(mechanism, "id", "hmac", "client"), ScramServer(mechanism, users, lambda: "server"))
    with pytest.raises(LoginFailed):
        unknown = ScramClient(mechanism, "other", "hmac", "client", with_token=True)
        converse(unknown, ScramServer(mechanism, users, lambda: "server"))


def proof_of(server: ScramServer, name: str, password: str) -> bytes:
    client = ScramClient("SCRAM-SHA-256", name, password, "client")
    return client.step(server.step(client.step(b""), NOW_MS))


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"r=client", b"r=clienT"),
        lambda final: final.replace(b"server", b""),
        lambda final: final.replace(b",p=", b",x=1,p="),
        lambda final: final.replace(b"c=biws", b"c=biwx"),
        lambda final: final[: final.index(b"p=") + 2],
        lambda final: final[:-4],
        lambda final: b"",
        lambda final: b"\xff" + final,
        lambda final: final + b"A" * 9_000,
    ],
)
def test_a_changed_proof_is_refused(change: Callable[[bytes], bytes]):
    server = ScramServer("SCRAM-SHA-256", Users({"alice": "right"}), lambda: "server")
    final = proof_of(server, "alice", "right")
    with pytest.raises(LoginFailed):
        server.step(change(final), NOW_MS)
    with pytest.raises(LoginFailed, match="after the end"):
        server.step(final, NOW_MS)
    assert server.login is None


def test_a_proof_of_another_exchange_is_refused():
    users = Users({"alice": "right"})
    overheard = proof_of(ScramServer("SCRAM-SHA-256", users, lambda: "first"), "alice", "right")
    server = ScramServer("SCRAM-SHA-256", users, lambda: "second")
    proof_of(server, "alice", "right")
    with pytest.raises(LoginFailed, match="nonce"):
        server.step(overheard, NOW_MS)


def test_another_authorization_id_is_refused_in_words():
    users = Users({"alice": "right"})
    with pytest.raises(LoginRefused, match="different from username"):
        ScramServer("SCRAM-SHA-256", users, lambda: "s").step(b"n,a=root,n=alice,r=c", NOW_MS)
    assert ScramServer("SCRAM-SHA-256", users, lambda: "s").step(b"n,a=alice,n=alice,r=c", NOW_MS)


def test_too_few_iterations_are_refused_as_if_there_were_no_such_user(caplog: pytest.LogCaptureFixture):
    users = Users({})
    users.put("alice", {"SCRAM-SHA-256": encode_credential(credential("SCRAM-SHA-256", "x", iterations=4095))})
    assert "4095 iterations" in caplog.text
    server = ScramServer("SCRAM-SHA-256", users, lambda: "s")
    with pytest.raises(LoginFailed, match="Invalid client credentials"):
        converse(ScramClient("SCRAM-SHA-256", "alice", "x", "c"), server)
    assert b"i=4096" in ScramServer("SCRAM-SHA-256", users, lambda: "s").step(b"n,,n=alice,r=c", NOW_MS)


@given(
    st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name),
    st.dictionaries(
        st.from_regex(r"[A-Za-z]{1,12}", fullmatch=True), st.from_regex(r"[^,\x00]{1,9}", fullmatch=True), max_size=5
    ),
)
def test_extensions_of_a_beginning_are_read(name: str, extensions: dict[str, str]):
    text = "".join(f",{key}={value}" for key, value in extensions.items())
    try:
        first = f"n,,n={sasl_name(name)},r=nonce{text}".encode()
    except UnicodeEncodeError:
        return
    read = decode_client_first(first)
    assert (read.name, read.nonce, read.extensions) == (name, "nonce", extensions)
    server = ScramServer("SCRAM-SHA-256", ScramUsers(SECRET), lambda: "server")
    assert server.step(first, NOW_MS).startswith(b"r=nonceserver,s=")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"y,,n=a,r=c",
        b"p=tls-unique,,n=a,r=c",
        b"n,,m=x,n=a,r=c",
        b"n,,n=a",
        b"n,,n=a=b,r=c",
        b"n,,n=a,r=",
        b"\xff",
    ],
)
def test_a_malformed_beginning_is_refused_without_being_quoted(first: bytes):
    with pytest.raises(LoginFailed, match="^Invalid SCRAM client first message format$"):
        decode_client_first(first)


@given(st.binary(max_size=200) | st.text(st.sampled_from("n=ra,cp12C3D!é"), max_size=60).map(str.encode))
def test_any_bytes_are_a_message_or_refused(data: bytes):
    for decode in (decode_client_first, decode_client_final):
        with contextlib.suppress(LoginFailed):
            decode(data)


def test_a_client_trusts_nobody_who_does_not_know_the_credential():
    client = ScramClient("SCRAM-SHA-256", "alice", "right", "client")
    client.step(b"")
    with pytest.raises(LoginFailed, match="nonce"):
        client.step(b"r=other,s=c2FsdA==,i=4096")
    for iterations in (1, 4095, 99_999_999):
        client = ScramClient("SCRAM-SHA-256", "alice", "right", "client")
        client.step(b"")
        with pytest.raises(LoginFailed, match="iterations"):
            client.step(b"r=clientx,s=c2FsdA==,i=%d" % iterations)
    client = ScramClient("SCRAM-SHA-256", "alice", "right", "client")
    client.step(b"")
    client.step(b"r=clientx,s=c2FsdA==,i=4096")
    with pytest.raises(LoginFailed, match="signature"):
        client.step(b"v=" + base64.b64encode(bytes(32)))


# ---------------------------------------------------------------------- credentials


@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80), st.integers(0, 999_999_999))
def test_a_credential_is_kept_and_read(salt: bytes, stored: bytes, server: bytes, iterations: int):
    kept = ScramCredential(salt, stored, server, iterations)
    assert decode_credential(encode_credential(kept)) == kept
    assert "hidden" in repr(kept)


@given(st.text(max_size=80) | st.text(st.sampled_from("salt=,stored_keyrviations1A"), max_size=80))
def test_any_text_is_a_credential_or_refused(text: str):
    try:
        decode_credential(text)
    except MalformedCredential as refused:
        assert str(refused) == "Credentials not valid"


def test_a_credential_that_cannot_be_read_is_left_aside(caplog: pytest.LogCaptureFixture):
    users = Users({"alice": "x"})
    good = encode_credential(credential("SCRAM-SHA-512", "x"))
    users.put("alice", {"SCRAM-SHA-256": "salt=secret", "SCRAM-SHA-512": good, "producer_byte_rate": "1"})
    assert list(users.of("alice")) == ["SCRAM-SHA-512"]
    assert "secret" not in caplog.text and "SCRAM-SHA-256" in caplog.text
    users.put("alice", {"producer_byte_rate": "1"})
    assert list(users) == []


# ---------------------------------------------------------------------- PLAIN

PLAIN_USERS = PlainUsers({"user_alice": "right", "user_": "nobody", "user_bob": "", "username": "x", "user_Zoë": "ë"})


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b"\0alice\0right", "alice"),
        (b"alice\0alice\0right", "alice"),
        (b"\0alice\0right\0more", "alice"),
        ("\0Zoë\0ë".encode(), "Zoë"),
    ],
)
def test_plain_logs_in(token: bytes, name: str):
    server = PlainServer(PLAIN_USERS)
    assert server.step(token, NOW_MS) == b"" and server.login == Login(f"User:{name}")


@pytest.mark.parametrize(
    "token", [b"", b"alice", b"\0", b"\0alice", b"\0alice\0", b"\0\0nobody", b"\0bob\0", b"\0a\0" + b"p" * 20_000]
)
def test_plain_without_a_name_or_a_password_fails(token: bytes):
    with pytest.raises(LoginFailed):
        PlainServer(PLAIN_USERS).step(token, NOW_MS)


@pytest.mark.parametrize(
    "token", [b"\0alice\0wrong", b"\0alice\0righ", b"\0nobody\0right", b"\0alice\0\xff", b"root\0alice\0right"]
)
def test_plain_refuses_in_words(token: bytes):
    server = PlainServer(PLAIN_USERS)
    with pytest.raises(LoginRefused) as refused:
        server.step(token, NOW_MS)
    assert "right" not in str(refused.value) and server.login is None


def test_plain_from_both_sides():
    server = PlainServer(PLAIN_USERS)
    converse(PlainClient("alice", "right"), server)
    assert server.login == Login("User:alice")


@given(st.binary(max_size=100))
def test_any_bytes_are_a_login_or_refused(token: bytes):
    with contextlib.suppress(LoginFailed, LoginRefused):
        PlainServer(PLAIN_USERS).step(token, NOW_MS)
