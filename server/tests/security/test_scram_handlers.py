"""SCRAM users as they are given, kept, told and in force."""

from pathlib import Path

import pytest

from ottla.replication.cluster import znodes
from ottla.server.api.handlers.client_quotas import alter_client_quotas
from ottla.server.api.handlers.scram_credentials import (
    USERS_MAX,
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType
from ottla.server.security.mechanism import LoginFailed
from ottla.server.security.scram import ScramClient, ScramServer
from ottla.server.security.scram_credentials import salted_password
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.rights import guard
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.wire.messages.scram_credentials import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

NAMES = ["alice", "Zoë", "a/b=c", "..", "<default>", "x" * 200]


@pytest.fixture
async def broker(tmp_path: Path) -> AdministeredBroker:
    return await opened(tmp_path)


async def give(broker: AdministeredBroker, *names: str, password: str = "word") -> list[int]:
    salted = salted_password("SCRAM-SHA-256", password, b"salt", 4096)
    wanted = [
        ScramCredentialUpsertion(name=each, mechanism=1, iterations=4096, salt=b"salt", salted_password=salted)
        for each in names
    ]
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=wanted)
    answer = await alter_user_scram_credentials(request, broker.context(0))
    return [each.error_code for each in answer.results]


async def take(broker: AdministeredBroker, name: str) -> int:
    deletion = ScramCredentialDeletion(name=name, mechanism=1)
    request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
    return (await alter_user_scram_credentials(request, broker.context(0))).results[0].error_code


async def told(broker: AdministeredBroker) -> dict[str, list[tuple[int, int]]]:
    answer = await describe_user_scram_credentials(DescribeUserScramCredentialsRequest(users=None), broker.context(0))
    return {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in answer.results}


def can_log_in(broker: AdministeredBroker, name: str, password: str) -> bool:
    client = ScramClient("SCRAM-SHA-256", name, password, "c")
    server = ScramServer("SCRAM-SHA-256", broker.scram_users, lambda: "s")
    try:
        client.step(server.step(client.step(server.step(client.step(b""), 0)), 0))
    except LoginFailed:
        return False
    return client.is_complete


async def test_a_credential_is_in_force_at_once_and_after_a_restart(broker: AdministeredBroker, tmp_path: Path):
    assert await give(broker, *NAMES) == [0] * len(NAMES)
    assert await told(broker) == {name: [(1, 4096)] for name in NAMES}
    assert all(can_log_in(broker, name, "word") for name in NAMES)
    assert await give(broker, "alice", password="another") == [0]
    assert can_log_in(broker, "alice", "another") and not can_log_in(broker, "alice", "word")
    await broker.stop()
    again = await opened(tmp_path)
    assert await told(again) == {name: [(1, 4096)] for name in NAMES}
    assert can_log_in(again, "alice", "another") and can_log_in(again, "..", "word")
    assert await take(again, "alice") == 0
    assert await take(again, "alice") == ErrorCode.RESOURCE_NOT_FOUND
    assert not can_log_in(again, "alice", "another")


async def test_it_is_kept_as_kafka_keeps_it_beside_quotas(broker: AdministeredBroker):
    entity, op = (
        EntityData(entity_type="user", entity_name="alice"),
        OpData(key="request_percentage", value=5.0, remove=False),
    )
    quota = AlterClientQuotasRequest(entries=[EntryData(entity=[entity], ops=[op])], validate_only=False)
    await alter_client_quotas(quota, broker.context(1))
    assert await give(broker, "alice") == [0]
    (node,) = await broker.coordination.get_all(["/config/users/alice"])
    kept = znodes.decode_config(node.data)
    assert kept["request_percentage"] == "5.0"
    assert kept["SCRAM-SHA-256"].startswith("salt=c2FsdA==,stored_key=") and kept["SCRAM-SHA-256"].endswith(
        ",iterations=4096"
    )
    assert await take(broker, "alice") == 0
    assert broker.administration.settings.entities.texts("users/alice") == {"request_percentage": "5.0"}
    assert await told(broker) == {}


async def test_a_request_names_so_many_users(broker: AdministeredBroker):
    codes = await give(broker, *(str(number) for number in range(USERS_MAX + 1)))
    assert set(codes) == {ErrorCode.POLICY_VIOLATION}


async def test_a_long_name_is_cut_in_the_message(broker: AdministeredBroker):
    request = DescribeUserScramCredentialsRequest(users=[UserName(name="x" * 32_000)])
    answer = await describe_user_scram_credentials(request, broker.context(0))
    assert (
        answer.results[0].error_code == ErrorCode.RESOURCE_NOT_FOUND and len(answer.results[0].error_message) < 10_000
    )


async def test_who_may_describe_and_alter(broker: AdministeredBroker):
    guard(broker)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await give(broker, "alice", "bob") == [refused] * 2
    for users, count in ((None, 0), ([UserName(name="alice"), UserName(name="bob")], 2)):
        request = DescribeUserScramCredentialsRequest(users=users)
        answer = await describe_user_scram_credentials(request, broker.context(0))
        assert answer.error_code == refused and [each.error_code for each in answer.results] == [refused] * count
    rights = [AclOperation.ALTER, AclOperation.DESCRIBE]
    guard(broker, *((each, ResourceType.CLUSTER, CLUSTER_NAME) for each in rights))
    assert await give(broker, "alice") == [0]
    assert await told(broker) == {"alice": [(1, 4096)]}
