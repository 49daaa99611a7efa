"""A whole Kafka inside a test: brokers in this process, with a clock, a memory and a will.

    from ottla.testing import Kafka

    with Kafka() as kafka:
        kafka.topic("orders", partitions=3)
        run_my_service(bootstrap_servers=kafka.bootstrap)
        assert kafka.records("orders")[-1].value == b"..."

    client.py    a client in trio, also for simulations: `simulate(scenario, seeds=range(100))`
    plugin.py    the pytest plugin: fixtures `kafka` and `kafka_cluster`

The names are loaded when they are first used, because pytest imports this package in every run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.server.testing.brokers import LabBroker as LabBroker
    from ottla.server.testing.chaos.chaos import Chaos as Chaos
    from ottla.server.testing.errors import LabError as LabError
    from ottla.server.testing.groups import Group as Group
    from ottla.server.testing.groups import GroupMember as GroupMember
    from ottla.server.testing.history.wrapping import History as History
    from ottla.server.testing.kafka import Clock as Clock
    from ottla.server.testing.kafka import Kafka as Kafka
    from ottla.server.testing.kafka import Repeat as Repeat
    from ottla.server.testing.partitions import PartitionState as PartitionState
    from ottla.server.testing.profiles.profiles import Profile as Profile
    from ottla.server.testing.profiles.profiles import profile_of as profile_of
    from ottla.server.testing.records import Record as Record
    from ottla.server.testing.simulation.scenarios import simulate as simulate
    from ottla.server.testing.simulation.simulation import Simulation as Simulation
    from ottla.server.testing.snapshots.files import Snapshot as Snapshot
    from ottla.server.testing.transactions import Transaction as Transaction
    from ottla.server.testing.why import Cause as Cause
    from ottla.server.testing.why import Why as Why
    from ottla.server.testing.wire_tap.rules import Rule as Rule
    from ottla.server.testing.wire_tap.rules import RuleMaker as RuleMaker
    from ottla.server.testing.wire_tap.wire import Wire as Wire
    from ottla.server.testing.wire_tap.wire_request import WireRequest as WireRequest

_NAMES = {
    "Cause": "why",
    "Chaos": "chaos.chaos",
    "Clock": "kafka",
    "Group": "groups",
    "GroupMember": "groups",
    "History": "history.wrapping",
    "Kafka": "kafka",
    "LabBroker": "brokers",
    "LabError": "errors",
    "PartitionState": "partitions",
    "Profile": "profiles.profiles",
    "Record": "records",
    "Repeat": "kafka",
    "Rule": "wire_tap.rules",
    "RuleMaker": "wire_tap.rules",
    "Simulation": "simulation.simulation",
    "Snapshot": "snapshots.files",
    "Transaction": "transactions",
    "Why": "why",
    "Wire": "wire_tap.wire",
    "WireRequest": "wire_tap.wire_request",
    "profile_of": "profiles.profiles",
    "simulate": "simulation.scenarios",
}
"""Public names, and the modules of `ottla.server.testing` that hold them."""

__all__ = [
    "Cause",
    "Chaos",
    "Clock",
    "Group",
    "GroupMember",
    "History",
    "Kafka",
    "LabBroker",
    "LabError",
    "PartitionState",
    "Profile",
    "Record",
    "Repeat",
    "Rule",
    "RuleMaker",
    "Simulation",
    "Snapshot",
    "Transaction",
    "Why",
    "Wire",
    "WireRequest",
    "profile_of",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"ottla.server.testing.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
