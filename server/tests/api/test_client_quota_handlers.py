"""DescribeClientQuotas and AlterClientQuotas, and the nodes of users, clients and addresses behind them."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create, NoNode, SetData
from ottla.server.api.handlers import client_quotas as handler
from ottla.server.api.handlers.client_quotas import alter_client_quotas, describe_client_quotas
from ottla.server.api.handlers.create_topics import create_partitions, create_topics
from ottla.server.api.handlers.delete_topics import delete_topics
from ottla.server.cluster import entity_configs
from ottla.server.cluster.config_notifications import ConfigNotifications
from ottla.server.cluster.entity_configs import EntityConfigs
from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType
from ottla.server.security.quotas.client_quotas import Charge, ClientQuotas
from ottla.server.security.quotas.entities import entity_at, path_of, quota_value
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.clustered import Cluster, clustered
from ottla.server.tests.rights import guard
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import client_quotas
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.schema import ZERO_UUID

Named = dict[str, str | None]
EXACT, DEFAULT, SPECIFIED = range(3)
IP_AND_USER = (
    "Invalid entity filter component combination. IP filter component should not be used with user or clientId filter"
    " component."
)


def entry(named: Named, **ops: float | None) -> client_quotas.EntryData:
    return client_quotas.EntryData(
        entity=[client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in named.items()],
        ops=[
            client_quotas.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in ops.items()
        ],
    )


async def change(
    broker: AdministeredBroker, *entries: client_quotas.EntryData, is_trial: bool = False
) -> list[tuple[int, str | None]]:
    request = client_quotas.AlterClientQuotasRequest(entries=list(entries), validate_only=is_trial)
    response = await alter_client_quotas(request, broker.context(1))
    return [(each.error_code, each.error_message) for each in response.entries]


async def ask(
    broker: AdministeredBroker, *conditions: tuple[str, int, str | None], strict: bool = False
) -> client_quotas.DescribeClientQuotasResponse:
    components = [
        client_quotas.ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in conditions
    ]
    request = client_quotas.DescribeClientQuotasRequest(components=components, strict=strict)
    return await describe_client_quotas(request, broker.context(1))


async def told(broker: AdministeredBroker, *conditions: tuple[str, int, str | None], strict: bool = False) -> Any:
    response = await ask(broker, *conditions, strict=strict)
    assert response.error_code == 0 and response.entries is not None
    return {
        tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity)): {
            each.key: each.value for each in entry.values
        }
        for entry in response.entries
    }


async def test_quotas_are_kept_where_kafka_3_keeps_them(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    name = "Ä/*~ b.c"
    done = await change(
        broker,
        entry({"user": name}, producer_byte_rate=1000.0, request_percentage=12.5),
        entry({"user": None}, consumer_byte_rate=2000.0),
        entry({"client-id": None, "user": name}, controller_mutation_rate=3.0),
        entry({"client-id": "c"}, producer_byte_rate=float(1 << 63)),
        entry({"ip": "::1"}, connection_creation_rate=7.0),
        entry({"ip": None}, connection_creation_rate=8.0),
    )
    assert done == [(0, None)] * 6
    encoded = "%C3%84%2F%2A%7E%20b.c"
    kept = {}
    for entity in (f"users/{encoded}", "users/<default>", f"users/{encoded}/clients/<default>", "clients/c"):
        kept[entity] = znodes.decode_config((await broker.coordination.get(f"/config/{entity}")).data)
    assert kept == {
        f"users/{encoded}": {"producer_byte_rate": "1000", "request_percentage": "12.5"},
        "users/<default>": {"consumer_byte_rate": "2000"},
        f"users/{encoded}/clients/<default>": {"controller_mutation_rate": "3.0"},
        "clients/c": {"producer_byte_rate": "9223372036854775807"},
    }
    assert sorted(await broker.coordination.children("/config/ips")) == ["%3A%3A1", "<default>"]
    await broker.stop()
    again = await opened(tmp_path)
    assert (await told(again))[("client-id", None), ("user", name)] == {"controller_mutation_rate": 3.0}
    assert len(await told(again)) == 6


async def test_what_has_no_quota_any_more_leaves_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    both = {"user": "u", "client-id": "c"}
    await change(broker, entry(both, producer_byte_rate=1.0), entry({"user": "v"}, producer_byte_rate=1.0))
    await change(broker, entry(both, producer_byte_rate=None), entry({"user": "v"}, producer_byte_rate=None))
    assert await told(broker) == {} and await broker.coordination.children("/config/users") == []
    assert await change(broker, entry(both, no_such_key=None)) == [(0, None)]


async def test_other_things_in_a_node_stay_and_are_not_told(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    secret = znodes.encode_config({"SCRAM-SHA-256": "salt=secret", "producer_byte_rate": "5"})
    await broker.coordination.multi([Create("/config/users/u", secret)])
    await broker.administration.settings.entities.read(["users/u", "users/..", "topics/u", "users/a/b", ""])
    assert await told(broker) == {(("user", "u"),): {"producer_byte_rate": 5.0}}
    # A client of the user keeps the node above it.
    await change(broker, entry({"user": "u", "client-id": "c"}, producer_byte_rate=1.0))
    await change(broker, entry({"user": "u"}, producer_byte_rate=None, consumer_byte_rate=6.0))
    await change(broker, entry({"user": "u", "client-id": "c"}, producer_byte_rate=None))
    left = znodes.decode_config((await broker.coordination.get("/config/users/u")).data)
    assert left == {"SCRAM-SHA-256": "salt=secret", "consumer_byte_rate": "6"}


@pytest.mark.parametrize(
    ("named", "ops", "message"),
    [
        ({}, {}, "Invalid empty client quota entity"),
        ({"group": "g"}, {}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {}, "Empty user not supported"),
        ({"user": "u" * 4097}, {}, "The name of a user has more than 4096 characters"),
        (
            {"user": "u", "ip": "1.2.3.4"},
            {},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ({"ip": "no\0host"}, {}, "no\0host is not a valid IP or resolvable host."),
        ({"ip": "no.such.host.invalid"}, {}, "no.such.host.invalid is not a valid IP or resolvable host."),
        ({"user": "u"}, {"no_such": 1.0}, "Invalid configuration key no_such"),
        ({"ip": None}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"user": "u"}, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "u"}, {"request_percentage": math.nan}, "Quota request_percentage must be a finite number"),
        ({"user": "u"}, {"producer_byte_rate": 1e-7}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "u"}, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        ({"user": "u"}, {"producer_byte_rate": 1e19}, "Proposed value for producer_byte_rate is too large for a LONG."),
        (
            {"ip": "1.2.3.4"},
            {"connection_creation_rate": 3e9},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
async def test_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: Named, ops: dict[str, float | None], message: str
) -> None:
    monkeypatch.setattr(handler, "_resolves", lambda host: host == "1.2.3.4")
    broker = await opened(tmp_path)
    assert await change(broker, entry(named, **ops)) == [(ErrorCode.INVALID_REQUEST, message)]
    assert await told(broker) == {}


async def test_what_is_named_twice(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    twice = "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"
    done = await change(
        broker, entry({"user": "u"}, producer_byte_rate=1.0), entry({"user": "u"}, producer_byte_rate=2.0)
    )
    assert done == [(42, twice)] and await told(broker) == {(("user", "u"),): {"producer_byte_rate": 1.0}}
    wrong = entry({"user": "u"}, producer_byte_rate=3.0)
    wrong.ops += wrong.ops
    assert await change(broker, wrong) == [(42, twice)]


async def test_a_trial_changes_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    entries = entry({"user": "u"}, producer_byte_rate=1.0), entry({"user": "v"}, producer_byte_rate=-1.0)
    assert [code for code, _ in await change(broker, *entries, is_trial=True)] == [0, 42]
    assert await told(broker) == {}


async def test_which_entities_a_filter_finds(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    named: list[Named] = [
        {"user": "u"},
        {"user": None},
        {"user": "u", "client-id": "c"},
        {"user": "u", "client-id": None},
        {"client-id": "c"},
        {"ip": "10.0.0.1"},
    ]
    for each in named:
        key = "connection_creation_rate" if "ip" in each else "producer_byte_rate"
        assert await change(broker, entry(each, **{key: 1.0})) == [(0, None)]

    async def found(*conditions: tuple[str, int, str | None], strict: bool = False) -> list[Named]:
        entities = await told(broker, *conditions, strict=strict)
        return [each for each in named if tuple(sorted(each.items())) in entities]

    assert await found() == named and await found(strict=True) == []
    assert await found(("user", EXACT, "u")) == [named[0], named[2], named[3]]
    assert await found(("user", EXACT, "u"), strict=True) == [named[0]]
    assert await found(("user", DEFAULT, None)) == [named[1]]
    assert await found(("user", SPECIFIED, None)) == named[:4]
    assert await found(("user", SPECIFIED, None), ("client-id", SPECIFIED, None)) == named[2:4]
    assert await found(("user", EXACT, "u"), ("client-id", DEFAULT, None), strict=True) == [named[3]]
    assert await found(("ip", SPECIFIED, None)) == [named[5]]


@pytest.mark.parametrize(
    ("conditions", "code", "message"),
    [
        ([("", EXACT, "x")], 42, "Invalid empty entity type."),
        (
            [("user", EXACT, "x"), ("user", DEFAULT, None)],
            42,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("group", EXACT, "x")], 35, "Unsupported entity type group"),
        ([("user", EXACT, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", DEFAULT, "x")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", SPECIFIED, "x")], 42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, "x")], 42, "Unknown match type 3"),
        (
            [("user", SPECIFIED, None), ("ip", SPECIFIED, None)],
            42,
            IP_AND_USER,
        ),
    ],
)
async def test_which_filters_are_refused(tmp_path: Path, conditions: Any, code: int, message: str) -> None:
    response = await ask(await opened(tmp_path), *conditions)
    assert (response.error_code, response.error_message, response.entries) == (code, message, None)


async def test_a_flood_of_quotas_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_configs, "ENTITIES_MAX", 2)
    broker = await opened(tmp_path)
    done = await change(broker, *(entry({"user": str(number)}, producer_byte_rate=1.0) for number in range(3)))
    assert [code for code, _ in done] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert await change(broker, entry({"user": "0"}, producer_byte_rate=9.0)) == [(0, None)]
    many = entry({"user": "u"})
    many.ops = [client_quotas.OpData(key="k", value=1.0, remove=False)] * 10_001
    assert [code for code, _ in await change(broker, many)] == [ErrorCode.POLICY_VIOLATION]


async def test_who_may_describe_and_alter(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    guard(broker)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response = await ask(broker)
    assert (response.error_code, response.error_message, response.entries) == (refused, None, None)
    assert await change(broker, entry({"user": "u"}, producer_byte_rate=1.0)) == [(refused, refused.message)]
    rights = [AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS]
    guard(broker, *((each, ResourceType.CLUSTER, CLUSTER_NAME) for each in rights))
    assert await change(broker, entry({"user": "u"}, producer_byte_rate=1.0)) == [(0, None)]
    assert len(await told(broker)) == 1


async def test_topics_are_refused_while_the_quota_of_changes_is_exceeded(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    quotas, now_ms = ClientQuotas(), 0
    quotas.take("users/u", {"controller_mutation_rate": "1"})

    def context(version: int) -> Any:
        made = broker.context(version)
        made.charge = Charge(quotas, lambda: now_ms, "User:u", "c")
        return made

    def creation(name: str, partitions: int, *, is_trial: bool = False) -> CreateTopicsRequest:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        return CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=is_trial)

    exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (await create_topics(creation("a", 12), context(7))).topics[0].error_code == 0
    refused = context(6)
    assert (await create_topics(creation("b", 1, is_trial=True), refused)).topics[0].error_code == exceeded
    assert refused.charge.settle() == 1000
    assert (await create_topics(creation("a", 1), context(7))).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    older = context(5)
    assert (await create_topics(creation("b", 2), older)).topics[0].error_code == 0
    assert older.charge.settle() == 3000
    asked = [CreatePartitionsTopic(name="b", count=3, assignments=None)]
    extension = CreatePartitionsRequest(topics=asked, timeout_ms=1000, validate_only=False)
    assert (await create_partitions(extension, context(3))).results[0].error_code == exceeded
    assert (await create_partitions(extension, context(2))).results[0].error_code == 0
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="b", topic_id=ZERO_UUID)], timeout_ms=1000)
    assert (await delete_topics(deletion, context(6))).responses[0].error_code == exceeded
    now_ms = 4000
    assert (await delete_topics(deletion, context(6))).responses[0].error_code == 0
    assert (await create_topics(creation("b", 1), context(7))).topics[0].error_code == exceeded


# ------------------------------------------------------------------ several brokers


def shared(cluster: Cluster, node_id: int) -> EntityConfigs:
    return cluster[node_id].administration.settings.entities


async def test_a_change_of_another_broker_is_not_undone(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        one, other = shared(cluster, 1), shared(cluster, 2)
        await one.alter("users/u", lambda texts: {**texts, "a": "1"})
        await other.alter("users/u", lambda texts: {**texts, "b": "2"})
        await one.alter("users/u", lambda texts: {**texts, "c": "3"})
        await other.read_all()
        assert dict(other.texts("users/u")) == {"a": "1", "b": "2", "c": "3"} and len(other) == 1
        found = (await cluster.tree.children_data(znodes.CONFIG_CHANGES)).values()
        assert [znodes.decode_config_change(node.data) for node in found] == ["users/u"] * 3


async def test_who_was_slower_works_out_its_change_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with clustered(tmp_path) as cluster:
        multi, others = cluster.tree.multi, [{"b": "2"}, {}]

        async def outrun(operations: Any) -> Any:
            if others and isinstance(operations[0], Create) and operations[0].path.startswith("/config/users"):
                faster = others.pop(0)
                await multi(
                    [Create("/config/users/u", znodes.encode_config(faster))] if faster else [Create("/config/users/v")]
                )
            return await multi(operations)

        monkeypatch.setattr(cluster.tree, "multi", outrun)
        one = shared(cluster, 1)
        await one.alter("users/u", lambda texts: {**texts, "a": str(len(texts))})
        assert one.texts("users/u") == {"a": "1", "b": "2"}
        await one.alter("users/v/clients/c", lambda texts: {"a": "1"})
        assert await cluster.tree.children("/config/users/v") == ["clients"]


async def test_a_listener_hears_of_everything_once(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        one, other = shared(cluster, 1), shared(cluster, 2)
        heard: list[tuple[str, dict[str, str]]] = []
        await one.alter("users/u/clients/c", lambda texts: {"a": "1"})
        await other.read_all()
        other.on_change(lambda entity, texts: heard.append((entity, dict(texts))))
        await one.alter("ips/<default>", lambda texts: {"b": "1"})
        await other.read(["ips/<default>"])
        await other.read(["ips/<default>"])
        await one.alter("users/u/clients/c", lambda texts: {})
        await other.read_all()
        assert heard == [("users/u/clients/c", {"a": "1"}), ("ips/<default>", {"b": "1"}), ("users/u/clients/c", {})]
        with pytest.raises(NoNode):
            await cluster.tree.get("/config/users/u")


async def test_a_node_that_cannot_be_read_has_nothing(tmp_path: Path) -> None:
    async with clustered(tmp_path) as cluster:
        one = shared(cluster, 1)
        await one.alter("clients/c", lambda texts: {"a": "1"})
        await cluster.tree.multi([SetData("/config/clients/c", b"no json")])
        await one.read_all()
        assert len(one) == 0 and one.texts("clients/c") == {}


async def test_a_broker_hears_of_quotas_that_another_one_changes(tmp_path: Path) -> None:
    def listeners(cluster: Cluster) -> Iterator[Callable[..., Any]]:
        for member in cluster.members.values():
            yield ConfigNotifications(
                coordination=cluster.tree,
                cluster=member.cluster,
                settings=member.administration.settings,
                on_unclean_allowed=lambda topics: None,
                clock_ms=lambda: 1,
            ).run

    async with clustered(tmp_path, also=listeners) as cluster:
        await shared(cluster, 1).alter("users/u/clients/<default>", lambda texts: {"producer_byte_rate": "1"})
        await trio.testing.wait_all_tasks_blocked()
        assert shared(cluster, 3).texts("users/u/clients/<default>") == {"producer_byte_rate": "1"}


# ------------------------------------------------------------------ names


@given(st.text(min_size=1), st.text(min_size=1) | st.none())
def test_every_name_has_a_path_and_comes_back(user: str, client_id: str | None) -> None:
    entity = ("user", user), ("client-id", client_id)
    path = path_of(entity)
    assert len(path.split("/")) == 4 and "//" not in path
    assert entity_at(path) == entity


@given(st.text())
def test_any_text_is_a_quota_or_none(text: str) -> None:
    value = quota_value(text)
    assert value is None or value > 0
