"""Settings of this broker, of a topic or of a group, with their documentation (DescribeConfigs), and changes by the console.

With `http.console.write` only: produce a record, set or reset a setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from ottla.server.admin.console import requests
from ottla.server.admin.console.requests import ask, body_text, change, check_error, done, refusal
from ottla.server.admin.http.routes import PacedTimeSlice, Refused
from ottla.server.config.repository import DEFAULT_CONFIG, described_setting, topic_settings
from ottla.wire.checksum import murmur2
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.settings import SettingType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.server.admin.http.routes import Pace, Request
    from ottla.server.broker import Broker
    from ottla.wire.messages.describe_configs import DescribeConfigsResourceResult

KINDS = {"topic": 2, "broker": 4, "group": 32}
SOURCES = {
    1: "this topic",
    2: "this broker, at run time",
    3: "all brokers, at run time",
    4: "its start",
    5: "default",
    6: "its loggers",
    8: "this group",
}
"""Kafka's ConfigSource."""
LATEST = 4
ASKED_S = 0.004  # what the broker's handler takes for all settings with their documentation


class SettingsView:
    """Handler of the console's requests for the settings of brokers, topics and groups."""

    def __init__(self, broker: Broker, pace: Pace) -> None:
        self._broker, self._pace = broker, pace

    async def settings(self, request: Request) -> dict[str, Any]:
        """Return the settings of a resource. `kind`: broker, topic or group. `name`: name of the topic or group."""
        kind = requests.text(request, "kind", "broker")
        if kind not in KINDS:
            raise Refused(400, f"The parameter kind must be one of {', '.join(KINDS)}.")
        name = str(self._broker.node_id) if kind == "broker" else requests.text(request, "name")
        query = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=KINDS[kind], resource_name=name, configuration_keys=None)],
            include_synonyms=False,
            include_documentation=True,
        )
        await self._pace.pay(ASKED_S)
        [result] = (await ask(self._broker, query, LATEST)).results
        check_error(result.error_code, result.error_message)
        time_slice, settings = PacedTimeSlice(self._pace), []
        for each in sorted(result.configs, key=lambda each: each.name):
            settings.append(_as_json(each, has_effect=self._has_effect(kind, each.name)))
            await time_slice.yield_if_over()
        return {"kind": kind, "name": name, "settings": settings}

    def _has_effect(self, kind: str, name: str) -> bool:
        known = topic_settings() if kind == "topic" else self._broker.configs.known
        declared = known.get(name) if kind == "topic" else described_setting(known, name)
        return declared is None or declared.effective


def _as_json(entry: DescribeConfigsResourceResult, *, has_effect: bool) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "isDefault": entry.config_source == DEFAULT_CONFIG,
        "source": SOURCES.get(entry.config_source, "elsewhere"),
        "isReadOnly": entry.read_only,
        "isSensitive": entry.is_sensitive,
        "hasEffect": has_effect,
        "type": SettingType(entry.config_type).name.lower() if entry.config_type else "",
        "documentation": entry.documentation or "",
    }


BODY_BYTES_MAX = 1024 * 1024
HEADERS_MAX = 100
PRODUCE_VERSION = 12  # names topics
ACKS_ALL, TIMEOUT_MS = -1, 10_000
SET, DELETE = 0, 1


class Writing:
    """Handlers of the console's POST requests that produce records or alter settings."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def produce(self, request: Request) -> dict[str, Any]:
        """Produce one record. `partition` null: chosen by the key.

        `key` and `value` are text, or hex digits if `isHex`; null or absent means null.
        """
        body = requests.posted(request)
        is_hex = body.get("isHex") is True
        record = Record(
            0, self._broker.now_ms(), _bytes(body, "key", is_hex), _bytes(body, "value", is_hex), _headers(body)
        )
        topic = body_text(body, "topic")
        partition = body.get("partition")
        if partition is None:
            state = self._broker.cluster.topics.get(topic)
            if state is None:
                raise refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            # A key of a megabyte takes a tenth of a second.
            partition = await trio.to_thread.run_sync(partition_of_key, record.key, len(state.partitions))
        if type(partition) is not int or not 0 <= partition < 1 << 31:
            raise Refused(400, "partition must be a number or null.")
        offset = await produced(self._broker, topic, partition, [record], by_user=True)
        return {"partition": partition, "offset": offset}

    async def alter(self, request: Request) -> dict[str, Any]:
        """Set `setting` to `value`; null restores the default. `kind` and `name`: as in `SettingsView.settings`."""
        body = requests.posted(request)
        kind = body_text(body, "kind")
        if kind not in KINDS:
            raise Refused(400, f"kind must be one of {', '.join(KINDS)}.")
        name = str(self._broker.node_id) if kind == "broker" else body_text(body, "name")
        value = None if body.get("value") is None else body_text(body, "value")
        setting = IncrementalConfig(
            name=body_text(body, "setting"), config_operation=DELETE if value is None else SET, value=value
        )
        resource = IncrementalConfigsResource(resource_type=KINDS[kind], resource_name=name, configs=[setting])
        wanted = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        [result] = (await change(self._broker, wanted)).responses
        check_error(result.error_code, result.error_message)
        sentence = f"{setting.name} is as by default." if value is None else f"{setting.name} is changed."
        declared = described_setting(self._broker.configs.known, setting.name)
        shown = "..." if declared is not None and declared.is_sensitive else value
        option = ("--delete", setting.name) if value is None else ("--set", f"{setting.name}={shown}")
        return done(self._broker, sentence, f"configs {kind}", [name], [option])


def partition_of_key(key: bytes | None, partition_count: int) -> int:
    """Return the partition for a key, computed like the Java producer; without a key partition 0."""
    return 0 if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_count


async def produced(
    broker: Broker, topic: str, partition: int, records: Sequence[Record], *, by_user: bool = False
) -> int:
    """Append records like a producer with acks=all; return the offset of the first record. Raises Refused.

    `by_user`: with the rights of the console's user, and not with all rights.
    """
    # Writable, because the leader puts offset and epoch into it.
    batch = memoryview(bytearray(encode_batch(records)))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(transactional_id=None, acks=ACKS_ALL, timeout_ms=TIMEOUT_MS, topic_data=[data])
    send = change if by_user else ask
    answer = (await send(broker, request, PRODUCE_VERSION)).responses[0].partition_responses[0]
    check_error(answer.error_code, answer.error_message)
    return int(answer.base_offset)


def _bytes(body: Mapping[str, Any], name: str, is_hex: bool) -> bytes | None:
    if body.get(name) is None:
        return None
    text = body_text(body, name, BODY_BYTES_MAX)
    try:
        return bytes.fromhex(text) if is_hex else text.encode()
    except ValueError:
        raise Refused(400, f"{name} is no hex.") from None


def _headers(body: Mapping[str, Any]) -> tuple[tuple[bytes, bytes | None], ...]:
    given = body.get("headers") or []
    if not isinstance(given, list) or len(given) > HEADERS_MAX:
        raise Refused(400, f"headers must be a list of {HEADERS_MAX} pairs at most.")
    pairs = []
    for each in given:
        if not isinstance(each, list) or len(each) != 2:
            raise Refused(400, "Each header must be a pair of texts.")
        pair = {"header": each[0], "its value": each[1]}
        pairs.append((_bytes(pair, "header", False) or b"", _bytes(pair, "its value", False)))
    return tuple(pairs)
