"""Banners of `ottla start`, its workers and `ottla cluster`: addresses, commands to begin with, and how to stop.

Scripts wait for the last line, "listening on host:port".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ottla import __version__
from ottla.server.config.broker_config import default_data_directory
from ottla.server.config.endpoint import host_and_port

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.server.broker import Broker
    from ottla.server.config.broker_config import BrokerConfig
    from ottla.server.config.endpoint import Endpoint
    from ottla.server.config.worker_places import Ports

NEAR: Final = ("127.0.0.1:9092", "localhost:9092")
"""Addresses at which the commands look for a broker by themselves."""

TOPIC: Final = "greetings"


def broker_banner(broker: Broker, for_scripts: str | None = None) -> list[str]:
    """Return the banner of a broker that serves. `for_scripts`: another line for scripts; None: there is none."""
    config = broker.config
    ports = {listener.name: listener.port for listener in broker.listeners}
    bound = [replace(each, port=ports[each.listener]) for each in config.listeners]
    advertised = {each.listener: config.advertised_endpoint(each.listener, each.port) for each in bound}
    listeners = [
        str(each)
        if str(each) == str(advertised[each.listener])
        else f"{each} (advertised as {advertised[each.listener]})"
        for each in bound
    ]
    lines = [
        f"ottla {__version__}",
        _line("cluster id", broker.cluster.cluster_id),
        _line("node id", str(config.node_id)),
        _line("data directory", _directories(config)),
        _line("listeners", ", ".join(listeners)),
        *first_commands(advertised[bound[0].listener], bound[0].security_protocol),
        *_first_member(config),
        *_end(config),
    ]
    if broker.http_address is not None:
        lines.append(_line("console", console_url(broker.http_address, broker.http_token)))
    lines += _ignored(config)
    lines += [] if for_scripts is None else [for_scripts]
    return [*lines, f"listening on {host_and_port(bound[0].host or '0.0.0.0', bound[0].port)}"]


def workers_banner(
    config: BrokerConfig,
    ports: Mapping[str, Ports],
    workers: Sequence[BrokerConfig],
    told: Sequence[Mapping[str, Any]],
    for_scripts: str | None = None,
) -> list[str]:
    """Return the banner of several workers that serve. `told`: what each worker has reported about itself.

    `for_scripts`: another line for scripts; None: there is none.
    """
    shared = [replace(each, port=ports[each.listener].shared) for each in config.listeners]
    lines = [
        f"ottla {__version__}",
        _line("cluster id", told[0]["cluster_id"]),
        _line("workers", f"{len(workers)}, with the node ids {workers[0].node_id} to {workers[-1].node_id}"),
        _line("data directory", _directories(config)),
        _line("listeners", f"{', '.join(map(str, shared))}, shared by all workers"),
    ]
    for number, worker in enumerate(workers):
        own = ", ".join(str(worker.advertised_endpoint(each.listener, each.port)) for each in worker.listeners)
        lines.append(_line(f"worker {number}", own))
    first = config.advertised_endpoint(shared[0].listener, shared[0].port)
    lines += first_commands(first, shared[0].security_protocol)
    lines += [*_first_member(config), *_end(config)]
    for number, each in enumerate(told):
        lines += worker_console(number, each)
    lines += _ignored(config)
    lines += [] if for_scripts is None else [for_scripts]
    return [*lines, f"listening on {host_and_port(shared[0].host or '0.0.0.0', shared[0].port)}"]


def worker_console(number: int, told: Mapping[str, Any]) -> list[str]:
    """Return the line with the address of a worker's console; none if it has no console."""
    if not told["http_address"]:
        return []
    what = "console" if number == 0 else f"  of worker {number}"
    return [_line(what, console_url(told["http_address"], told["http_token"]))]


def console_url(address: Sequence[Any], token: str | None) -> str:
    """Return the URL of a broker's console; `token` None: it needs none."""
    # After the # it reaches neither the log of a proxy nor another site.
    return f"http://{host_and_port(*address)}/{f'#token={token}' if token else ''}"


def first_commands(endpoint: Endpoint, security_protocol: str) -> list[str]:
    """Return lines with commands of Ottla that write and read a first record at an advertised endpoint."""
    address = host_and_port(endpoint.host, endpoint.port)
    where = "" if address in NEAR else f" -b {address}"
    if security_protocol != "PLAINTEXT":
        where += " --command-config client.properties"
    return commands_to_try(where)


def commands_to_try(where: str) -> list[str]:
    """Return lines with commands that write and read a first record. `where`: their options for the cluster."""
    return [
        _line("try", f"echo hello | ottla produce {TOPIC}{where}"),
        _line("", f"ottla consume {TOPIC} -e{where}"),
        _line("", f"ottla status{where}"),
    ]


def how_to_stop(folder: Path, default: Path) -> str:
    """Return the line that says how to stop what runs on the data directory `folder`."""
    where = ""
    if folder.absolute() != default.absolute():
        import shlex  # a start on the default directory does without

        where = f" --data {shlex.quote(str(folder.absolute()))}"
    return _line("stop", f"Ctrl-C stops it; from elsewhere: ottla stop{where}")


def _end(config: BrokerConfig) -> list[str]:
    return [how_to_stop(config.log_dirs[0], default_data_directory())]


def _first_member(config: BrokerConfig) -> list[str]:
    delay_ms = config.groups.group_initial_rebalance_delay_ms
    if delay_ms <= 0:
        return []
    return [
        _line("groups", f"the first consumer of a group waits {delay_ms / 1000:g} s for others"),
        _line("", "(group.initial.rebalance.delay.ms)"),
    ]


def _directories(config: BrokerConfig) -> str:
    return ", ".join(str(path.absolute()) for path in config.log_dirs)


def _ignored(config: BrokerConfig) -> list[str]:
    return [_line("without effect", ", ".join(config.ignored_settings))] if config.ignored_settings else []


def _line(name: str, value: str) -> str:
    return f"  {name:15} {value}"
