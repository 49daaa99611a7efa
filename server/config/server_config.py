"""Declarations of the settings of the server itself: identity, listeners, connections, directories, quotas, workers, HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

from ottla.server.config.endpoint import PROTOCOLS, Endpoint
from ottla.wire.settings import CLASS, INT_MAX, LIST, LONG, PASSWORD, parse_integer, setting

_HTTP_LISTENER = re.compile(r"(?:\[([0-9A-Za-z:%.]+)\]|([^/:\[\]\s]*)):([0-9]{1,5})")
LOOPBACK = "127.0.0.1"
TOKEN_LENGTH_MIN = 16
FOLDER = "workers"
"""Folder below a log directory for the workers from number 1 on, and for what the start itself keeps."""

AUTO = "auto"
AUTO_MAX = 8
WORKERS_MAX = 128


def _per_ip_overrides(text: str) -> str | None:
    for pair in filter(None, text.split(",")):
        host, separator, limit = pair.rpartition(":")
        count = parse_integer(limit.strip())
        if not separator or not host.strip() or count is None or count < 0:
            return f"{pair.strip()!r} is not address:count"
    return None


_bound_once = partial(
    setting, dynamic="per-broker", on_change="Refused: listeners are bound once, when the broker starts."
)
_limit = partial(setting, dynamic="cluster-wide", minimum=0)
_internal = partial(setting, internal=True)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Settings of a broker's identity, listeners, connections and directories."""

    node_id: int = setting(1, minimum=0, doc="This broker's id in the cluster.")
    broker_id: int = setting(-1, doc="Older name of node.id.")
    broker_rack: str | None = setting(None, doc="Where this broker stands, for rack-aware clients.")
    listeners: tuple[str, ...] = _bound_once(
        ("PLAINTEXT://127.0.0.1:9092",),
        empty_allowed=False,
        doc="Addresses to listen on, as NAME://host:port; an empty host means all interfaces, port 0 any free port.",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        None, kind=LIST, empty_allowed=False, doc="Addresses that clients are told to use; by default the listeners."
    )
    listener_security_protocol_map: str = _bound_once(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        doc="Security protocol of each listener name, as NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = setting(None, doc="Listener that brokers use among themselves.")
    security_inter_broker_protocol: str = setting(
        "PLAINTEXT",
        choices=PROTOCOLS,
        doc="Security protocol among brokers, if inter.broker.listener.name is not given.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        (), doc="Listeners of a Kafka controller; listeners named here are not opened."
    )
    process_roles: tuple[str, ...] = setting(
        (), choices=("broker", "controller"), doc="Kafka's roles of a process; must include 'broker' if given."
    )
    log_dir: tuple[str, ...] = setting((), kind=LIST, doc="Data directory, if log.dirs is not given.")
    log_dirs: tuple[str, ...] | None = setting(None, kind=LIST, empty_allowed=False, doc="Data directories.")
    cordoned_log_dirs: tuple[str, ...] = setting(
        (),
        dynamic="per-broker",
        doc="Data directories that get no new partitions; * means all of them (KIP-1066).",
        on_change="Holds for the next partition or move; what is in a directory stays there.",
    )
    log_dirs_readable_by: str = setting(
        "user",
        choices=("user", "group", "all"),  # `ACCESS` of the storage
        internal=True,
        doc="Who may read the files of the data directories: the broker's user alone, its group too, or all; what is there already"
        " keeps its modes.",
    )
    older_api_versions_enable: bool = setting(
        False,
        internal=True,
        doc="Whether all versions of requests are served that Kafka 3.9 served and Kafka 4 has dropped, such as ListOffsets v0 and"
        " DescribeConfigs v0, which Burrow and other old tools still send.",
    )
    socket_request_max_bytes: int = setting(104_857_600, minimum=1, doc="Largest request accepted.")
    telemetry_max_bytes: int = setting(
        1_048_576,
        minimum=1,
        doc="Most bytes of metrics that a client may push at a time, which are never more than 1 MiB.",
    )
    queued_max_request_bytes: int = setting(
        -1, kind=LONG, doc="Memory for unfinished large requests, beyond which they are not read on; -1: 96 MiB."
    )
    socket_send_buffer_bytes: int = setting(102_400, doc="Socket send buffer; -1: the system's default.")
    socket_receive_buffer_bytes: int = setting(102_400, doc="Socket receive buffer; -1: the system's default.")
    socket_listen_backlog_size: int = setting(50, minimum=1, doc="Connections waiting to be accepted.")
    connections_max_idle_ms: int = setting(600_000, kind=LONG, doc="Time after which an idle connection is closed.")
    max_connections: int = _limit(
        INT_MAX,
        doc="Connections open at a time.",
        on_change="Taken up at once: new connections wait while there are too many, and who is connected stays.",
    )
    max_connections_per_ip: int = _limit(
        INT_MAX,
        doc="Connections open at a time from one address.",
        on_change="Holds for the next connection; who is connected stays.",
    )
    max_connections_per_ip_overrides: str = setting(
        "",
        check=_per_ip_overrides,
        dynamic="cluster-wide",
        doc="Limits for single addresses, as address:count, separated by commas.",
        on_change="Holds for new connections as soon as names among the addresses are looked up; who is connected stays.",
    )
    max_connection_creation_rate: int = _limit(
        INT_MAX,
        doc="Connections accepted per second.",
        on_change="Holds for the next connection; who is connected stays.",
    )
    controller_socket_timeout_ms: int = setting(
        30_000, doc="Longest wait of the controller for a broker before it sends a request again."
    )
    request_timeout_ms: int = setting(30_000, doc="Longest wait for another broker.")
    authorizer_class_name: str = setting(
        "", doc="What decides what clients may do: one of the two authorizers of Kafka, or nothing."
    )
    create_topic_policy_class_name: str | None = setting(
        None, kind=CLASS, doc="Class of a plug-in that judges new topics; there are none, so no value is accepted."
    )
    alter_config_policy_class_name: str | None = setting(
        None,
        kind=CLASS,
        doc="Class of a plug-in that judges changed settings; there are none, so no value is accepted.",
    )
    config_providers: tuple[str, ...] = setting(
        (),
        dynamic="cluster-wide",
        doc="Plug-ins that values of settings come from; there are none, so only an empty value is accepted.",
        on_change="Refused: there are no providers.",
    )
    remote_log_storage_system_enable: bool = setting(
        False, doc="Whether there is tiered storage; there is none, so only false is accepted."
    )


@dataclass(frozen=True, kw_only=True)
class MemberConfig:
    """Settings of a cluster member's connections to other brokers, and of its controlled shutdown."""

    socket_connection_setup_timeout_ms: int = setting(
        10_000, kind=LONG, doc="Longest wait for a connection to another broker; it doubles with each one that fails."
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        30_000, kind=LONG, doc="Longest wait for a connection to another broker, however often it has failed."
    )

    controlled_shutdown_enable: bool = setting(True, doc="Whether a broker hands over what it leads before it stops.")
    controlled_shutdown_max_retries: int = _internal(
        3, doc="Further attempts to hand over what a stopping broker leads."
    )
    controlled_shutdown_retry_backoff_ms: int = _internal(
        5_000, kind=LONG, doc="Pause before the next attempt to hand over."
    )
    controlled_shutdown_timeout_ms: int = _internal(
        30_000, kind=LONG, minimum=0, doc="Longest time that handing over may take, all attempts together."
    )


@dataclass(frozen=True)
class QuotaConfig:
    """Settings of the measurement windows of client quotas. The quotas themselves are in the coordination tree."""

    quota_window_num: int = setting(11, minimum=1, doc="Windows that the use of clients is measured over.")
    quota_window_size_seconds: int = setting(1, minimum=1, doc="The length of each of these windows.")
    controller_quota_window_num: int = setting(11, minimum=1, doc="Windows that changes of topics are measured over.")
    controller_quota_window_size_seconds: int = setting(
        1, minimum=1, doc="The length of each window that changes of topics are measured over."
    )


def _count_problem(text: str) -> str | None:
    count = parse_integer(text)
    if text == AUTO or (count is not None and 1 <= count <= WORKERS_MAX):
        return None
    return f"must be a number from 1 to {WORKERS_MAX}, or {AUTO}"


@dataclass(frozen=True, kw_only=True)
class WorkersConfig:
    """Setting for the number of processes of one `ottla start`; not described to clients, as Kafka has none."""

    num_workers: str = _internal(
        "1",
        check=_count_problem,
        doc="Processes that serve, each a broker of its own with an id and a port of its own; auto: one for each processor,"
        f" at most {AUTO_MAX}.",
    )

    def count(self, processors: int) -> int:
        """Return the number of workers on a machine with this number of processors."""
        if self.num_workers == AUTO:
            return max(1, min(processors, AUTO_MAX))
        return int(self.num_workers)


@dataclass(frozen=True)
class Worker:
    """Place of this broker among the worker processes of one `ottla start` (`worker_places.py`)."""

    number: int
    count: int
    shared: tuple[Endpoint, ...]
    """Listeners that all workers accept connections at, beside their own ones, which have the same names."""

    has_own_tree: bool
    """Whether the start itself holds the coordination tree, so that these workers are the whole cluster."""


def parse_http_listener(text: str) -> tuple[str, int] | None:
    """Split HOST:PORT, [IPV6]:PORT, or :PORT (on loopback) into host and port; None if the text is malformed."""
    match = _HTTP_LISTENER.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        return None
    return match[1] or match[2] or LOOPBACK, int(match[3])


CONSOLE_PASSWORD_MIN = 8


def parse_console_users(text: str) -> dict[str, str]:
    """Parse NAME:PASSWORD,NAME:PASSWORD into passwords by name; empty if the text is malformed."""
    pairs = [each.strip().partition(":") for each in text.split(",")]
    found = {name: password for name, _, password in pairs}
    is_right = all(name and len(password) >= CONSOLE_PASSWORD_MIN for name, _, password in pairs)
    is_right = is_right and len(found) == len(pairs)
    return found if is_right else {}


def _principal_problem(text: str) -> str | None:
    kind, _, name = text.partition(":")
    return None if kind and name else "must be TYPE:NAME, such as User:alice"


def token_problem(text: str | None) -> str | None:
    """Return what is wrong with a token for an HTTP port, as the end of a sentence; None if it is good, or there is none."""
    # It goes into a header, so it is ASCII without spaces.
    if text is None or (len(text) >= TOKEN_LENGTH_MIN and text.isascii() and text.isprintable() and " " not in text):
        return None
    return f"must have {TOKEN_LENGTH_MIN} characters at least, all of them ASCII, and no spaces"


def _registry_problem(text: str | None, user_info: str = "http.console.schema.registry.user.info") -> str | None:
    if text is None:
        return None
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or not text.isascii() or not text.isprintable() or " " in text or parts.query or parts.fragment:
        return "must be a URL that begins with http:// or https://, without a query"
    # It is shown with the settings.
    return f"must not have a password in it: {user_info} takes it" if "@" in parts.netloc else None


def _registries_problem(texts: tuple[str, ...]) -> str | None:
    problems = (_registry_problem(text, "confluent.basic.auth.user.info") for text in texts)
    return next(filter(None, problems), None)


def _user_info_problem(text: str | None) -> str | None:
    return None if text is None or ":" in text else "must be user:password"


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """Settings of the HTTP endpoint. Apache Kafka has no such endpoint, so they are not described to clients."""

    http_listener: str | None = _internal(
        None,
        check=lambda text: None if parse_http_listener(text) else "must be HOST:PORT, or :PORT on loopback",
        doc="Address of the HTTP endpoint with metrics and health, as HOST:PORT; none by default, port 0 any free port.",
    )
    http_allowed_hosts: tuple[str, ...] = _internal(
        (), doc="Names beside those of the listeners by which browsers and scrapers may ask the HTTP endpoint."
    )
    http_console_write: bool = _internal(
        False,
        doc="Whether the console may produce records, change topics, groups, settings and rights, and start the load of its Learn tab.",
    )
    http_console_principal: str | None = _internal(
        None,
        check=_principal_problem,
        doc="Principal, as User:NAME, whose rights by the authorizer's rules the console's changes have; by default all rights.",
    )
    http_console_users: str | None = _internal(
        None,
        kind=PASSWORD,
        check=lambda text: (
            None
            if parse_console_users(text)
            else f"must be NAME:PASSWORD,NAME:PASSWORD, with passwords of {CONSOLE_PASSWORD_MIN} characters at least"
        ),
        doc="Who may log in to the console, as NAME:PASSWORD,...; their changes have the rights that User:NAME has by the authorizer's rules.",
    )
    http_console_token: str | None = _internal(
        None,
        kind=PASSWORD,
        check=token_problem,
        doc="What opens the console; without it everybody on this machine may read, or each start makes one.",
    )

    http_console_schema_registry: str | None = _internal(
        None,
        check=_registry_problem,
        doc="URL of a schema registry, by which the console decodes keys and values in Avro, and whose schemas it shows.",
    )
    http_console_schema_registry_user_info: str | None = _internal(
        None,
        kind=PASSWORD,
        check=_user_info_problem,
        doc="User and password for the schema registry, as user:password.",
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the HTTP endpoint; None if it is disabled."""
        return None if self.http_listener is None else parse_http_listener(self.http_listener)


@dataclass(frozen=True, kw_only=True)
class SchemaRegistryConfig:
    """Settings of the schema registry with which produced records are checked; the names are Confluent Server's."""

    confluent_schema_registry_url: tuple[str, ...] = _internal(
        (),
        check=_registries_problem,
        doc="URLs of a schema registry's instances, for topics with confluent.value.schema.validation.",
    )
    confluent_basic_auth_user_info: str | None = _internal(
        None,
        kind=PASSWORD,
        check=_user_info_problem,
        doc="User and password for the schema registry of confluent.schema.registry.url, as user:password.",
    )
    confluent_basic_auth_credentials_source: str | None = _internal(
        None,
        choices=("USER_INFO",),
        doc="Where the credentials for the schema registry are; confluent.basic.auth.user.info is the only place.",
        effective=False,
    )
