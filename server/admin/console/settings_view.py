"""Settings of this broker, of a topic or of a group, with their documentation (DescribeConfigs)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.server.admin.console import requests
from ottla.server.admin.console.requests import ask, refusal
from ottla.server.admin.http.pace import PacedTimeSlice
from ottla.server.admin.http.routes import Refused
from ottla.server.config.repository import DEFAULT_CONFIG, described_setting, topic_settings
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.settings import SettingType

if TYPE_CHECKING:
    from ottla.server.admin.http.pace import Pace
    from ottla.server.admin.http.routes import Request
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
    """View of settings."""

    def __init__(self, broker: Broker, pace: Pace) -> None:
        self._broker, self._pace = broker, pace

    async def settings(self, request: Request) -> dict[str, Any]:
        """`kind`: broker, topic or group; `name`: of the topic or group."""
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
        if result.error_code:
            raise refusal(result.error_code, result.error_message)
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
