"""Changes by the console: of topics, groups, rules, users, quotas and hanging transactions, each with a command that does the same."""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.console import access_view, group_changes, topic_changes
from ottla.server.admin.console.requests import Access
from ottla.server.admin.console.requests import ask as ask_handler
from ottla.server.admin.http.routes import Refused, Request
from ottla.server.broker import Broker
from ottla.server.cli.cli import parser_for
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.tests.admin.test_console_groups import assignment_of, commit, joined
from ottla.server.tests.admin.test_console_transactions import HANGING_ID, LATE_MS, begun
from ottla.server.tests.console_client import ask, make_topic, running, write, write_open
from ottla.wire.messages.classic_group import LeaveGroupRequest
from ottla.wire.messages.share_group import DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup
from ottla.wire.records import Record

TOKEN = "a-token-of-an-operator"
MORE = {
    "http_console_write": "true",
    "http_console_token": TOKEN,
    "transaction_state_log_num_partitions": "1",
    "transaction_partition_verification_enable": "false",
}
AUTHORIZED = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, **MORE) as broker:
        yield broker


async def changed(broker: Broker, path: str, /, **body: Any) -> list[str]:
    """Make a change that must succeed; return its sentence and the words of the command, which a parser takes."""
    told = (await ask(broker, f"/api/{path}", body=body, token=TOKEN)).json
    words = shlex.split(told["command"])
    assert words[0] == "ottla"
    parser_for(words[1:])[0].parse_args(words[1:])
    where = words.index("-b")
    return [told["done"], *words[1:where], *words[where + 2 :]]


async def refused(broker: Broker, path: str, /, **body: Any) -> str:
    answer = await ask(broker, f"/api/{path}", body=body, token=TOKEN)
    assert answer.status in (400, 404, 409), answer
    return answer.body.decode()


async def seen(broker: Broker, path: str) -> Any:
    return (await ask(broker, f"/api/{path}", token=TOKEN)).json


async def load_groups(broker: Broker) -> None:
    """Wait until the group coordinator has loaded its partitions."""
    await broker.ensure_internal_topic("__consumer_offsets")
    with trio.fail_after(60):
        while (await ask(broker, "/api/groups", token=TOKEN)).status != 200:
            await trio.sleep(0.01)


async def test_topics_are_created_extended_trimmed_and_deleted(broker: Broker) -> None:
    created = await changed(
        broker, "create-topic", name="a.b", partitions=2, replicas=1, configs={"retention.ms": "5000"}
    )
    assert created == [
        "Topic a.b is created.",
        *["topics", "create", "a.b", "-p", "2", "-r", "1", "-c", "retention.ms=5000"],
    ]
    assert broker.configs.log_config("a.b").retention_ms == 5000
    assert await changed(broker, "create-topic", name="plain") == [
        "Topic plain is created.",
        "topics",
        "create",
        "plain",
    ]
    assert "TOPIC_ALREADY_EXISTS" in await refused(broker, "create-topic", name="plain")
    assert "INVALID_CONFIG" in await refused(broker, "create-topic", name="c", configs={"no.such": "1"})
    extended = await changed(broker, "add-partitions", name="a.b", partitions=3)
    assert extended == ["Topic a.b has 3 partitions.", *["topics", "alter", "a.b", "-p", "3"]]
    assert "INVALID_PARTITIONS" in await refused(broker, "add-partitions", name="a.b", partitions=3)
    write(broker, "a.b", [Record(0, broker.now_ms(), None, b"v")] * 10, 1)
    trimmed = await changed(broker, "trim-topic", name="a.b", partition=1, offset=4)
    assert trimmed == ["Partitions of a.b begin now: 1 at 4.", *["topics", "trim", "a.b:1", "--to-offset", "4"]]
    assert broker.partition("a.b", 1).log_start_offset == 4
    assert "OFFSET_OUT_OF_RANGE" in await refused(broker, "trim-topic", name="a.b", partition=1, offset=40)
    assert (await changed(broker, "trim-topic", name="a.b"))[1:] == ["topics", "trim", "a.b", "--to-latest"]
    assert broker.partition("a.b", 1).log_start_offset == 10
    assert await changed(broker, "delete-topic", name="a.b") == ["Topic a.b is deleted.", "topics", "delete", "a.b"]
    assert "a.b" not in broker.cluster.topics
    for name in ("delete-topic", "trim-topic"):
        assert "UNKNOWN_TOPIC" in await refused(broker, name, name="a.b")


async def test_a_sentence_about_many_partitions_lists_ten(broker: Broker) -> None:
    await make_topic(broker, "wide", 12)
    [sentence, *_] = await changed(broker, "trim-topic", name="wide")
    assert sentence.endswith(" 8 at 0, 9 at 0 and 2 more.")


async def test_names_that_look_like_options_are_none_in_commands(broker: Broker) -> None:
    told = await changed(broker, "create-topic", name="--help", partitions=1)
    assert told == ["Topic --help is created.", *["topics", "create", "-p", "1", "--", "--help"]]
    told = await changed(broker, "trim-topic", name="--help", partition=0)
    assert told[1:] == ["topics", "trim", "--to-latest", "--", "--help:0"]
    told = await changed(broker, "set-quota", entity={"user": "-x"}, quota="producer_byte_rate", value=1)
    assert told[1:] == ["quotas", "set", "producer_byte_rate=1", "--user=-x"]


async def test_a_setting_is_changed_as_a_command_would(broker: Broker) -> None:
    await make_topic(broker, "t")
    told = await changed(broker, "alter", kind="topic", name="t", setting="retention.ms", value="5000")
    assert told == ["retention.ms is changed.", *["configs", "topic", "t", "--set", "retention.ms=5000"]]
    told = await changed(broker, "alter", kind="topic", name="t", setting="retention.ms", value=None)
    assert told == ["retention.ms is as by default.", *["configs", "topic", "t", "--delete", "retention.ms"]]


async def test_groups_without_members_are_reset_and_deleted(broker: Broker) -> None:
    await load_groups(broker)
    await make_topic(broker, "t", 2)
    write(broker, "t", [Record(0, 1000 + each, None, b"v") for each in range(10)])
    member = await joined(broker, "g h", assignment_of("t", 0))
    await commit(broker, "g h", member, "t", 4)
    assert "has members" in await refused(broker, "reset-group", id="g h", to="earliest")
    assert "NON_EMPTY_GROUP" in await refused(broker, "delete-group", id="g h")
    await ask_handler(broker, LeaveGroupRequest(group_id="g h", member_id=member.member_id), 1)

    async def committed() -> list[tuple[int, int]]:
        found = (await seen(broker, "group?id=g%20h&type=classic"))["offsets"]
        return [(each["partition"], each["committed"]) for each in found]

    told = await changed(broker, "reset-group", id="g h", to="earliest")
    assert told == [
        "Group g h goes on from t 0 at 0.",
        "groups",
        "reset",
        "g h",
        "--all-topics",
        "--to-earliest",
        "--execute",
    ]
    assert await committed() == [(0, 0)]
    told = await changed(broker, "reset-group", id="g h", topic="t", to="latest")
    assert told[1:] == ["groups", "reset", "g h", "--topic", "t", "--to-latest", "--execute"]
    assert await committed() == [(0, 10), (1, 0)]
    await changed(broker, "reset-group", id="g h", topic="t", partition=0, to="offset", value=70)
    assert await committed() == [(0, 10), (1, 0)]
    told = await changed(broker, "reset-group", id="g h", topic="t", partition=0, to="time", value=1003)
    assert told[4:7] == ["--topic", "t:0", "--to-datetime"] and told[7] == "1970-01-01T00:00:01.003+00:00"
    assert await committed() == [(0, 3), (1, 0)]
    for wrong in ({"to": "soon"}, {"to": "offset"}, {"to": "time", "value": "x"}, {"to": "latest", "topic": "none"}):
        await refused(broker, "reset-group", id="g h", **wrong)
    assert "committed nothing" in await refused(broker, "reset-group", id="other", to="latest")
    assert await committed() == [(0, 3), (1, 0)]
    assert await changed(broker, "delete-group", id="g h") == ["Group g h is deleted.", "groups", "delete", "g h"]
    assert "GROUP_ID_NOT_FOUND" in await refused(broker, "delete-group", id="g h")


async def test_a_group_is_reset_in_all_its_partitions_or_in_none(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await load_groups(broker)
    for topic in ("t", "u"):
        await make_topic(broker, topic)
        await changed(broker, "reset-group", id="g", topic=topic, to="latest")
    monkeypatch.setattr(group_changes, "PARTITIONS_MAX", 1)
    assert "1 partitions at most" in await refused(broker, "reset-group", id="g", to="earliest")
    monkeypatch.setattr(group_changes, "PARTITIONS_MAX", 2)
    assert (await changed(broker, "reset-group", id="g", to="earliest"))[
        0
    ] == "Group g goes on from t 0 at 0; u 0 at 0."


async def test_a_share_group_is_reset(broker: Broker) -> None:
    await broker.ensure_internal_topic("__consumer_offsets")
    await broker.ensure_internal_topic("__share_group_state")
    await make_topic(broker, "t")
    write(broker, "t", [Record(0, 1000, None, b"v")] * 10)
    query = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id="s", topics=None)])
    reset = {"id": "s", "type": "share", "topic": "t", "to": "offset", "value": 4}
    with trio.fail_after(60):
        # Its coordinators load their partitions first.
        while (await ask(broker, "/api/reset-group", body=reset, token=TOKEN)).status != 200:
            await trio.sleep(0.01)
    told = await changed(broker, "reset-group", **reset)
    assert told[1:] == ["groups", "reset", "s", "--topic", "t", "--to-offset", "4", "--execute"]
    [group] = (await ask_handler(broker, query, query.versions.last)).groups
    assert [(each.partition_index, each.start_offset) for each in group.topics[0].partitions] == [(0, 4)]
    assert "name a topic" in await refused(broker, "reset-group", id="s", type="share", to="latest")


RULE = {
    "resource": "topic",
    "name": "logs-",
    "pattern": "prefixed",
    "principal": "User:alice",
    "host": "10.0.0.7",
    "operation": "describe-configs",
    "permission": "allow",
}


async def test_rules_are_added_listed_and_removed(tmp_path: Path) -> None:
    async with running(tmp_path, **MORE, **AUTHORIZED) as broker:
        assert await seen(broker, "acls") == {"isOn": True, "acls": [], "next": None}
        words = [
            "--allow",
            "User:alice",
            "--operation",
            "describe-configs",
            "--topic",
            "logs-",
            "--pattern",
            "prefixed",
            "--host",
            "10.0.0.7",
        ]
        assert await changed(broker, "add-acl", **RULE) == ["The rule is added.", "acls", "add", *words]
        of_cluster = RULE | {"resource": "cluster", "host": "*", "permission": "deny", "operation": "alter"}
        told = await changed(broker, "add-acl", **of_cluster)
        assert told[1:] == ["acls", "add", "--deny", "User:alice", "--operation", "alter", "--cluster"]
        assert len((await seen(broker, "acls"))["acls"]) == 2
        assert (await seen(broker, "acls?contains=LOGS"))["acls"] == [RULE]
        assert "INVALID_REQUEST" in await refused(broker, "add-acl", **RULE | {"principal": "alice"})
        assert "operation must be one of" in await refused(broker, "add-acl", **RULE | {"operation": "any"})
        assert await changed(broker, "remove-acl", **RULE) == ["The rule is removed.", "acls", "remove", *words]
        assert "no such rule" in await refused(broker, "remove-acl", **RULE)


async def test_rules_with_very_long_names_are_listed_page_by_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_view, "PER_PAGE", 2)
    smile = "\U0001f600"
    names = ["User:a", *(f"User:{smile * 1200}{number}" for number in range(4)), f"User:z{'z' * 4_000}"]
    async with running(tmp_path, **MORE, **AUTHORIZED) as broker:
        for name in names:
            assert (await ask(broker, "/api/add-acl", body=RULE | {"principal": name}, token=TOKEN)).status == 200
        found, after = [], ""
        while after is not None:
            page = await seen(broker, f"acls?{urlencode({'after': after})}")
            assert len(page["acls"]) <= 2
            found += [each["principal"] for each in page["acls"]]
            after = page["next"]
        assert sorted(found) == sorted(names)
        contained = await seen(broker, f"acls?{urlencode({'contains': smile + '3'})}")
        assert [each["principal"] for each in contained["acls"]] == [names[4]] and contained["next"] is None


async def test_without_an_authorizer_there_are_no_rules(broker: Broker) -> None:
    assert (await seen(broker, "acls"))["isOn"] is False
    assert "SECURITY_DISABLED" in await refused(broker, "add-acl", **RULE)


async def test_users_are_added_changed_and_deleted(broker: Broker) -> None:
    user = {"name": "bob", "mechanism": "SCRAM-SHA-256", "password": "a secret"}
    told = await changed(broker, "set-user", **user)
    assert told == ["User bob is added.", *["users", "add", "bob", "--mechanism", "SCRAM-SHA-256"]]
    assert (await changed(broker, "set-user", **user, iterations=8192))[0] == "User bob has another password."
    shown = await ask(broker, "/api/users", token=TOKEN)
    assert shown.json["users"] == [{"name": "bob", "mechanisms": [{"name": "SCRAM-SHA-256", "iterations": 8192}]}]
    assert b"secret" not in shown.body
    await refused(broker, "set-user", **user | {"mechanism": "PLAIN"})
    await refused(broker, "set-user", **user | {"password": ""})
    told = await changed(broker, "delete-user", name="bob", mechanism="SCRAM-SHA-256")
    assert told[1:] == ["users", "delete", "bob", "--mechanism", "SCRAM-SHA-256"]
    assert (await seen(broker, "users"))["users"] == []
    assert "RESOURCE_NOT_FOUND" in await refused(broker, "delete-user", name="bob", mechanism="SCRAM-SHA-256")


async def test_quotas_are_set_and_removed(broker: Broker) -> None:
    entity = {"user": None, "client-id": "app"}
    told = await changed(broker, "set-quota", entity=entity, quota="producer_byte_rate", value=1024)
    assert told[1:] == ["quotas", "set", "producer_byte_rate=1024", "--user-defaults", "--client-id", "app"]
    assert (await seen(broker, "quotas"))["quotas"] == [{"entity": entity, "values": {"producer_byte_rate": 1024.0}}]
    told = await changed(broker, "set-quota", entity=entity, quota="producer_byte_rate", value=None)
    assert told[1:] == ["quotas", "remove", "producer_byte_rate", "--user-defaults", "--client-id", "app"]
    assert (await seen(broker, "quotas"))["quotas"] == []
    assert "INVALID_REQUEST" in await refused(broker, "set-quota", entity={"user": "a"}, quota="no_such", value=1)
    for wrong in ({}, {"host": "a"}, [], {"user": 5}):
        await refused(broker, "set-quota", entity=wrong, quota="producer_byte_rate", value=1)


async def test_only_a_transaction_that_hangs_is_aborted(broker: Broker) -> None:
    await broker.ensure_internal_topic("__transaction_state")
    await make_topic(broker, "t", 1)
    known, epoch = await begun(broker, "known", 0)
    write_open(broker, "t", known, age_ms=LATE_MS, epoch=epoch)
    write_open(broker, "t", HANGING_ID, age_ms=LATE_MS)
    write_open(broker, "t", HANGING_ID + 1, age_ms=0)
    for producer_id in (known, HANGING_ID + 1, 5):
        told = await refused(broker, "abort-transaction", topic="t", partition=0, producerId=str(producer_id))
        assert "hangs" in told
    told = (await changed(broker, "abort-transaction", topic="t", partition=0, producerId=str(HANGING_ID)))[1:]
    assert told == ["transactions", "abort", "--hanging", "--partition", "t:0"]
    by_id = {each["producerId"]: each for each in (await seen(broker, "producers?topic=t&partition=0"))["producers"]}
    assert by_id[str(HANGING_ID)]["openSinceOffset"] is None
    assert by_id[str(known)]["openSinceOffset"] is not None


@pytest.mark.parametrize("name", ["delete-topic", "add-acl", "set-user", "reset-group", "abort-transaction"])
@pytest.mark.parametrize(
    ("headers", "status"), [({"Origin": "http://evil.example"}, 403), ({"Content-Type": "text/plain"}, 415), ({}, 401)]
)
async def test_pages_of_other_sites_change_nothing(
    broker: Broker, name: str, headers: dict[str, str], status: int
) -> None:
    token = TOKEN if headers else ""
    assert (await ask(broker, f"/api/{name}", body={"name": "t"}, token=token, headers=headers)).status == status


BODIES = {
    "create-topic": {"name": "n", "partitions": 1, "replicas": 1, "configs": {}},
    "delete-topic": {"name": "n"},
    "add-partitions": {"name": "n", "partitions": 2},
    "trim-topic": {"name": "n", "partition": 0, "offset": 0},
    "delete-group": {"id": "n"},
    "reset-group": {"id": "n", "topic": "n", "partition": 0, "to": "offset", "value": 0},
    "add-acl": RULE,
    "remove-acl": RULE,
    "set-user": {"name": "n", "mechanism": "SCRAM-SHA-256", "password": "p", "iterations": 4096},
    "delete-user": {"name": "n", "mechanism": "SCRAM-SHA-256"},
    "set-quota": {"entity": {"user": "n"}, "quota": "producer_byte_rate", "value": 1},
    "abort-transaction": {"topic": "n", "partition": 0, "producerId": "1"},
}
WRONG = ([], {}, -1, 1.5, True, 1 << 40, "\ud800", "x" * 40_000, [None], {"a": None})


@pytest.mark.parametrize("name", BODIES)
async def test_a_body_of_other_types_is_refused_in_one_line(broker: Broker, name: str) -> None:
    right = BODIES[name]
    bodies: list[Any] = [[], None, {}, *({**right, key: wrong} for key in right for wrong in WRONG)]
    # Some of these values are valid, such as an empty table of settings, or any text as the name of a group or topic.
    for body in bodies:
        answer = await ask(broker, f"/api/{name}", body="" if body is None else body, token=TOKEN)
        assert answer.status in (200, 400, 404, 409), (body, answer)
        assert answer.status == 200 or answer.body.count(b"\n") == 1, (body, answer)


async def test_the_rules_for_the_consoles_principal_decide(tmp_path: Path) -> None:
    async with running(tmp_path, **MORE, **AUTHORIZED, http_console_principal="User:console") as broker:
        assert "TOPIC_AUTHORIZATION_FAILED" in await refused(broker, "create-topic", name="t")
        assert "CLUSTER_AUTHORIZATION_FAILED" in await refused(broker, "add-acl", **RULE)
        await make_topic(broker, "t")
        for name, body in (
            ("delete-topic", {"name": "t"}),
            ("produce", {"topic": "t", "partition": 0, "value": "v"}),
            ("alter", {"kind": "topic", "name": "t", "setting": "retention.ms", "value": "1"}),
        ):
            assert "TOPIC_AUTHORIZATION_FAILED" in await refused(broker, name, **body)
        assert broker.partition("t", 0).high_watermark == 0


def login(name: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}


async def test_a_users_changes_have_the_rights_of_that_user(tmp_path: Path) -> None:
    more = MORE | AUTHORIZED | {"http_console_users": "alice:a:secret, b\u00f6b:another1", "http_console_token": TOKEN}
    async with running(tmp_path, **more) as broker:
        alice, bob = login("alice", "a:secret"), login("b\u00f6b", "another1")
        overview = (await ask(broker, "/api/overview", headers=alice)).json
        assert (overview["user"], overview["canWrite"], overview["isOpen"]) == ("alice", True, False)
        # It would give all rights.
        assert (
            "writeToken" not in overview
            and TOKEN.encode() not in (await ask(broker, "/api/settings", headers=alice)).body
        )
        rule = RULE | {"name": "t", "pattern": "literal", "host": "127.0.0.1", "operation": "create"}
        topic = {"name": "t", "partitions": 1}
        for headers, status in ((alice, 409), (bob, 409), (login("alice", "another1"), 401), (login("eve", ""), 401)):
            assert (await ask(broker, "/api/create-topic", body=topic, headers=headers)).status == status
        assert (await ask(broker, "/api/add-acl", body=rule, headers=alice)).status == 409
        assert (await ask(broker, "/api/add-acl", body=rule, token=TOKEN)).status == 200
        assert (await ask(broker, "/api/create-topic", body=topic, headers=bob)).status == 409
        assert (await ask(broker, "/api/create-topic", body=topic, headers=alice)).status == 200
        assert "t" in broker.cluster.topics


async def test_passwords_that_go_unencrypted_to_other_machines_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (listener, users, is_warned) in enumerate(
        [("0.0.0.0:0", "alice:a:secret", True), ("127.0.0.1:0", "alice:a:secret", False), ("0.0.0.0:0", None, False)]
    ):
        caplog.clear()
        more = MORE | {"http_listener": listener} | ({"http_console_users": users} if users else {})
        async with running(tmp_path / str(number), **more) as broker:
            assert broker.http_address is not None
            port = broker.http_address[1]
        told = [each.getMessage() for each in caplog.records if "plain HTTP" in each.getMessage()]
        assert [f"over plain HTTP on 0.0.0.0 port {port}: bind http.listener" in each for each in told] == [
            True
        ] * is_warned


async def test_rules_see_the_address_of_a_user(tmp_path: Path) -> None:
    """A rule for this machine must not let somebody elsewhere make changes by the console of this machine."""
    more = MORE | AUTHORIZED | {"http_console_users": "alice:a:secret"}
    async with running(tmp_path, **more) as broker:
        rule = RULE | {"name": "t", "pattern": "literal", "host": "127.0.0.1", "operation": "create"}
        assert (await ask(broker, "/api/add-acl", body=rule, token=TOKEN)).status == 200
        for source, status in (("127.0.0.2", 409), ("127.0.0.1", 200)):
            topic, headers = {"name": "t", "partitions": 1}, login("alice", "a:secret")
            answer = await ask(broker, "/api/create-topic", body=topic, headers=headers, source=source)
            assert answer.status == status, answer


CLUSTER_RULE = RULE | {"resource": "cluster", "operation": "alter", "host": "*"}


async def test_changes_that_are_no_requests_of_kafka_need_the_right_to_alter_the_cluster(tmp_path: Path) -> None:
    """The broker changes schemas and the load of the Learn tab with rights of its own, so the user needs a rule for that."""
    more = MORE | AUTHORIZED | {"http_console_users": "alice:a:secret"}
    bodies = {
        "load": {"action": "stop"},
        "register-schema": {"subject": "s", "type": "AVRO", "text": '"int"'},
        "level": {"subject": "s", "level": None},
        "delete-schema": {"subject": "s", "version": None},
    }
    async with running(tmp_path, **more) as broker:
        for is_allowed in (False, True):
            for name, body in bodies.items():
                answer = await ask(broker, f"/api/{name}", body=body, headers=login("alice", "a:secret"))
                assert (b"CLUSTER_AUTHORIZATION_FAILED" in answer.body) is not is_allowed, (name, answer)
            assert (await ask(broker, "/api/add-acl", body=CLUSTER_RULE, token=TOKEN)).status == 200


@pytest.mark.parametrize(
    "text",
    [
        "alice",
        "alice:",
        ":secret12",
        "alice:secret12,alice:secret34",
        "alice:secret12,,bob:secret12",
        "alice:short",
        "",
    ],
)
def test_users_that_are_malformed_are_refused_without_their_passwords(text: str) -> None:
    with pytest.raises(ConfigError, match=r"NAME:PASSWORD") as refusal:
        load_config({"http.console.users": text})
    assert "secret" not in str(refusal.value)


@given(given=st.text(max_size=40))
def test_no_other_login_is_as_good(given: str) -> None:
    access = Access(TOKEN, is_open=False, may_write=True, passwords={"alice": "a secret"})
    for header in (given, f"Basic {given}", f"Basic {b64encode(given.encode()).decode()}"):
        with pytest.raises(Refused):
            access.check(Request(method="GET", path="/", headers={"authorization": header}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(JSON)
def test_any_json_is_settings_or_refused(given_value: Any) -> None:
    for read, name in ((topic_changes._configs, "configs"), (access_view._given_entity, "entity")):
        try:
            found = read({name: given_value})
        except Refused as error:
            assert error.status == 400
        else:
            assert all(isinstance(value, str | None) for value in found.values())


@given(
    st.binary(max_size=30)
    | st.builds(lambda text: b'{"resource": "topic", "name": "%s"}' % text.encode(), st.text(max_size=9))
)
def test_any_body_is_a_rule_or_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        access_view._given_rule(Request(method="POST", path="", body=body))
