"""Rules from the request to the tree and back: the three APIs, the nodes, and brokers that share a tree."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.cluster.coordination import Create, Delete, SetData, TooLarge
from ottla.replication.cluster.znodes import MalformedNode
from ottla.server.api.handlers.acls import create_acls, delete_acls, describe_acls
from ottla.server.cluster import acl_store as store_module
from ottla.server.cluster.acl_store import AclStore
from ottla.server.cluster.config_notifications import EXPIRATION_MS, ChangeNotices
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.session import JoinProblem
from ottla.server.config.security_config import AuthorizerConfig
from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.security import acl_znodes
from ottla.server.security.acls import Acl, AclFilter, Pattern, PatternType, Permission
from ottla.server.security.authorizer import AclAuthorizer
from ottla.server.tests.administered import AdministeredBroker, at_once, opened
from ottla.server.tests.api.test_metadata import asked
from ottla.server.tests.security.test_authorizer import acl
from ottla.wire import time_slice
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from ottla.wire.tests.turns import counted_turns

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE, ALTER = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER
LITERAL, PREFIXED, MATCH, ANY = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH, PatternType.ANY
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
EVERYTHING = (1, None, 1)


def ask_as(broker: AdministeredBroker, who: str = "User:admin", version: int = 3) -> RequestContext:
    context = broker.context(version)
    context.principal, context.client_host = who, "/10.0.0.1"
    return context


async def create(broker: AdministeredBroker, *acls: Acl, who: str = "User:admin") -> list[tuple[int, str | None]]:
    creations = [
        AclCreation(
            resource_type=pattern.resource_type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern_type,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in acls
    ]
    response = await create_acls(CreateAclsRequest(creations=creations), ask_as(broker, who))
    return [(each.error_code, each.error_message) for each in response.results]


async def describe(
    broker: AdministeredBroker,
    resource: tuple[int, str | None, int] = EVERYTHING,
    entry: tuple[str | None, str | None, int, int] = (None, None, 1, 1),
    who: str = "User:admin",
) -> set[Acl]:
    """KafkaError if the answer is one."""
    request = DescribeAclsRequest(
        resource_type_filter=resource[0],
        resource_name_filter=resource[1],
        pattern_type_filter=resource[2],
        principal_filter=entry[0],
        host_filter=entry[1],
        operation=entry[2],
        permission_type=entry[3],
    )
    response = await describe_acls(request, ask_as(broker, who))
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), response.error_message)
    assert response.error_message == ""
    return {
        acl(
            each.resource_name,
            AclOperation(one.operation),
            Permission(one.permission_type),
            who=one.principal,
            host=one.host,
            kind=PatternType(each.pattern_type),
            of=ResourceType(each.resource_type),
        )
        for each in response.resources
        for one in each.acls
    }


async def delete(
    broker: AdministeredBroker, *filters: tuple[int, str | None, int, str | None, int], who: str = "User:admin"
) -> list[tuple[int, str | None, set[str]]]:
    """`filters`: type, name, type of pattern, principal, operation. The answer tells the names of what was removed."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter=name,
                pattern_type_filter=pattern,
                principal_filter=principal,
                host_filter=None,
                operation=operation,
                permission_type=1,
            )
            for kind, name, pattern, principal, operation in filters
        ]
    )
    response = await delete_acls(request, ask_as(broker, who))
    return [
        (each.error_code, each.error_message, {one.resource_name for one in each.matching_acls if not one.error_code})
        for each in response.filter_results
    ]


# ------------------------------------------------------------------ the three APIs


async def test_rules_are_added_found_obeyed_and_removed(tmp_path: Path) -> None:
    broker = await opened(tmp_path, SECURED)
    rules = [
        acl("t", WRITE),
        acl("t", WRITE, who="User:b"),
        acl("pre", kind=PREFIXED),
        acl("g", of=GROUP),
        acl("*", READ),
    ]
    assert await create(broker, *rules, rules[0]) == [(0, "")] * 6
    assert await describe(broker) == set(rules)
    assert await describe(broker, (TOPIC, "prefix", MATCH)) == {rules[2], rules[4]}
    assert await describe(broker, (TOPIC, "t", LITERAL), ("User:b", None, 1, 1)) == {rules[1]}
    assert await describe(broker, (TOPIC, "t", PREFIXED)) == set()
    assert await describe(broker, (TOPIC, None, 77)) == set()
    response = await asked(broker, ["t"], allow_auto_topic_creation=False)
    assert response.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED  # an anonymous client
    filters = [
        (TOPIC, "t", MATCH, "User:a", 1),
        (1, None, ANY, None, 1),
        (1, None, ANY, None, 1),
        (99, None, 1, None, 1),
    ]
    removed = await delete(broker, *filters, (1, None, 1, None, 99))
    assert removed == [
        (0, None, {"t", "*"}),
        (0, None, {"t", "pre", "g", "*"}),
        (0, None, {"t", "pre", "g", "*"}),
        (ErrorCode.INVALID_REQUEST, "Unknown patternFilter.", set()),
        (ErrorCode.INVALID_REQUEST, "Unknown entryFilter.", set()),
    ]
    assert await describe(broker) == set()


async def test_rules_outlive_the_broker(tmp_path: Path) -> None:
    broker = await opened(tmp_path, SECURED)
    rules = {acl("топик", WRITE, who="User:Чехов", host="10.0.0.0/8"), acl("pre", AclOperation.ALL, kind=PREFIXED)}
    await create(broker, *rules)
    await broker.stop()
    again = await opened(tmp_path, SECURED)
    assert await describe(again) == rules
    assert again.authorizer is not None
    assert again.authorizer.allows("User:Чехов", "/10.9.9.9", WRITE, TOPIC, "топик", quietly=True)


async def test_a_broker_does_not_start_on_rules_that_it_cannot_read(tmp_path: Path) -> None:
    broker = await opened(tmp_path, SECURED)
    await create(broker, acl("t"))
    await broker.coordination.multi([SetData("/kafka-acl/Topic/t", b"no json")])
    await broker.stop()
    with pytest.raises(JoinProblem, match="/kafka-acl/Topic/t: no ACLs"):
        await opened(tmp_path, SECURED)


async def test_rules_need_rights_to_the_cluster(tmp_path: Path) -> None:
    broker = await opened(tmp_path, SECURED)
    forbidden = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert [code for code, _ in await create(broker, acl("t"), acl("u"), who="User:a")] == [forbidden] * 2
    assert (await delete(broker, (1, None, 1, None, 1), who="User:a"))[0][0] == forbidden
    with pytest.raises(KafkaError) as caught:
        await describe(broker, who="User:a")
    assert caught.value.code is forbidden
    assert caught.value.message == "Request DescribeAcls needs DESCRIBE permission."
    await create(broker, acl("kafka-cluster", ALTER, of=CLUSTER))
    assert await create(broker, acl("t"), who="User:a") == [(0, "")]
    assert len(await describe(broker, who="User:a")) == 2


async def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    disabled, text = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
    assert await create(broker, acl("t")) == [(disabled, text)]
    assert await delete(broker, (1, None, 1, None, 1)) == [(disabled, text, set())]
    request = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    response = await describe_acls(request, ask_as(broker))
    assert (response.error_code, response.error_message) == (disabled, "No Authorizer is configured on the broker")


async def test_each_rule_is_judged_for_itself(tmp_path: Path) -> None:
    broker = await opened(tmp_path, SECURED)
    bad = [
        acl("x", of=CLUSTER),
        acl("a/b"),
        acl(".."),
        acl("\U0001f600"),
        acl("t", who="a"),
        acl("t", host="1.2.3.4/99"),
    ]
    told = await create(broker, bad[0], acl("t"), *bad[1:], acl("a b"))
    assert [code for code, _ in told] == [42, 0, 42, 42, 42, 42, 42, 0]
    assert told[2][1] == "ACL binding contains invalid resource name: a/b"
    assert await describe(broker) == {acl("t"), acl("a b")}


async def test_the_number_zero_closes_the_connection(tmp_path: Path) -> None:
    broker = await opened(tmp_path, SECURED)
    for action in (
        create(broker, acl("t", AclOperation.UNKNOWN)),
        delete(broker, (0, None, 1, None, 1)),
        describe(broker, (1, None, 0)),
    ):
        with pytest.raises(CloseConnection):
            await action


async def test_floods_have_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.server.api.handlers.acls.CHANGES_MAX", 5)
    monkeypatch.setattr("ottla.server.api.handlers.acls.REMOVED_MAX", 7)
    monkeypatch.setattr(store_module, "ACLS_MAX", 12)
    broker = await opened(tmp_path, SECURED)
    codes = []
    for start in range(0, 20, 4):
        codes += [code for code, _ in await create(broker, *[acl(f"t{start + each}") for each in range(4)])]
    assert codes == [0] * 12 + [ErrorCode.POLICY_VIOLATION] * 8
    assert {code for code, _ in await create(broker, *[acl("t")] * 6)} == {ErrorCode.POLICY_VIOLATION}
    text = "Cannot remove more than 7 acls in a single delete operation."
    assert await delete(broker, (1, None, 1, None, 1)) == [(ErrorCode.INVALID_REQUEST, text, set())]
    assert len(await describe(broker)) == 12
    assert (await delete(broker, *[(1, f"t{each}", 3, None, 1) for each in range(3)]))[2] == (0, None, {"t2"})
    assert (await delete(broker, *[(1, f"t{each}", 3, None, 1) for each in range(8)]))[0][
        0
    ] == ErrorCode.INVALID_REQUEST


async def test_rules_are_looked_through_in_slices_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock, because a pattern may have thousands of rules."""
    broker = await opened(tmp_path, SECURED)
    await create(broker, *(acl(f"t{number}") for number in range(20)))
    monkeypatch.setattr(time_slice, "SLICE_S", 0)
    store = broker.member.acls
    assert store is not None
    every = AclFilter.of_codes((1, None, 1), principal=None, host=None, operation=1, permission=1)
    async with counted_turns() as turns:
        assert len(await store.matching(every)) == 20
        assert turns.count >= 10
        seen = turns.count
        await store._meant_by([every] * 30, 1000)
        assert turns.count >= seen + 30
        seen = turns.count
        await store.read_all()
        assert turns.count >= seen + 10
        with pytest.raises(KafkaError):
            await store._meant_by([every], 19)


async def test_a_rule_that_cannot_be_stored_has_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "PATTERNS_PER_MULTI", 1)
    broker = await opened(tmp_path, SECURED)
    await create(broker, acl("kept"))
    multi = broker.coordination.multi

    async def refuse(operations: Any) -> Any:
        if any("bad" in each.path for each in operations):
            raise TooLarge
        return await multi(operations)

    monkeypatch.setattr(broker.coordination, "multi", refuse)
    codes = [code for code, _ in await create(broker, acl("good"), acl("bad"), acl("bad", WRITE))]
    assert codes[0] == 0 and codes[1] == codes[2] != 0
    assert await describe(broker) == {acl("kept"), acl("good")}


# ------------------------------------------------------------------ nodes


def test_nodes_are_those_of_kafka() -> None:
    entry = acl("t", AclOperation.DESCRIBE_CONFIGS, Permission.DENY, who="User:a", host="h").entry
    data = acl_znodes.encode_entries([entry])
    assert json.loads(data) == {
        "version": 1,
        "acls": [{"principal": "User:a", "permissionType": "Deny", "operation": "DescribeConfigs", "host": "h"}],
    }
    assert acl_znodes.decode_entries(data) == {entry}
    assert acl_znodes.decode_entries(data.replace(b"DescribeConfigs", b"DESCRIBECONFIGS")) == {entry}
    assert acl_znodes.decode_entries(b"") == frozenset()
    literal = Pattern(ResourceType.TRANSACTIONAL_ID, LITERAL, "a:b")
    prefix = literal._replace(pattern_type=PREFIXED)
    assert acl_znodes.path_of(literal) == "/kafka-acl/TransactionalId/a:b"
    assert acl_znodes.path_of(prefix) == "/kafka-acl-extended/prefixed/TransactionalId/a:b"
    assert acl_znodes.encode_change(literal) == b"TRANSACTIONAL_ID:a:b"
    assert json.loads(acl_znodes.encode_change(prefix)) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "a:b",
        "patternType": "PREFIXED",
    }
    for pattern in (literal, prefix):
        change = acl_znodes.encode_change(pattern)
        assert acl_znodes.decode_change(pattern.pattern_type, change) == pattern
    assert acl_znodes.decode_change(LITERAL, b"Topic:t") == Pattern(TOPIC, LITERAL, "t")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["User:a", "Allow", "Read", "*", "TOPIC"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "acls",
                    "principal",
                    "permissionType",
                    "operation",
                    "host",
                    "name",
                    "resourceType",
                    "patternType",
                ]
            ),
            inner,
        )
    ),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())


@settings(deadline=None)
@given(st.binary(max_size=60) | JSON)
def test_any_node_is_read_or_malformed(data: bytes) -> None:
    with suppress(MalformedNode):
        assert isinstance(acl_znodes.decode_entries(data), frozenset)
    for kind in (LITERAL, PREFIXED):
        with suppress(MalformedNode):
            assert acl_znodes.decode_change(kind, data).name


@given(st.text(max_size=20))
def test_any_name_of_a_notice_has_a_number_or_none(name: str) -> None:
    class Tree:
        async def children(self, _: str) -> list[str]:
            return [f"acl_changes_{name}", name]

    found = ChangeNotices(Tree(), "/", acl_znodes.CHANGE_PREFIX, lambda: 0)  # type: ignore[arg-type]
    is_number = name.isascii() and name.isdecimal() and len(name) < 20
    assert trio.run(found._numbers) == ({f"acl_changes_{name}": int(name)} if is_number else {})


# ------------------------------------------------------------------ several brokers


def store_on(tree: EmbeddedCoordination, clock_ms: int = 1) -> tuple[AclStore, AclAuthorizer]:
    authorizer = AclAuthorizer(AuthorizerConfig(), lambda: 0.0)
    store = AclStore(
        authorizer,
        tree,
        refusal=lambda error: KafkaError(ErrorCode.REQUEST_TIMED_OUT),
        has_readers=True,
        clock_ms=lambda: clock_ms,
    )
    return store, authorizer


@asynccontextmanager
async def two_brokers(directory: Path) -> AsyncIterator[tuple[EmbeddedCoordination, AclStore, AclStore, AclAuthorizer]]:
    tree = EmbeddedCoordination(directory, run_in_thread=at_once)
    tree.open()
    (one, _), (other, heard) = store_on(tree), store_on(tree)
    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await nursery.start(other.run)
        yield tree, one, other, heard
        nursery.cancel_scope.cancel()
    tree.close()


def reads(authorizer: AclAuthorizer, name: str) -> bool:
    return authorizer.allows("User:a", "/h", READ, TOPIC, name, quietly=True)


async def test_a_change_is_in_force_on_every_broker(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (tree, one, other, heard):
        assert await one.add([acl("t"), acl("pre", kind=PREFIXED)]) == [None, None]
        await trio.testing.wait_all_tasks_blocked()
        assert reads(heard, "t") and reads(heard, "prefix")
        assert await other.add([acl("t", WRITE)]) == [None]
        removed = await one.remove(
            [AclFilter.of_codes((TOPIC, "t", LITERAL), principal=None, host=None, operation=1, permission=1)], 9
        )
        assert {each for each, _ in removed[0]} == {acl("t"), acl("t", WRITE)}
        await trio.testing.wait_all_tasks_blocked()
        assert not reads(heard, "t") and reads(heard, "prefix")
        assert "t" not in await tree.children("/kafka-acl/Topic")
        notices = await tree.children_data("/kafka-acl-changes")
        assert [node.data for node in notices.values()] == [b"TOPIC:t"] * 3


async def test_who_was_slower_works_out_its_change_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with two_brokers(tmp_path) as (tree, one, _, heard):
        multi = tree.multi
        faster = [
            [Create("/kafka-acl/Topic/t", acl_znodes.encode_entries([acl("t", WRITE).entry]))],
            [SetData("/kafka-acl/Topic/t", acl_znodes.encode_entries([acl("t", DESCRIBE).entry]))],
            [Delete("/kafka-acl/Topic/t")],
        ]

        async def outrun(operations: Any) -> Any:
            if faster:
                await multi(faster.pop(0))
            return await multi(operations)

        monkeypatch.setattr(tree, "multi", outrun)
        assert await one.add([acl("t")]) == [None]
        await trio.testing.wait_all_tasks_blocked()
        assert heard.index.entries == {acl("t").pattern: {acl("t").entry}}


async def test_whoever_is_always_slower_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    async with two_brokers(tmp_path) as (tree, one, _, _):
        multi = tree.multi

        async def outrun(operations: Any) -> Any:
            node = (await tree.get_all(["/kafka-acl/Topic/t"]))[0]
            path, data = "/kafka-acl/Topic/t", acl_znodes.encode_entries([acl("t", WRITE).entry])
            await multi([Create(path, data) if node is None else SetData(path, data)])
            return await multi(operations)

        monkeypatch.setattr(tree, "multi", outrun)
        (error,) = await one.add([acl("t")])
        assert error is not None and error.message == "Failed to update ACLs after trying 11 times"


async def test_what_cannot_be_read_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two_brokers(tmp_path) as (tree, one, _, heard):
        await one.add([acl("t")])
        await trio.testing.wait_all_tasks_blocked()
        await tree.multi(
            [
                SetData("/kafka-acl/Topic/t", b'{"version":2}'),
                Create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True),
                Create("/kafka-acl-changes/acl_changes_", b"nonsense", sequential=True),
                Create("/kafka-acl-changes/other"),
            ]
        )
        await trio.testing.wait_all_tasks_blocked()
        assert reads(heard, "t")
        assert "stay in force" in caplog.text and "Left aside a notice" in caplog.text
        (error,) = await one.add([acl("t", WRITE)])
        assert error is not None and error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        # Others are heard of all the same.
        await one.add([acl("u")])
        await trio.testing.wait_all_tasks_blocked()
        assert reads(heard, "u")


async def test_old_notices_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_brokers(tmp_path) as (tree, one, other, _):
        await one.add([acl("t")])
        await trio.testing.wait_all_tasks_blocked()
        # This tree does not say when a node was made.
        heard = other._notices[LITERAL]
        heard._created_ms = dict.fromkeys(heard._created_ms, 1)
        monkeypatch.setattr(heard, "_clock_ms", lambda: EXPIRATION_MS + 2)
        await one.add([acl("u")])
        await trio.testing.wait_all_tasks_blocked()
        assert len(await tree.children("/kafka-acl-changes")) == 1


async def test_many_rules_are_written_in_few_steps_and_read(tmp_path: Path) -> None:
    tree = EmbeddedCoordination(tmp_path, run_in_thread=at_once)
    tree.open()
    store, _ = store_on(tree)
    await store.read_all()
    rules = [acl(f"t{number}", who=f"User:{number % 100}") for number in range(1_000)]
    assert await store.add(rules) == [None] * 1_000
    again, authorizer = store_on(tree)
    await again.read_all()
    assert authorizer.index.count == 1_000
    assert authorizer.allows("User:7", "/h", READ, TOPIC, "t7", quietly=True)
    tree.close()
