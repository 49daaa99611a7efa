"""Clients of a proxy with users have to log in, before their bodies are read."""

from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.http.basic_authentication import InvalidUsers
from ottla.server.admin.http.routes import Refused, Request
from ottla.server.rest.api import RestApi
from ottla.server.rest.logins import Logins, read_logins


def request(authorization: str | None = None) -> Request:
    headers = {} if authorization is None else {"authorization": authorization}
    return Request(method="GET", path="/topics", raw_path="/topics", headers=headers)


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "users.properties"
    found.write_text("user.alice=a: password\nuser.bob=b\n")
    found.chmod(0o600)
    return found


def test_users_are_let_in_and_others_are_not(file: Path) -> None:
    check = RestApi("http", logins=read_logins(file)).find("POST", "/topics/a").check
    for text in ("alice:a: password", "bob:b"):
        check(request(basic(text)))
    wrong = [basic(each) for each in ("alice:b", "alice:", "bob", "carol:", ":", "ALICE:a: password")]
    for each in (None, "", "Basic", "Basic *", "Bearer abc", *wrong):
        with pytest.raises(Refused) as refused:
            check(request(each))
        assert refused.value.status == 401
        assert ("WWW-Authenticate", 'Basic realm="REST proxy"') in refused.value.headers


def test_without_users_everybody_is_let_in() -> None:
    Logins().check(request())


@given(st.text(max_size=30))
def test_any_header_is_no_login(text: str) -> None:
    with pytest.raises(Refused):
        Logins({"alice": b"long enough not to be drawn"}).check(request(text))
    with pytest.raises(Refused):
        Logins({"alice": b"long enough not to be drawn"}).check(request(f"basic {text}"))


@pytest.mark.parametrize("text", ["alice=a", "user.=a", r"user.a\:b=c", "user.alice=", "user.alice=\\u12"])
def test_a_file_that_cannot_be_used_is_said(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidUsers):
        read_logins(file)


def test_a_file_that_others_may_read_is_refused(file: Path) -> None:
    file.chmod(0o644)
    with pytest.raises(InvalidUsers, match="chmod 600"):
        read_logins(file)
    with pytest.raises(InvalidUsers, match="cannot read"):
        read_logins(file.parent / "missing")
