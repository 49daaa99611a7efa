"""Settings that differ between the workers of one start: ids, addresses and directories.

    node.id                 that of the settings + k, for worker k = 0, 1, 2 and so on
    log.dirs                worker 0 has the directories as they are, worker k has workers/k below each of them
    listeners               worker k has port + 1 + k of each listener for itself, or any free one if the port is 0
    advertised.listeners    the same is added to the port that clients are told
    http.listener           port + k, or any free one
    coordination.socket     where the start serves the tree, unless the workers share one with brokers of another start

The port of the settings itself is shared: all workers accept there, so that it is enough as the one bootstrap address. The
kernel decides who gets a connection. So it is no worker's own port: a client that wants worker 0 must never reach another
worker.

`workers/1` is no name of a partition's directory, as `worker-1` would be: neither this broker nor Apache Kafka takes it for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from ottla.server.config.broker_config import BrokerConfig, ConfigError, load_config
from ottla.server.config.endpoint import Endpoint, host_and_port
from ottla.server.config.server_config import FOLDER, Worker

PORT_MAX: Final = 65535
DEFAULTS_ON_ONE_MACHINE: Final = {
    # A copy on the same machine helps nobody who has not asked for it.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # When all stop, the controller may be the first to go, and the next one is there a moment later.
    "controlled.shutdown.retry.backoff.ms": "200",
}
"""Defaults for workers on one machine; Kafka's are for clusters of several machines. They apply unless the workers are part of
such a cluster."""


class Ports(NamedTuple):
    """Ports of one listener: the port shared by all workers, and each worker's own port."""

    shared: int
    own: Sequence[int]
    """Port of each worker, by its number."""


def worker_folder(log_dir: Path, number: int) -> Path:
    """Return worker `number`'s log directory, which is inside the configured log directory `log_dir`."""
    return log_dir / FOLDER / str(number) if number else log_dir


def tree_socket(log_dir: Path) -> Path:
    """Return the path of the Unix socket for the supervisor's tree; `log_dir`: the first log directory."""
    return log_dir.absolute() / FOLDER / "coordination.socket"


def wanted_ports(config: BrokerConfig, count: int) -> dict[str, Ports]:
    """Return the ports to bind by listener (0: any free port). Raises ConfigError if a range is too small."""
    wanted = {each.listener: Ports(each.port, _following(each, count)) for each in config.listeners}
    taken: dict[int, Endpoint] = {}
    for each in config.listeners:
        for port in filter(None, (each.port, *wanted[each.listener].own)):
            if port in taken:
                raise ConfigError(
                    f"listeners {taken[port]} and {each} are too near for num.workers={count}: each worker has a port of its"
                    f" own behind the shared one, so a listener needs {count + 1} ports in a row"
                )
            taken[port] = each
    return wanted


def _following(endpoint: Endpoint, count: int) -> list[int]:
    if not endpoint.port:
        return [0] * count
    if endpoint.port + count > PORT_MAX:
        raise ConfigError(
            f"listeners={endpoint}: the {count} ports behind it, which workers have, are beyond {PORT_MAX}"
        )
    return [endpoint.port + 1 + number for number in range(count)]


def worker_config(
    texts: Mapping[str, str], config: BrokerConfig, number: int, count: int, ports: Mapping[str, Ports]
) -> BrokerConfig:
    """Return worker `number`'s configuration, with the bound ports by listener. Raises ConfigError.

    `texts`: the given settings. `config`: the configuration parsed from them.
    """
    own = {
        "node.id": str(config.node_id + number),
        "broker.id": str(config.node_id + number),
        "listeners": ",".join(str(replace(each, port=ports[each.listener].own[number])) for each in config.listeners),
        "log.dirs": ",".join(str(worker_folder(path, number)) for path in config.log_dirs),
    }
    if config.server.advertised_listeners is not None:
        own["advertised.listeners"] = ",".join(str(_advertised(each, number)) for each in config.advertised.values())
    if (address := config.http.address) is not None:
        own["http.listener"] = str(_http(*address, number))
    # Not both names, and only those of the listeners that are opened.
    dropped = ("log.dir", "controller.listener.names")
    given = {name: text for name, text in texts.items() if name not in dropped}
    defaults: dict[str, str] = {}
    if not config.is_member:
        defaults = DEFAULTS_ON_ONE_MACHINE
        own["coordination.socket"] = str(tree_socket(config.log_dirs[0]))
    shared = tuple(replace(each, port=ports[each.listener].shared) for each in config.listeners)
    return replace(
        load_config(defaults | given | own),
        worker=Worker(number, count, shared, has_own_tree=not config.is_member),
        accepted_log_dirs=config.accepted_log_dirs,
        # One of them is enough to make users that all of them share.
        first_users=config.first_users if number == 0 else (),
        first_cluster_id=config.first_cluster_id,
        first_topics=config.first_topics if number == 0 else (),
    )


def _advertised(told: Endpoint, number: int) -> Endpoint:
    if not told.port:
        return told
    if (port := told.port + 1 + number) > PORT_MAX:
        raise ConfigError(
            f"advertised.listeners={told}: the ports behind it, which workers have, are beyond {PORT_MAX}"
        )
    return replace(told, port=port)


def _http(host: str, port: int, number: int) -> str:
    if port and port + number > PORT_MAX:
        raise ConfigError(f"http.listener: port {port} + {number}, which worker {number} has, is beyond {PORT_MAX}")
    return host_and_port(host, port + number if port else 0)
