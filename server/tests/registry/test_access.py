"""Users of a registry, and what they may do."""

import json
import os
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.http.basic_authentication import InvalidUsers
from ottla.server.admin.http.routes import Refused, Request
from ottla.server.registry.access import Access, parse_users, read_access
from ottla.server.tests.registry.registry import MemoryRegistry, record

USERS = {
    "user.admin": "root",
    "rights.admin": "read,write,delete,compatibility:*",
    "user.maker": "p:w",
    "rights.maker": "read,write:orders-* read:shared",
    "user.reader": "x",
    "rights.reader": "read:orders-value",
    "user.nobody": "y",
}


def login(name: str, password: str) -> str:
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


ADMIN, MAKER, READER, NOBODY = (
    login("admin", "root"), login("maker", "p:w"), login("reader", "x"), login("nobody", "y"),
)  # fmt: skip


async def filled() -> MemoryRegistry:
    registry = MemoryRegistry(access=Access(parse_users(USERS)))
    for subject, schema in (("orders-value", record("a")), ("shared", record("b")), ("secret", record("c"))):
        assert await register(registry, subject, schema, ADMIN) > 0
    return registry


async def register(registry: MemoryRegistry, subject: str, schema: object, user: str) -> Any:

    found = await registry.ask(
        "POST", f"/subjects/{subject}/versions", {"schema": json.dumps(schema)}, authorization=user
    )
    return found["id"] if isinstance(found, dict) else found


async def test_rights_to_subjects() -> None:
    registry = await filled()
    ask = registry.ask
    assert await register(registry, "orders-key", record("k"), MAKER) == 4
    assert await register(registry, "secret", record("k"), MAKER) == (
        40301,
        "User is denied operation write on subject secret",
    )
    for user, method, path, is_allowed in (
        (MAKER, "GET", "/subjects/orders-value/versions", True),
        (MAKER, "GET", "/subjects/shared/versions/1", True),
        (MAKER, "GET", "/subjects/secret/versions", False),
        (MAKER, "DELETE", "/subjects/orders-value", False),
        (MAKER, "PUT", "/config/orders-value", False),
        (MAKER, "PUT", "/config", False),
        (MAKER, "GET", "/config", False),
        (MAKER, "DELETE", "/contexts/.c", False),
        (READER, "GET", "/subjects/orders-key/versions", False),
        (READER, "GET", "/config/orders-value?defaultToGlobal=true", True),
        (ADMIN, "GET", "/config", True),
        (ADMIN, "DELETE", "/subjects/orders-key", True),
    ):
        found = await ask(method, path, {} if method == "PUT" else None, authorization=user)
        assert (not (isinstance(found, tuple) and found[0] == 40301)) == is_allowed, (method, path, found)


async def test_lists_show_what_may_be_read() -> None:
    registry = await filled()
    for user, names in (
        (ADMIN, ["orders-value", "secret", "shared"]),
        (MAKER, ["orders-value", "shared"]),
        (READER, ["orders-value"]),
        (NOBODY, []),
    ):
        assert await registry.ask("GET", "/subjects", authorization=user) == names
        schemas = await registry.ask("GET", "/schemas", authorization=user)
        assert [each["subject"] for each in schemas] == names


async def test_an_id_may_be_read_by_whoever_may_read_a_subject_that_has_it() -> None:
    registry = await filled()
    assert "schema" in await registry.ask("GET", "/schemas/ids/1", authorization=READER)
    assert (await registry.ask("GET", "/schemas/ids/3", authorization=READER))[0] == 40301
    assert (await registry.ask("GET", "/schemas/ids/1/versions", authorization=NOBODY))[0] == 40301
    guid = (
        await registry.ask("GET", "/schemas/ids/3", authorization=ADMIN, confluent_accept_unknown_properties="true")
    )["guid"]
    assert (await registry.ask("GET", f"/schemas/guids/{guid}", authorization=READER))[0] == 40301


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !", "Bearer x", login("admin", "wrong"), login("admin", ""), login("x", "root"), "Basic YQ=="]
)  # fmt: skip
def test_whoever_is_no_user_is_refused_before_a_body_is_read(header: str) -> None:
    registry = MemoryRegistry(access=Access(parse_users(USERS)))
    request = Request(method="POST", path="/subjects/s/versions", headers={"authorization": header})
    with pytest.raises(Refused) as refused:
        registry.api.find("POST", request.path).check(request)
    answer = registry.api.refusal(refused.value)
    assert answer.status == 401 and answer.body == b'{"error_code": 401, "message": "HTTP 401 Unauthorized"}'
    assert any(name == "WWW-Authenticate" for name, _ in answer.headers)


def test_without_a_file_everybody_may_do_everything() -> None:
    request = Request(method="GET", path="/")
    Access().check_login(request)
    Access().check(request, "delete", None)
    assert Access().readable(request) is None


@pytest.mark.parametrize(
    "texts",
    [
        {"x": "y"}, {"rights.a": "read:*"}, {"user.a": ""}, {"user.": "x"}, {"user.a:b": "x"}, {"user.a": "x", "rights.a": "read"},
        {"user.a": "x", "rights.a": "fly:*"}, {"user.a": "x", "rights.a": "read:"},
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused(texts: dict[str, str]) -> None:
    with pytest.raises(InvalidUsers):
        parse_users(texts)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users.properties"
    with pytest.raises(InvalidUsers, match="cannot read"):
        read_access(file)
    file.write_text("user.a=b\nrights.a=read:*\n")
    os.chmod(file, 0o640)
    with pytest.raises(InvalidUsers, match="chmod 600"):
        read_access(file)
    os.chmod(file, 0o600)
    request = Request(method="GET", path="/", headers={"authorization": login("a", "b")})
    read_access(file).check(request, "read", "x")


@given(st.text(max_size=30))
def test_no_header_raises_anything_else(header: str) -> None:
    access = Access(parse_users(USERS))
    for text in (header, f"Basic {header}", "Basic " + b64encode(header.encode("utf-8", "surrogatepass")).decode()):
        with pytest.raises(Refused):
            access.check_login(Request(method="GET", path="/", headers={"authorization": text}))
