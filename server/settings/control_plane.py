"""Which listener the controller's connections use (KIP-291), with the rules and the words of Kafka 3.9's KafkaConfig."""

from __future__ import annotations

from collections.abc import Collection

from ottla.wire.settings import InvalidSetting

NAME = "control.plane.listener.name"


def control_plane_listener(
    wanted: str | None, protocols: Collection[str], advertised: Collection[str], inter_broker: str
) -> str | None:
    """Its name, None if there is none of its own; InvalidSetting if it cannot be that one.

    `protocols` are the names in listener.security.protocol.map, `advertised` those that others are told.
    """
    if wanted is None:
        return None
    name = wanted.upper()
    if name not in protocols:
        reason = f"Listener with {name} defined in {NAME} not found in listener.security.protocol.map."
    elif name not in advertised:
        reason = (
            f"{NAME} must be a listener name defined in advertised.listeners."
            f" The valid options based on currently configured listeners are {','.join(advertised)}"
        )
    elif name == inter_broker:
        reason = (
            f"{NAME}, when defined, should have a different value from the inter broker listener name."
            f" Currently they both have the value {name}"
        )
    else:
        return name
    raise InvalidSetting(NAME, wanted, reason, message=reason)
