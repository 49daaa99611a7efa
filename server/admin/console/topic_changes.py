"""Changes of topics by the console: create, delete, add partitions, delete the oldest records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.server.admin.console import requests
from ottla.server.admin.console.requests import body_number, body_text, change, check_error, done, first_of, refusal
from ottla.server.admin.http.routes import Refused
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)

if TYPE_CHECKING:
    from ottla.server.admin.console.requests import Option
    from ottla.server.admin.http.routes import Request
    from ottla.server.broker import Broker

TIMEOUT_MS = 30_000
CONFIGS_MAX = 200
BROKERS_DEFAULT, REPLICAS_MAX = -1, (1 << 15) - 1
TO_THE_END = -1


class TopicChanges:
    """Handlers of the console's POST requests that change topics. Each answers a sentence and a command."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def create(self, request: Request) -> dict[str, Any]:
        """Create the topic `name`. `partitions` and `replicas` null: as the broker does by default. `configs`: by name."""
        body = requests.posted(request)
        name, configs = body_text(body, "name"), _configs(body)
        partitions, replicas = (
            body_number(body, "partitions", -1, 1),
            body_number(body, "replicas", -1, 1, REPLICAS_MAX),
        )
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        answer = await change(self._broker, CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
        [result] = answer.topics
        check_error(result.error_code, result.error_message)
        counts = {"-p": partitions, "-r": replicas}
        options = [(option, str(count)) for option, count in counts.items() if count != BROKERS_DEFAULT]
        options += [("-c", f"{key}={value}") for key, value in configs.items()]
        return done(self._broker, f"Topic {name} is created.", "topics create", [name], options)

    async def delete(self, request: Request) -> dict[str, Any]:
        """Delete the topic `name` with all its records."""
        name = body_text(requests.posted(request), "name")
        self._topic(name)
        topic = DeleteTopicState(name=name, topic_id=bytes(16))
        [result] = (await change(self._broker, DeleteTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))).responses
        check_error(result.error_code, result.error_message)
        return done(self._broker, f"Topic {name} is deleted.", "topics delete", [name])

    async def extend(self, request: Request) -> dict[str, Any]:
        """Give the topic `name` more partitions, so that it has `partitions`."""
        body = requests.posted(request)
        name, count = body_text(body, "name"), body_number(body, "partitions", None, 1)
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        wanted = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        [result] = (await change(self._broker, wanted)).results
        check_error(result.error_code, result.error_message)
        sentence = f"Topic {name} has {count} partitions."
        return done(self._broker, sentence, "topics alter", [name], [("-p", str(count))])

    async def trim(self, request: Request) -> dict[str, Any]:
        """Delete the records before `offset`, null: all. `partition` null: of all partitions, which this broker must lead."""
        body = requests.posted(request)
        name, offset = body_text(body, "name"), body_number(body, "offset", TO_THE_END, 0, requests.LONG_MAX)
        partition = body_number(body, "partition", -1)
        if partition < 0 <= offset:
            raise Refused(400, "An offset belongs to one partition.")
        place = name if partition < 0 else f"{name}:{partition}"
        where: Option = "--to-latest" if offset == TO_THE_END else ("--to-offset", str(offset))
        told = done(self._broker, "", "topics trim", [place], [where])
        states = self._topic(name).partitions
        indexes = range(len(states)) if partition < 0 else [partition]
        if any(index < len(states) and states[index].leader != self._broker.node_id for index in indexes):
            raise Refused(409, f"Other brokers lead partitions of {name}. This command asks them: {told['command']}")
        parts = [DeleteRecordsPartition(partition_index=index, offset=offset) for index in indexes]
        topic = DeleteRecordsTopic(name=name, partitions=parts)
        [result] = (await change(self._broker, DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))).topics
        for each in result.partitions:
            if each.error_code:
                raise refusal(each.error_code, f"{name} {each.partition_index} refuses")
        begins = first_of([f"{each.partition_index} at {each.low_watermark}" for each in result.partitions], ", ")
        return told | {"done": f"Partitions of {name} begin now: {begins}."}

    def _topic(self, name: str) -> Any:
        topic = self._broker.cluster.topics.get(name)
        if topic is None:
            raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic


def _configs(body: Mapping[str, Any]) -> dict[str, str]:
    given = body.get("configs") or {}
    if not isinstance(given, dict) or len(given) > CONFIGS_MAX:
        raise Refused(400, f"configs must be {CONFIGS_MAX} settings at most, by name.")
    return {body_text({"a setting": name}, "a setting"): body_text(given, name) for name in given}
