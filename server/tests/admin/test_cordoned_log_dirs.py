"""Directories in cordoned.log.dirs get no new partitions (KIP-1066), from the start or from a change on; what is there stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.admin.console.requests import ask
from ottla.server.broker import Broker
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.tests.console_client import make_topic, running
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)

BROKER, SET = 4, 0


async def cordon(broker: Broker, value: str) -> ErrorCode:
    config = IncrementalConfig(name="cordoned.log.dirs", config_operation=SET, value=value)
    resource = IncrementalConfigsResource(resource_type=BROKER, resource_name=str(broker.node_id), configs=[config])
    answer = await ask(broker, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    return ErrorCode(answer.responses[0].error_code)


async def described(broker: Broker) -> dict[str, bool]:
    answer = await ask(broker, DescribeLogDirsRequest(topics=None), 5)
    return {Path(each.log_dir).name: each.is_cordoned for each in answer.results}


async def moved(broker: Broker, topic: str, path: Path) -> ErrorCode:
    wanted = AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])
    answer = await ask(broker, AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
    return ErrorCode(answer.results[0].partitions[0].error_code)


def places(broker: Broker, topic: str) -> set[str]:
    return {Path(each.log.log_directory.path).name for each in broker.replicas.partitions_of(topic)}


async def refused(broker: Broker, topic: str) -> ErrorCode:
    [outcome] = await broker.administration.create_topics([NewTopic(name=topic, partition_count=1)])
    assert isinstance(outcome, KafkaError)
    return outcome.code


async def test_new_partitions_go_where_no_cordon_is(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    both = f"{one},{other}"
    async with running(tmp_path, log_dirs=both, cordoned_log_dirs=f"{one}/") as broker:
        assert await described(broker) == {"one": True, "other": False}
        await make_topic(broker, "first", 6)
        assert places(broker, "first") == {"other"}
        assert await cordon(broker, str(other)) is ErrorCode.NONE
        assert await described(broker) == {"one": False, "other": True}
        await make_topic(broker, "second", 3)
        assert (places(broker, "first"), places(broker, "second")) == ({"other"}, {"one"})
        assert await moved(broker, "second", other) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        for everything in ("*", both):
            assert await cordon(broker, everything) is ErrorCode.NONE
            assert await described(broker) == {"one": True, "other": True}
            assert await refused(broker, "third") is ErrorCode.INVALID_REPLICATION_FACTOR
        for wrong in (f"*,{one}", str(tmp_path / "elsewhere")):
            assert await cordon(broker, wrong) is ErrorCode.INVALID_REQUEST
        assert await described(broker) == {"one": True, "other": True}
        assert await cordon(broker, "") is ErrorCode.NONE
        await make_topic(broker, "third", 2)
        assert await moved(broker, "second", other) is ErrorCode.NONE


@pytest.mark.parametrize("value", ["/elsewhere", "*,/data", "/data,/elsewhere"])
def test_a_start_with_a_directory_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs"):
        load_config({"log.dirs": "/data", "cordoned.log.dirs": value})
