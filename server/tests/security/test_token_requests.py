"""Delegation tokens from the request to the tree and back: the four APIs, brokers that share a tree, and what strangers write there."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.cluster.coordination import CoordinationUnavailable, Create, Delete, SetData, TooLarge
from ottla.server.api.handlers.delegation_tokens import (
    RENEWERS_MAX,
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from ottla.server.cluster import config_notifications, token_store
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.security import LOGIN_SECRET, settle_login_secret
from ottla.server.cluster.token_store import TokenStore
from ottla.server.config.security_config import TokenConfig
from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.security.mechanism import LoginFailed
from ottla.server.security.scram import ScramClient, ScramServer
from ottla.server.security.scram_credentials import MadeUpCredentials
from ottla.server.security.tokens import (
    ABOVE,
    CHANGE_PREFIX,
    CHANGES,
    TOKENS,
    DelegationToken,
    DelegationTokens,
    encode_token,
    token_path,
)
from ottla.server.tests.administered import AdministeredBroker, at_once, opened
from ottla.server.tests.rights import guard
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
DAY_MS = 86_400_000
SETTINGS = {
    "delegation.token.secret.key": "key of the tokens",
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AdministeredBroker:
    return await opened(tmp_path, SETTINGS)


def context_of(broker: AdministeredBroker, principal: str, version: int = 3, **changes: Any) -> Any:
    context = broker.context(version)
    context.principal, context.security_protocol = principal, "SASL_PLAINTEXT"
    for name, value in changes.items():
        setattr(context, name, value)
    return context


def creation(*renewers: str, owner: str | None = None, lifetime_ms: int = -1) -> CreateDelegationTokenRequest:
    kind, _, name = (owner or "").partition(":")
    return CreateDelegationTokenRequest(
        owner_principal_type=kind or None,
        owner_principal_name=name or None,
        renewers=[
            CreatableRenewers(principal_type=each.split(":")[0], principal_name=each.split(":")[1]) for each in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    )


async def create(
    broker: AdministeredBroker, principal: str, *renewers: str, owner: str | None = None, **changes: Any
) -> CreateDelegationTokenResponse:
    return await create_delegation_token(creation(*renewers, owner=owner), context_of(broker, principal, **changes))


async def renew(broker: AdministeredBroker, principal: str, hmac: bytes, period_ms: int = -1, **changes: Any) -> Any:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return await renew_delegation_token(request, context_of(broker, principal, **changes))


async def expire(broker: AdministeredBroker, principal: str, hmac: bytes, period_ms: int = -1, **changes: Any) -> Any:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return await expire_delegation_token(request, context_of(broker, principal, **changes))


async def describe(
    broker: AdministeredBroker, principal: str, owners: Sequence[str] | None = None, **changes: Any
) -> Any:
    wanted = None
    if owners is not None:
        parts = [each.split(":") for each in owners]
        wanted = [DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in parts]
    return await describe_delegation_token(
        DescribeDelegationTokenRequest(owners=wanted), context_of(broker, principal, **changes)
    )


async def ids_told(broker: AdministeredBroker, principal: str, owners: Sequence[str] | None = None) -> set[str]:
    answer = await describe(broker, principal, owners)
    assert answer.error_code == 0
    return {each.token_id for each in answer.tokens}


def can_log_in(broker: AdministeredBroker, token_id: str, hmac: bytes) -> bool:
    client = ScramClient("SCRAM-SHA-256", token_id, base64.b64encode(hmac).decode(), "c", with_token=True)
    server = ScramServer("SCRAM-SHA-256", broker.scram_users, lambda: "s")
    now_ms = broker.now_ms()
    try:
        client.step(server.step(client.step(server.step(client.step(b""), now_ms)), now_ms))
    except LoginFailed:
        return False
    assert server.login is not None and server.login.by_token
    return True


# ---------------------------------------------------------------------- one broker


async def test_a_token_is_made_told_renewed_and_removed(broker: AdministeredBroker) -> None:
    made = await create(broker, ALICE, BOB)
    assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "alice")
    assert (made.token_requester_principal_type, made.token_requester_principal_name) == ("User", "alice")
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == DAY_MS
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 7 * DAY_MS
    assert can_log_in(broker, made.token_id, made.hmac)
    (told,) = (await describe(broker, ALICE)).tokens
    assert (told.token_id, told.hmac, told.principal_name) == (made.token_id, made.hmac, "alice")
    assert [(each.principal_type, each.principal_name) for each in told.renewers] == [("User", "bob")]
    renewed = await renew(broker, BOB, made.hmac, 1_000)
    assert renewed.error_code == 0 and renewed.expiry_timestamp_ms < made.expiry_timestamp_ms
    changed = await expire(broker, ALICE, made.hmac, 2 * DAY_MS)
    assert changed.error_code == 0 and changed.expiry_timestamp_ms > made.expiry_timestamp_ms
    assert (await describe(broker, BOB)).tokens[0].expiry_timestamp == changed.expiry_timestamp_ms
    removed = await expire(broker, BOB, made.hmac)
    assert removed.error_code == 0 and removed.expiry_timestamp_ms <= broker.now_ms()
    assert not can_log_in(broker, made.token_id, made.hmac)
    for answer in (await renew(broker, ALICE, made.hmac), await expire(broker, ALICE, made.hmac)):
        assert (answer.error_code, answer.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)
    assert await broker.coordination.children(TOKENS) == []
    assert await broker.coordination.children(CHANGES) == []


async def test_tokens_outlive_the_broker(broker: AdministeredBroker, tmp_path: Path) -> None:
    made = await create(broker, ALICE)
    await broker.stop()
    again = await opened(tmp_path, SETTINGS)
    assert can_log_in(again, made.token_id, made.hmac)
    await again.stop()
    other_key = await opened(tmp_path, SETTINGS | {"delegation.token.secret.key": "another"})
    assert await ids_told(other_key, ALICE) == {made.token_id}
    assert not can_log_in(other_key, made.token_id, made.hmac)


async def test_who_may_not_ask(broker: AdministeredBroker) -> None:
    code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    made = await create(broker, ALICE)
    for principal, changes in (
        (ALICE, {"security_protocol": "PLAINTEXT"}),
        ("User:ANONYMOUS", {"security_protocol": "SSL"}),
        (ALICE, {"is_token_authenticated": True}),
    ):
        refused = await create(broker, principal, **changes)
        assert (refused.error_code, refused.expiry_timestamp_ms, refused.hmac) == (code, -1, b"")
        for ask in (renew, expire):
            answer = await ask(broker, principal, made.hmac, **changes)
            assert (answer.error_code, answer.expiry_timestamp_ms) == (code, -1)
        answer = await describe(broker, principal, **changes)
        assert (answer.error_code, answer.tokens) == (code, [])
    assert (await create(broker, "User:CN=client", security_protocol="SSL")).error_code == 0
    assert can_log_in(broker, made.token_id, made.hmac)


async def test_without_a_key_there_are_no_tokens(tmp_path: Path) -> None:
    without = {name: value for name, value in SETTINGS.items() if "key" not in name}
    broker = await opened(tmp_path, without)
    code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    answers = [await create(broker, ALICE), await renew(broker, ALICE, b""), await expire(broker, ALICE, b"")]
    assert [each.error_code for each in answers] == [code] * 3
    assert (await describe(broker, ALICE)).error_code == code
    assert not can_log_in(broker, "id", b"")
    assert await broker.coordination.get_all([ABOVE]) == [None]


async def test_a_token_for_somebody_else_needs_a_right(broker: AdministeredBroker) -> None:
    guard(broker)
    refused = await create(broker, ALICE, owner=BOB)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name) == ("bob", "alice")
    assert (await create(broker, ALICE, owner=ALICE)).error_code == 0
    guard(broker, (AclOperation.CREATE_TOKENS, ResourceType.USER, BOB))
    made = await create(broker, ALICE, CAROL, owner=BOB)
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "bob", "alice")
    # Who has asked for it is told of it, but may not change it.
    assert made.token_id in await ids_told(broker, ALICE)
    assert (await renew(broker, ALICE, made.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await expire(broker, ALICE, made.hmac)).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await renew(broker, BOB, made.hmac)).error_code == (await renew(broker, CAROL, made.hmac)).error_code == 0


async def test_owners_and_renewers_that_cannot_be(broker: AdministeredBroker) -> None:
    refused = await create(broker, ALICE, BOB, "Group:g")
    assert (refused.error_code, refused.issue_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)
    request = creation()
    request.owner_principal_name = "bob"
    answer = await create_delegation_token(request, context_of(broker, ALICE))
    assert (answer.error_code, answer.principal_name) == (ErrorCode.UNKNOWN_SERVER_ERROR, "ANONYMOUS")
    # Types of owners are nobody's business.
    assert (await create(broker, ALICE, owner="Group:g")).error_code == 0


async def test_what_a_client_is_told(broker: AdministeredBroker) -> None:
    guard(broker, (AclOperation.CREATE_TOKENS, ResourceType.USER, CAROL))
    alices, bobs = (await create(broker, ALICE)).token_id, (await create(broker, BOB, ALICE)).token_id
    carols, for_carol = (await create(broker, CAROL)).token_id, (await create(broker, BOB, owner=CAROL)).token_id
    for principal, owners, told in (
        (ALICE, None, {alices, bobs}),
        (ALICE, [ALICE], {alices, bobs}),
        (ALICE, [BOB], {bobs}),
        (ALICE, [CAROL], set()),
        (ALICE, [], set()),
        (BOB, None, {bobs, for_carol}),
        (BOB, [CAROL], {for_carol}),
        (CAROL, [ALICE, BOB], {for_carol}),
        ("User:mallory", None, set()),
    ):
        assert await ids_told(broker, principal, owners) == told
    guard(broker, (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, carols))
    assert await ids_told(broker, ALICE) == {alices, bobs, carols}
    guard(broker, (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, CAROL))
    assert await ids_told(broker, ALICE) == {alices, bobs, carols, for_carol}
    assert await ids_told(broker, ALICE, [CAROL]) == {carols, for_carol}


async def test_floods_have_an_end(broker: AdministeredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    code = ErrorCode.POLICY_VIOLATION
    assert (await create(broker, ALICE, *[BOB] * (RENEWERS_MAX + 1))).error_code == code
    assert (await create(broker, ALICE, *[f"User:{'x' * 99}"] * RENEWERS_MAX)).error_code == code
    assert (await create(broker, ALICE, owner=f"User:{'x' * 5_000}")).error_code == code
    monkeypatch.setattr(token_store, "TOKENS_OF_REQUESTER_MAX", 2)
    monkeypatch.setattr(token_store, "TOKENS_MAX", 3)
    assert [(await create(broker, ALICE)).error_code for _ in range(3)] == [0, 0, code]
    assert [(await create(broker, BOB)).error_code for _ in range(2)] == [0, code]


async def test_a_token_that_cannot_be_kept_is_none(broker: AdministeredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await create(broker, ALICE)

    async def fail(_: object) -> None:
        raise TooLarge("/delegation_token/tokens")

    monkeypatch.setattr(broker.coordination, "multi", fail)
    assert (await create(broker, BOB)).error_code != 0
    assert (await renew(broker, ALICE, made.hmac, 5)).error_code != 0
    assert await ids_told(broker, BOB) == {made.token_id} and can_log_in(broker, made.token_id, made.hmac)


async def test_expired_tokens_are_removed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await opened(tmp_path, SETTINGS)
    store = broker.member.tokens
    assert store is not None
    first, second = await create(broker, ALICE), await create(broker, ALICE)
    now_ms = broker.now_ms()
    await expire(broker, ALICE, first.hmac, 0)
    monkeypatch.setattr(store, "_clock_ms", lambda: now_ms + 60_000)
    code = ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert (await renew(broker, ALICE, first.hmac)).error_code == code
    assert (await expire(broker, ALICE, first.hmac, 5)).error_code == code
    assert await ids_told(broker, ALICE) == {first.token_id, second.token_id}
    await trio.sleep(3_601)
    assert await ids_told(broker, ALICE) == {second.token_id}
    assert await broker.coordination.children(TOKENS) == [second.token_id]


async def test_garbage_stops_nobody(
    broker: AdministeredBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = await create(broker, ALICE)
    garbage = {"x": b"", "y": b"[]", "a b": b"{}", "z": b'{"version":3,"owner":"secret"}', "w": b"\xff"}
    await broker.coordination.multi([Create(token_path(name), data) for name, data in garbage.items()])
    await broker.stop()
    caplog.clear()
    again = await opened(tmp_path, SETTINGS)
    assert await ids_told(again, ALICE) == {made.token_id}
    lines = [each for each in caplog.messages if "Left aside a delegation token" in each]
    assert len(lines) == len(garbage) and not any("secret" in each for each in lines)


# ---------------------------------------------------------------------- the secret for logins


async def test_the_secret_of_logins_stays(tmp_path: Path) -> None:
    tree = EmbeddedCoordination(tmp_path, run_in_thread=at_once)
    tree.open()
    await tree.multi([Create("/ottla")])
    secret = await settle_login_secret(tree)
    assert len(secret) == 32 and await settle_login_secret(tree) == secret
    for short in (b"", b"x" * 31):
        await tree.multi([SetData(LOGIN_SECRET, short)])
        mended = await settle_login_secret(tree)
        assert len(mended) == 32 and await settle_login_secret(tree) == mended != secret
    tree.close()


async def test_whoever_is_slower_takes_the_secret_of_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = EmbeddedCoordination(tmp_path, run_in_thread=at_once)
    tree.open()
    await tree.multi([Create("/ottla")])
    multi, others = tree.multi, b"o" * 32

    async def outrun(operations: Any) -> Any:
        await multi([Create(LOGIN_SECRET, others)])
        return await multi(operations)

    monkeypatch.setattr(tree, "multi", outrun)
    assert await settle_login_secret(tree) == others
    tree.close()


async def test_strangers_look_the_same_after_a_restart(broker: AdministeredBroker, tmp_path: Path) -> None:
    def answer(one: AdministeredBroker) -> bytes:
        return ScramServer("SCRAM-SHA-256", one.scram_users, lambda: "s").step(b"n,,n=nobody,r=c", 0)

    before = answer(broker)
    await broker.stop()
    assert answer(await opened(tmp_path, SETTINGS)) == before


# ---------------------------------------------------------------------- several brokers


def store_on(tree: EmbeddedCoordination, now_ms: int = 1_000) -> TokenStore:
    table = DelegationTokens(b"key")
    table.salt_of = MadeUpCredentials(b"s" * 32).salt_of_token
    return TokenStore(
        table,
        TokenConfig(),
        tree,
        refusal=lambda error: KafkaError(ErrorCode.REQUEST_TIMED_OUT),
        is_controller=lambda: True,
        has_readers=True,
        clock_ms=lambda: now_ms,
        run_in_thread=at_once,
    )


@asynccontextmanager
async def two_brokers(directory: Path) -> AsyncIterator[tuple[EmbeddedCoordination, TokenStore, TokenStore]]:
    tree = EmbeddedCoordination(directory, run_in_thread=at_once)
    tree.open()
    one, other = store_on(tree), store_on(tree)
    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await nursery.start(other.run)
        yield tree, one, other
        nursery.cancel_scope.cancel()
    tree.close()


settled = trio.testing.wait_all_tasks_blocked


async def test_a_change_is_in_force_on_every_broker(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (tree, one, other):
        token, hmac = await one.create(ALICE, ALICE, (BOB,), -1)
        await settled()
        assert other.table.by_hmac(hmac) == token
        expires_ms = await other.renew(hmac, BOB, 5)
        await settled()
        assert one.table.get(token.token_id) == token._replace(expires_ms=expires_ms)
        await other.expire(hmac, ALICE, -1)
        await settled()
        assert len(one.table) == len(other.table) == 0
        held = [node.data for node in (await tree.children_data(CHANGES)).values()]
        assert held == [token.token_id.encode()] * 3


async def test_what_is_decided_rests_on_what_the_tree_has(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (tree, one, other):
        token, hmac = await one.create(ALICE, ALICE, (), -1)
        await settled()
        path = token_path(token.token_id)
        # Written by somebody whose notice has not come yet.
        await tree.multi([SetData(path, encode_token(token._replace(owner=BOB)))])
        with pytest.raises(KafkaError) as raised:
            await one.renew(hmac, ALICE, 5)
        assert raised.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        await tree.multi([SetData(path, b"garbage")])
        with pytest.raises(KafkaError) as raised:
            await one.renew(hmac, BOB, 5)
        assert raised.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        await tree.multi([Delete(path)])
        with pytest.raises(KafkaError) as raised:
            await other.expire(hmac, ALICE, -1)
        assert raised.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND and len(other.table) == 0


async def test_who_was_slower_decides_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with two_brokers(tmp_path) as (tree, one, _):
        token, hmac = await one.create(ALICE, ALICE, (), -1)
        multi, path = tree.multi, token_path(token.token_id)
        later = token._replace(max_ms=token.max_ms + 9)
        faster = [[SetData(path, encode_token(later))]] * 2

        async def outrun(operations: Any) -> Any:
            if faster:
                await multi(faster.pop())
            return await multi(operations)

        monkeypatch.setattr(tree, "multi", outrun)
        expires_ms = await one.expire(hmac, ALICE, 1 << 60)
        assert expires_ms == later.max_ms and one.table.by_hmac(hmac) == later._replace(expires_ms=expires_ms)


async def test_whoever_is_always_slower_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with two_brokers(tmp_path) as (tree, one, _):
        token, hmac = await one.create(ALICE, ALICE, (), -1)
        multi = tree.multi

        async def outrun(operations: Any) -> Any:
            await multi([SetData(token_path(token.token_id), encode_token(token))])
            return await multi(operations)

        monkeypatch.setattr(tree, "multi", outrun)
        with pytest.raises(KafkaError) as raised:
            await one.renew(hmac, ALICE, 5)
        assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_foreign_notices_and_nodes_do_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two_brokers(tmp_path) as (tree, one, other):
        token, _ = await one.create(ALICE, ALICE, (), -1)
        await settled()
        older = json.loads(encode_token(token))
        older = {**older, "version": 1, "tokenId": "older"}
        del older["tokenRequester"]
        await tree.multi(
            [
                Create(token_path("bad"), b"\xff"),
                Create(token_path("older"), json.dumps(older).encode()),
                *[
                    Create(f"{CHANGES}/{CHANGE_PREFIX}", data, sequential=True)
                    for data in (b"bad", b"\xff/..", b"", b"../x", b"nowhere", b"older", b"x" * 100_000)
                ],
                Create(f"{CHANGES}/other"),
                Create(f"{CHANGES}/{CHANGE_PREFIX}x1"),
            ]
        )
        await settled()
        for each in (one, other):
            assert {known.token_id for known in each.table} == {token.token_id, "older"}
        assert caplog.text.count("Left aside a delegation token") == 2
        await tree.multi([SetData(token_path(token.token_id), b"{}")])
        await one.expire(one.table.hmac("older"), ALICE, -1)
        await settled()
        assert {known.token_id for known in other.table} == {token.token_id}


async def test_tokens_are_read_again_when_the_tree_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_brokers(tmp_path) as (tree, one, other):
        get_all, failures = tree.get_all, [CoordinationUnavailable()] * 2

        async def fail_first(paths: Any) -> Any:
            if failures and any(path.startswith(TOKENS) for path in paths):
                raise failures.pop()
            return await get_all(paths)

        monkeypatch.setattr(tree, "get_all", fail_first)
        monkeypatch.setattr(tree, "until_available", trio.lowlevel.checkpoint, raising=False)
        token, _ = await one.create(ALICE, ALICE, (), -1)
        await settled()
        assert failures == [] and other.table.get(token.token_id) == token


async def test_old_notices_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path) as (tree, one, other):
        await one.create(ALICE, ALICE, (), -1)
        await settled()
        # This tree does not say when a node was made.
        other._notices._created_ms = dict.fromkeys(other._notices._created_ms, 1)
        monkeypatch.setattr(other._notices, "_clock_ms", lambda: config_notifications.EXPIRATION_MS + 2)
        await one.create(ALICE, ALICE, (), -1)
        await settled()
        assert len(await tree.children(CHANGES)) == 1


async def test_many_that_have_expired_go_unless_somebody_has_renewed_them(tmp_path: Path) -> None:
    tree = EmbeddedCoordination(tmp_path, run_in_thread=at_once)
    tree.open()
    store = store_on(tree)
    await store.read_all()
    tokens = [DelegationToken(f"t{number}", ALICE, ALICE, (), 1, 9_000, 900) for number in range(250)]
    await tree.multi([Create(token_path(each.token_id), encode_token(each)) for each in tokens])
    await store.read_all()
    renewed = encode_token(tokens[7]._replace(expires_ms=2_000))
    await tree.multi([SetData(token_path("t7"), renewed), Delete(token_path("t8"))])
    await store.remove_expired()
    assert await tree.children(TOKENS) == ["t7"] == [each.token_id for each in store.table]
    assert len(await tree.children(CHANGES)) == 248
    tree.close()


async def test_what_logins_need_is_made_in_the_background(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (_, one, _), trio.open_nursery() as nursery:
        nursery.start_soon(one.work)
        for _ in range(2 * token_store.DERIVED_AT_ONCE + 1):
            await one.create(ALICE, ALICE, (), -1)
        assert one.table.underived(1)
        await settled()
        assert not one.table.underived(1)
        nursery.cancel_scope.cancel()
