"""What a client of OAUTHBEARER begins with: taken and refused as by Kafka's OAuthBearerClientInitialResponse."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.security.mechanism import LoginFailed
from ottla.server.security.oauth.bearer import (
    MESSAGE_BYTES_MAX,
    PAIRS_MAX,
    TOKEN_CHARACTERS_MAX,
    decode_client_first,
)

# Kafka's own pattern, as the oracle; it backtracks, so that the parser is written otherwise.
_VALUE = "[\\x21-\\x7e \t\r\n]+"
ORACLE = re.compile(
    "n,(a=(?P<authzid>(?:[\\x01-\\x2b\\x2d-\\x3c\\x3e-\\x7f]|=2C|=3D)+))?,\x01(?P<pairs>([A-Za-z]+="
    + _VALUE
    + "\x01)*)\x01"
)
ORACLE_AUTH = re.compile("(?P<scheme>[A-Za-z0-9_]+)[ ]+(?P<token>[-_~+/\\.a-zA-Z0-9]+([=]*))")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"n,,\x01auth=Bearer abc.def.ghi\x01\x01", ("abc.def.ghi", "")),
        (b"n,,\x01auth=bEARER   abc==\x01\x01", ("abc==", "")),
        (b"n,a=alice,\x01auth=Bearer x\x01\x01", ("x", "alice")),
        (b"n,a=a=2Cb=3D,\x01auth=Bearer x\x01\x01", ("x", "a=2Cb=3D")),
        (b"n,a=a\x01b,\x01auth=Bearer x\x01\x01", ("x", "a\x01b")),
        (b"n,,\x01key=va lue=\t\x01auth=Bearer x\x01other=1\x01\x01", ("x", "")),
        (b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01", ("y", "")),
    ],
)
def test_what_is_taken(message: bytes, expected: tuple[str, str]):
    assert tuple(decode_client_first(message)) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer x",
        b"n,,auth=Bearer x\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
        b"n,a=,\x01auth=Bearer x\x01\x01",
        b"n,a=a=2cb,\x01auth=Bearer x\x01\x01",
        b"n,alice,\x01auth=Bearer x\x01\x01",
        b"n,a=\xc3\xbc,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer a=b\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xbc\x01\x01",
        b"n,,\x01key=value\x01\x01",
        b"n,,\x01auth=Bearer x\x01k3y=value\x01\x01",
        b"n,,\x01auth=Bearer x\x01key=\x01\x01",
        b"n,,\x01auth=Bearer x\x01key=\xc3\xbc\x01\x01",
        b"n,,\x01auth=Bearer x\x01key=a\x00b\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01\x01",
        b"n,,\x01auth=Bearer x\x01\x01 ",
        b"n,a=" + b"a" * 1001 + b",\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * (TOKEN_CHARACTERS_MAX + 1) + b"\x01\x01",
        b"n,,\x01auth=Bearer x\x01key=" + b"x" * MESSAGE_BYTES_MAX + b"\x01\x01",
        b"n,,\x01auth=Bearer x\x01" + b"k=v\x01" * PAIRS_MAX + b"\x01",
    ],
)
def test_what_is_refused(message: bytes):
    with pytest.raises(LoginFailed):
        decode_client_first(message)


def test_the_longest_token_is_taken():
    token = "x" * TOKEN_CHARACTERS_MAX
    assert decode_client_first(f"n,,\x01auth=Bearer {token}\x01\x01".encode()).token == token
    assert token not in repr(decode_client_first(f"n,,\x01auth=Bearer {token}\x01\x01".encode()))


_PIECES = [
    "n,",
    ",",
    "a=",
    "alice",
    "=2C",
    "=",
    "\x01",
    "auth=Bearer ",
    "auth=",
    "Bearer",
    "token",
    "k=v",
    " ",
    "\x00",
    "ü",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join) | st.text(max_size=40))
def test_it_takes_just_what_kafkas_pattern_takes(text: str):
    found = ORACLE.fullmatch(text)
    auth = None
    if found is not None:
        pairs = dict(each.split("=", 1) for each in found["pairs"].split("\x01") if each)
        auth = ORACLE_AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        with pytest.raises(LoginFailed):
            decode_client_first(text.encode())
    else:
        assert decode_client_first(text.encode()) == (auth["token"], found["authzid"] or "")


@given(st.binary(max_size=300) | st.binary(max_size=200).map(lambda data: b"n,,\x01auth=Bearer " + data + b"\x01\x01"))
def test_any_bytes_are_taken_or_refused(data: bytes):
    try:
        first = decode_client_first(data)
    except LoginFailed as failed:
        assert len(str(failed)) < 200
    else:
        assert first.token and first.token.encode() in data
