"""Listeners from a server's settings: those to open, the inter-broker one, and the addresses advertised to clients."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ottla.server.config.endpoint import PROTOCOLS, Endpoint, parse_endpoint
from ottla.server.config.server_config import ServerConfig
from ottla.wire.settings import InvalidSetting

CONTROL_PLANE = "control.plane.listener.name"


def listeners_of(server: ServerConfig) -> tuple[tuple[Endpoint, ...], str]:
    """Return the listeners to open, and the name of the inter-broker listener. Raises InvalidSetting."""
    protocols = protocol_map(server)
    endpoints = [parse_endpoint("listeners", text) for text in server.listeners]
    kept = [each for each in endpoints if each.listener not in _upper(server.controller_listener_names)]
    if not kept:
        raise _wrong(server, "all are controller.listener.names; none is left")
    names = [each.listener for each in kept]
    if len(set(names)) != len(names):
        raise _wrong(server, "each listener must have a different name")
    listeners = tuple(replace(each, security_protocol=_checked_protocol(each, protocols)) for each in kept)
    ports = [each.port for each in kept if each.port]
    if len(set(ports)) != len(ports) and len({(each.host, each.port) for each in kept}) != len(kept):
        raise _wrong(server, "each listener must have a different port")
    return listeners, _inter_broker_listener(server, names, protocols)


def _checked_protocol(endpoint: Endpoint, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(endpoint.listener)
    if protocol is None:
        problem = (
            f"No security protocol defined for listener {endpoint.listener}; add it to listener.security.protocol.map"
        )
        raise InvalidSetting.of_text("listeners", str(endpoint), problem)
    return protocol


def _inter_broker_listener(server: ServerConfig, names: list[str], protocols: Mapping[str, str]) -> str:
    wanted = server.inter_broker_listener_name
    if wanted is not None:
        if wanted.upper() not in names:
            problem = f"must be one of the listeners {','.join(names)}"
            raise InvalidSetting.of_text("inter.broker.listener.name", wanted, problem)
        return wanted.upper()
    protocol = server.security_inter_broker_protocol
    found = next((name for name in names if protocols[name] == protocol), None)
    if found is None:
        problem = f"none of the listeners {','.join(names)} speaks it"
        raise InvalidSetting.of_text("security.inter.broker.protocol", protocol, problem)
    return found


def protocol_map(server: ServerConfig) -> dict[str, str]:
    """Return the security protocol of each listener name. Raises InvalidSetting."""
    protocols = {name.upper(): "PLAINTEXT" for name in server.controller_listener_names}
    for pair in server.listener_security_protocol_map.split(","):
        name, separator, protocol = (part.strip() for part in pair.rpartition(":"))
        if not separator or protocol.upper() not in PROTOCOLS:
            problem = f"{pair!r} is not NAME:PROTOCOL with a protocol of {', '.join(PROTOCOLS)}"
            raise InvalidSetting.of_text(
                "listener.security.protocol.map", server.listener_security_protocol_map, problem
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def advertised_endpoints(
    server: ServerConfig, listeners: tuple[Endpoint, ...], inter_broker: str
) -> dict[str, Endpoint]:
    """Return the addresses advertised to clients, by listener. Raises InvalidSetting."""
    if server.advertised_listeners is None:
        told = {each.listener: _routable(each) for each in listeners}
    else:
        parsed = [parse_endpoint("advertised.listeners", text) for text in server.advertised_listeners]
        controllers = _upper(server.controller_listener_names)
        told = {each.listener: _routable(each) for each in parsed if each.listener not in controllers}
    names = {each.listener for each in listeners}
    if unknown := sorted(set(told) - names):
        raise _wrong_advertised(
            f"advertised.listeners names {','.join(unknown)}: must be among the listeners {','.join(sorted(names))}"
        )
    if inter_broker not in told:
        raise _wrong_advertised(f"advertised.listeners must hold the listener among brokers, {inter_broker}")
    for each in told.values():
        if each.host == "0.0.0.0":
            raise _wrong_advertised(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0; give the address that clients use"
            )
    return told


def _routable(endpoint: Endpoint) -> Endpoint:
    return endpoint if endpoint.host else replace(endpoint, host=socket.gethostname())


def _upper(names: Iterable[str]) -> set[str]:
    return {name.upper() for name in names}


def control_plane_listener(
    wanted: str | None, protocols: Collection[str], advertised: Collection[str], inter_broker: str
) -> str | None:
    """Return the listener for the controller's connections (KIP-291); None if they use the inter-broker listener.

    `wanted` is control.plane.listener.name. `protocols` has the names in listener.security.protocol.map, `advertised`
    the names in advertised.listeners. Raises InvalidSetting by the rules and with the texts of Kafka 3.9's KafkaConfig.
    """
    if wanted is None:
        return None
    name = wanted.upper()
    if name not in protocols:
        reason = f"Listener with {name} defined in {CONTROL_PLANE} not found in listener.security.protocol.map."
    elif name not in advertised:
        reason = (
            f"{CONTROL_PLANE} must be a listener name defined in advertised.listeners."
            f" The valid options based on currently configured listeners are {','.join(advertised)}"
        )
    elif name == inter_broker:
        reason = (
            f"{CONTROL_PLANE}, when defined, should have a different value from the inter broker listener name."
            f" Currently they both have the value {name}"
        )
    else:
        return name
    raise InvalidSetting(CONTROL_PLANE, wanted, reason, message=reason)


def _wrong(server: ServerConfig, problem: str) -> InvalidSetting:
    return InvalidSetting.of_text("listeners", ",".join(server.listeners), problem)


def _wrong_advertised(message: str) -> InvalidSetting:
    return InvalidSetting("advertised.listeners", None, message, message=message)
