"""The settings that groups have of their own, and what they come to with those of the broker.

Sans-IO: the administration writes changes to the coordination tree and then puts them here. Coordinators and leaders ask
here what is in force for a group, at every heartbeat, so that a change counts from the next one on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.groupcoord.group_settings import (
    BrokerValue,
    GroupSettings,
    broker_group_settings,
    own_values,
    settings_in_force,
)
from ottla.server.settings.overrides import NO_OVERRIDES, Overrides


class GroupRepository:
    """See the module's docstring. `broker_value` looks up a broker setting that is in force."""

    def __init__(self, broker_value: BrokerValue) -> None:
        self._broker_value = broker_value
        self._overrides: dict[str, Overrides] = {}
        self._own: dict[str, Mapping[str, Any]] = {}
        self._in_force: dict[str, GroupSettings] = {}
        self._of_broker: GroupSettings | None = None
        self._listeners: list[Callable[[str | None], None]] = []

    # ------------------------------------------------------------------ asking

    def in_force(self, group_id: str) -> GroupSettings:
        """Every setting of a group: its own, else the broker's."""
        found = self._in_force.get(group_id)
        if found is not None:
            return found
        if group_id not in self._overrides:
            # Not kept by group: anybody may ask for any group.
            return self.of_broker
        found = settings_in_force(self.own_values(group_id), self.of_broker)
        self._in_force[group_id] = found
        return found

    def own_values(self, group_id: str) -> Mapping[str, Any]:
        """What a group has set of its own, by Kafka's names, as far as it is in force."""
        overrides = self._overrides.get(group_id)
        if overrides is None:
            return {}
        if group_id not in self._own:
            self._own[group_id] = own_values(group_id, overrides.texts, self._broker_value)
        return self._own[group_id]

    def overrides(self, group_id: str) -> Overrides:
        """The texts as they are in the coordination tree."""
        return self._overrides.get(group_id, NO_OVERRIDES)

    def __iter__(self) -> Iterator[str]:
        """The groups that have settings of their own."""
        return iter(self._overrides)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._overrides

    def __len__(self) -> int:
        return len(self._overrides)

    @property
    def of_broker(self) -> GroupSettings:
        """What is in force for groups without settings of their own."""
        if self._of_broker is None:
            self._of_broker = broker_group_settings(self._broker_value)
        return self._of_broker

    # ------------------------------------------------------------------ changing

    def put(self, group_id: str, overrides: Overrides) -> None:
        """Put a group's settings into force; it has none of its own if there is no node."""
        before = self.overrides(group_id).texts
        if overrides.version is None:
            self._overrides.pop(group_id, None)
        else:
            self._overrides[group_id] = overrides
        if before != overrides.texts:
            self._own.pop(group_id, None)
            self._in_force.pop(group_id, None)
            self._tell(group_id)

    def on_broker_change(self) -> None:
        """A broker setting has changed: defaults and bounds may be others."""
        self._of_broker = None
        self._own.clear()
        self._in_force.clear()
        self._tell(None)

    def on_change(self, listener: Callable[[str | None], None]) -> None:
        """Call with a group whose settings have changed; None: those of any group may have."""
        self._listeners.append(listener)

    def _tell(self, group_id: str | None) -> None:
        for listener in self._listeners:
            listener(group_id)
