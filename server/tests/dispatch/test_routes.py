"""The table of requests that are served, and what is loaded when one of them is first asked for."""

import importlib
import pkgutil
import subprocess
import sys
from typing import Any

import pytest
from compat_tests.apache.message_schemas import message_schemas

from ottla.server.api import handlers
from ottla.server.api.handlers.api_versions import served_api_versions
from ottla.server.dispatch import dispatch
from ottla.server.dispatch.apis import APIS, Api
from ottla.server.dispatch.dispatch import HANDLERS, Route, all_routes
from ottla.server.network.calls import Calls
from ottla.wire.errors import ProtocolViolation
from ottla.wire.messages.classic_group import HeartbeatRequest
from ottla.wire.schema import VersionRange

NARROWED = {"LeaderAndIsr", "StopReplica", "UpdateMetadata"}
"""Served in fewer versions than are declared: brokers of a release before Kafka 3.9 are no members."""


@pytest.fixture
def route() -> Route:
    """As a process makes it that has just been started."""
    return all_routes.__wrapped__()[HeartbeatRequest.api_key]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_the_table_says_what_the_messages_declare(api: Api) -> None:
    request = dispatch.load(api).request_class
    assert (request.__name__, request.api_key) == (f"{api.name}Request", api.api_key)
    assert (api.served(has_older=True) == request.versions) is (api.name not in NARROWED)
    assert api.older is None or api.older.last + 1 == api.versions.first
    assert api.versions.first in request.versions and api.versions.last in request.versions
    assert request.__module__ == f"ottla.wire.messages.{api.module}"


def test_the_table_has_each_handler_once_and_in_the_order_of_the_keys() -> None:
    for api in APIS:
        dispatch.load(api)
    served = [each.name for each in pkgutil.iter_modules(handlers.__path__, f"{HANDLERS}.")]
    handled = [key for each in served for key in getattr(sys.modules[each], dispatch.CODE)]
    assert sorted(handled) == [api.api_key for api in APIS]
    keys = [api.api_key for api in APIS]
    assert keys == sorted({*keys})


def test_the_table_imports_no_handler() -> None:
    program = "import sys; from ottla.server.dispatch.dispatch import all_routes; all_routes(); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = [each for each in found.stdout.split() if each.startswith((HANDLERS, "ottla.wire.messages"))]
    assert loaded == []


def test_nothing_is_loaded_before_a_route_is_used(route: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []

    def import_module(name: str) -> Any:
        imported.append(name)
        return sys.modules[name]

    importlib.import_module(f"{HANDLERS}.classic_group")
    monkeypatch.setattr(importlib, "import_module", import_module)
    assert route.name == "Heartbeat" and str(route.versions) == "0-4"
    assert imported == []
    assert route.request_class is HeartbeatRequest and route.handler.__name__ == "heartbeat"
    assert imported == [f"{HANDLERS}.classic_group"], "once"


def test_a_handler_that_cannot_be_loaded_is_told_and_tried_again(route: Route, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(f"{HANDLERS}.classic_group")

    def import_module(name: str) -> Any:
        raise ImportError("no such file")

    with monkeypatch.context() as damaged:
        damaged.setattr(importlib, "import_module", import_module)
        for _ in range(2):
            with pytest.raises(ImportError, match="no such file"):
                _ = route.handler
    assert route.handler is module.heartbeat


def test_older_versions_are_told_and_served_only_where_they_are_wanted() -> None:
    older = {api.api_key: api.older for api in APIS if api.older is not None}
    told, wanted = (
        {each.api_key: each.min_version for each in served_api_versions(is_in_cluster=False, has_older=has_older)}
        for has_older in (False, True)
    )
    assert {key: wanted[key] for key in wanted if wanted[key] != told[key]} == {
        key: each.first for key, each in older.items()
    }
    calls, all_calls = Calls(all_routes()), Calls(all_routes(), has_older=True)
    for key, versions in older.items():
        assert told[key] == versions.last + 1
        assert all_calls.find(key, versions.first) is None  # it can be made
        with pytest.raises(ProtocolViolation):
            calls.find(key, versions.last)
        with pytest.raises(ProtocolViolation):
            all_calls.find(key, versions.first - 1)


def test_older_versions_are_all_that_kafka_3_9_served_to_clients_and_4_4_does_not() -> None:
    """A broker of Kafka serves the versions that its classes of messages have; 3.9 had a draft of those of share groups."""
    apis = {f"{api.name}RequestData": api for api in APIS if not (api.between_brokers or api.name.startswith("Share"))}
    first_in_3, first_in_4 = (
        {name: min(map(int, each["versions"])) for name, each in message_schemas(release, [*apis]).items()}
        for release in ("kafka_3", "kafka_4")
    )
    dropped = {
        name: VersionRange(first, first_in_4[name] - 1)
        for name, first in first_in_3.items()
        if first < first_in_4[name]
    }
    assert {"ListOffsetsRequestData", "DescribeAclsRequestData"} <= dropped.keys()
    always = {"ProduceRequestData", "FetchRequestData"}
    assert {name: each for name, each in dropped.items() if name not in always} == {
        name: api.older for name, api in apis.items() if api.older is not None
    }
    assert all(apis[name].versions.first == first_in_3[name] for name in always)
