"""The broker's configuration: which settings there are, how they are read, and what they come to together.

Settings are declared next to their consumers (`replication/config.py`, `groupcoord/config.py`, and here for the server
itself); `without_effect.py` lists Kafka's others. `load_config` turns texts from a file and the command line into a
`BrokerConfig`, or raises `ConfigError` with one line that a person can act on.
"""

import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from ottla.groupcoord.config import (
    DeadLetterConfig,
    GroupBoundsConfig,
    GroupConfig,
    ShareCoordinatorConfig,
    SharePartitionConfig,
    TransactionConfig,
)
from ottla.groupcoord.group_settings import check_bounds_of_broker
from ottla.replication.config import LogConfig, ReplicationConfig
from ottla.server.settings.authorizer_config import AuthorizerConfig, UnknownAuthorizer
from ottla.server.settings.control_plane import control_plane_listener
from ottla.server.settings.coordination_config import CoordinationConfig
from ottla.server.settings.endpoint import Endpoint
from ottla.server.settings.http_config import HttpConfig
from ottla.server.settings.kerberos_config import KerberosConfig
from ottla.server.settings.member_config import MemberConfig
from ottla.server.settings.oauth_login_config import OAuthLoginConfig
from ottla.server.settings.quota_config import QuotaConfig
from ottla.server.settings.rules import BROKEN_RULE, check_cordoned, check_follower_wait
from ottla.server.settings.sasl_config import (
    PeerLoginConfig,
    SaslConfig,
    SaslListenerConfig,
    peer_login,
    sasl_of_listener,
)
from ottla.server.settings.tls_config import TlsConfig
from ottla.server.settings.token_config import OlderTokenConfig, TokenConfig
from ottla.server.settings.without_effect import FORMER_SETTINGS, inert_settings, older_settings
from ottla.server.settings.workers_config import Worker, WorkersConfig
from ottla.server.settings.zookeeper_config import ZooKeeperConfig, check_connection
from ottla.wire.settings import (
    CLASS,
    INT_MAX,
    LIST,
    LONG,
    InvalidSetting,
    Setting,
    allowed_text,
    field_name,
    parse_integer,
    parse_value,
    setting,
    settings_of,
    synonym_setting,
)

ConfigT = TypeVar("ConfigT")

_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Za-z:%.]*)\]|([^/:\[\]]*)):(-?[0-9]+)")
_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\..+")
OF_SINGLE_LISTENERS = ("max.connections", "max.connection.creation.rate")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def _per_ip_overrides(text: str) -> str | None:
    for pair in filter(None, text.split(",")):
        host, separator, limit = pair.rpartition(":")
        count = parse_integer(limit.strip())
        if not separator or not host.strip() or count is None or count < 0:
            return f"{pair.strip()!r} is not address:count"
    return None


class ConfigError(Exception):
    """A configuration that the broker cannot start with; the message is one line for the operator."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The settings of the server itself: identity, listeners, connections, directories."""

    node_id: int = setting(1, minimum=0, doc="This broker's id in the cluster.")
    broker_id: int = setting(-1, doc="Older name of node.id.")
    broker_rack: str | None = setting(None, doc="Where this broker stands, for rack-aware clients.")
    listeners: tuple[str, ...] = setting(
        ("PLAINTEXT://127.0.0.1:9092",),
        empty_allowed=False,
        dynamic="per-broker",
        doc="Addresses to listen on, as NAME://host:port; an empty host means all interfaces, port 0 any free port.",
        on_change="Refused: listeners are bound once, when the broker starts.",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        None, kind=LIST, empty_allowed=False, doc="Addresses that clients are told to use; by default the listeners."
    )
    listener_security_protocol_map: str = setting(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        dynamic="per-broker",
        doc="Security protocol of each listener name, as NAME:PROTOCOL.",
        on_change="Refused: listeners are bound once, when the broker starts.",
    )
    inter_broker_listener_name: str | None = setting(None, doc="Listener that brokers use among themselves.")
    security_inter_broker_protocol: str = setting(
        "PLAINTEXT",
        choices=_PROTOCOLS,
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
    max_connections: int = setting(
        INT_MAX,
        minimum=0,
        dynamic="cluster-wide",
        doc="Connections open at a time.",
        on_change="Taken up at once: new connections wait while there are too many, and who is connected stays.",
    )
    max_connections_per_ip: int = setting(
        INT_MAX,
        minimum=0,
        dynamic="cluster-wide",
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
    max_connection_creation_rate: int = setting(
        INT_MAX,
        minimum=0,
        dynamic="cluster-wide",
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
class BrokerConfig:
    """Everything a broker is started with."""

    server: ServerConfig
    log: LogConfig
    replication: ReplicationConfig
    groups: GroupConfig
    share_partitions: SharePartitionConfig
    dead_letters: DeadLetterConfig
    transactions: TransactionConfig
    quotas: QuotaConfig
    share_coordinator: ShareCoordinatorConfig
    tokens: TokenConfig
    node_id: int
    listeners: tuple[Endpoint, ...]
    advertised: Mapping[str, Endpoint]
    inter_broker_listener_name: str
    control_plane_listener_name: str | None
    """Of the controller's connections, if that is another one."""
    log_dirs: tuple[Path, ...]
    member: MemberConfig
    zookeeper: ZooKeeperConfig | None
    static: Mapping[str, str] = field(repr=False)  # with the passwords
    sasl: Mapping[str, SaslListenerConfig] = field(default_factory=dict)
    """Of each listener that speaks SASL."""
    peer_logins: Mapping[str, PeerLoginConfig] = field(default_factory=dict)
    """How this member of a cluster logs in at the others, by the listener; one that is not here lets it in without."""
    authorizer: AuthorizerConfig | None = None
    http: HttpConfig = field(default_factory=HttpConfig)
    coordination: CoordinationConfig = field(default_factory=CoordinationConfig)
    workers: WorkersConfig = field(default_factory=WorkersConfig)
    worker: Worker | None = None
    """Which of several workers of one start this is; no setting."""

    first_users: tuple[Any, ...] = ()  # of --add-scram (server/auth/first_users.py); no setting, as it is not kept
    accepted_log_dirs: tuple[str, ...] = ()  # taken as they are, although they are not what they were; no setting

    def advertised_endpoint(self, listener: str, bound_port: int) -> Endpoint:
        """The address that clients of a listener get; a port 0 stands for the one that was bound."""
        told = self.advertised.get(listener) or self.advertised[self.inter_broker_listener_name]
        return told if told.port else Endpoint(listener=told.listener, host=told.host, port=bound_port)

    @property
    def is_member(self) -> bool:
        """Whether there may be other brokers; else this one is alone."""
        return self.zookeeper is not None or bool(self.coordination.coordination_socket)

    @property
    def between_brokers(self) -> frozenset[str]:
        """The listeners at which brokers speak to each other."""
        return frozenset({self.inter_broker_listener_name, self.control_plane_listener_name or ""}) - {""}

    @property
    def ignored_settings(self) -> tuple[str, ...]:
        """Given settings that have no effect although they ask for something other than the default."""
        return tuple(sorted(name for name, text in self.static.items() if _is_ignored(name, text)))


@cache
def broker_settings() -> Mapping[str, Setting]:
    """Kafka's name -> setting, for every broker setting that is known, with or without effect."""
    known = dict(inert_settings())
    for topic_setting in settings_of(LogConfig).values():
        for synonym in topic_setting.synonyms:
            known[synonym.name] = synonym_setting(topic_setting, synonym)
    coordinators = (
        GroupConfig,
        GroupBoundsConfig,
        TransactionConfig,
        ShareCoordinatorConfig,
        SharePartitionConfig,
        DeadLetterConfig,
    )
    security = (SaslConfig, OAuthLoginConfig, KerberosConfig, TlsConfig, TokenConfig)
    rest = (ReplicationConfig, MemberConfig, QuotaConfig, *security, HttpConfig)
    for config_class in (ServerConfig, *coordinators, *rest, CoordinationConfig, WorkersConfig):
        known.update(settings_of(config_class))
    return known


@cache
def settings_of_member() -> Mapping[str, Setting]:
    """The same for a member of a cluster, which also describes what Kafka 3.9 has for ZooKeeper."""
    return {**older_settings(), **settings_of(OlderTokenConfig), **settings_of(ZooKeeperConfig), **broker_settings()}


@cache
def known_names() -> frozenset[str]:
    """Every name that a start-up file may hold."""
    return frozenset(settings_of_member()) | FORMER_SETTINGS


def load_config(texts: Mapping[str, str]) -> BrokerConfig:
    """The configuration that settings given as text come to; raises ConfigError."""
    static = _checked(texts)
    server = _read(ServerConfig, static)
    replication = _read(ReplicationConfig, static)
    _refuse_unserved(server, static)
    zookeeper, coordination = _zookeeper(static), _read(CoordinationConfig, static)
    try:
        log, tokens = log_config_from(static), TokenConfig.of(static)
        log.check_consistency()
        coordination.check_together(static)
        check_together(server, replication)
        check_bounds_of_broker(partial(broker_value, static))
    except InvalidSetting as error:
        raise ConfigError(str(error)) from None
    listeners, inter_broker = _listeners(server)
    advertised = _advertised(server, listeners, inter_broker)
    with_sasl = [each.listener for each in listeners if each.security_protocol.startswith("SASL_")]
    try:
        sasl = {name: sasl_of_listener(texts_of_listener(static, name), name) for name in with_sasl}
        control_plane, logins = None, {}
        # A broker that is alone neither logs in at another one nor speaks to a controller over a connection.
        if zookeeper is not None:
            wanted = zookeeper.control_plane_listener_name
            control_plane = control_plane_listener(wanted, _protocol_map(server), advertised, inter_broker)
        if zookeeper is not None or coordination.coordination_socket:
            between = [name for name in (inter_broker, control_plane) if name in sasl]
            logins = {name: peer_login(static, name, texts_of_listener(static, name), sasl[name]) for name in between}
    except InvalidSetting as error:
        raise ConfigError(str(error)) from None
    node_id = _node_id(server, static)
    # Clients see both names with the id that is in force, whichever was given.
    static["node.id"] = static["broker.id"] = str(node_id)
    if not (server.log_dirs or server.log_dir):
        static["log.dirs"] = str(default_data_directory())
    return BrokerConfig(
        server=_read(ServerConfig, static),  # with what was settled meanwhile
        log=log,
        replication=replication,
        groups=_read(GroupConfig, static),
        share_partitions=_read(SharePartitionConfig, static),
        dead_letters=_read(DeadLetterConfig, static),
        transactions=_read(TransactionConfig, static),
        quotas=_read(QuotaConfig, static),
        share_coordinator=_read(ShareCoordinatorConfig, static),
        tokens=tokens,
        node_id=node_id,
        listeners=listeners,
        advertised=advertised,
        inter_broker_listener_name=inter_broker,
        control_plane_listener_name=control_plane,
        log_dirs=_log_dirs(server),
        member=_read(MemberConfig, static),
        sasl=sasl,
        peer_logins=logins,
        zookeeper=zookeeper,
        static=static,
        authorizer=_authorizer(server, static),
        http=_read(HttpConfig, static),
        coordination=coordination,
        workers=_read(WorkersConfig, static),
    )


def log_config_from(texts: Mapping[str, str]) -> LogConfig:
    """The defaults of topics that broker-wide settings come to, each by the first of its synonyms that is given."""
    values = {}
    for name, topic_setting in settings_of(LogConfig).items():
        for synonym in topic_setting.synonyms:
            if (text := texts.get(synonym.name)) is None:
                continue
            value = parse_value(synonym_setting(topic_setting, synonym), text)
            values[field_name(name)] = value * synonym.factor if synonym.factor != 1 else value
            break
    # Kafka takes any negative retention of the broker for "without limit".
    if values.get("retention_ms", 1) < 0:
        values["retention_ms"] = -1
    log = LogConfig(**values)
    _check_durations(log)
    return log


def check_together(server: ServerConfig, replication: ReplicationConfig) -> None:
    """Kafka's rules for settings that depend on each other; raises InvalidSetting."""
    size, threads = replication.log_cleaner_dedupe_buffer_size, replication.log_cleaner_threads
    if threads and size // threads <= 1 << 20:
        name = "log.cleaner.dedupe.buffer.size"
        raise InvalidSetting(name, size, BROKEN_RULE, message=f"{name} must be at least 1MB per cleaner thread.")
    if server.max_connections_per_ip == 0 and not server.max_connections_per_ip_overrides:
        name = "max.connections.per.ip"
        message = f"{name} can be set to zero only if {name}.overrides property is set."
        raise InvalidSetting(name, 0, BROKEN_RULE, message=message)
    check_cordoned(server.cordoned_log_dirs, _log_dirs(server))
    check_follower_wait(replication)


def read_settings(config_class: type[ConfigT], texts: Mapping[str, str]) -> ConfigT:
    """A configuration class filled from texts, the rest at its defaults; raises InvalidSetting."""
    known = settings_of(config_class)
    return config_class(**{field_name(name): parse_value(known[name], texts[name]) for name in known if name in texts})


def texts_of_listener(texts: Mapping[str, str], listener: str) -> dict[str, str]:
    """The settings as one listener has them: `listener.name.<listener in small letters>.<setting>` wins over `<setting>`."""
    prefix = f"listener.name.{listener.lower()}."
    own = {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)}
    return {**texts, **own}


def broker_value(texts: Mapping[str, str], name: str) -> Any:
    """The value of one broker setting that is known, at its default if it is not given; raises InvalidSetting."""
    return setting_value(broker_settings()[name], texts)


def setting_value(declared: Setting, texts: Mapping[str, str]) -> Any:
    """The same, of a setting of any kind."""
    text = texts.get(declared.name)
    return declared.default if text is None else parse_value(declared, text)


def default_data_directory() -> Path:
    """Where data goes if nothing says otherwise: $XDG_DATA_HOME/ottla, or ~/.local/share/ottla."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "ottla"


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    import difflib  # only for a message that ends the process

    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return close[0] if close else None


def _checked(texts: Mapping[str, str]) -> dict[str, str]:
    static = {}
    for name, text in texts.items():
        # Nearly all are among the first. All names take longer to know.
        if name not in broker_settings() and name not in known_names() and not _LISTENER_PREFIX.fullmatch(name):
            raise ConfigError(_unknown(name))
        static[name] = text.strip()
        declared = broker_settings().get(name)
        if _LISTENER_PREFIX.fullmatch(name) and name.split(".", 3)[-1] in OF_SINGLE_LISTENERS:
            declared = broker_settings()[name.split(".", 3)[-1]]
        if declared is None and name in settings_of_member():
            declared = settings_of_member()[name]
        if declared is not None:
            _check_value(declared, text)
    return static


def _unknown(name: str) -> str:
    # Without its value: it may be a password whose name has a slip.
    nearest = nearest_name(name, known_names())
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"Unknown setting {name}: allowed are Apache Kafka's broker settings{hint}"


_URL_CREDENTIALS = re.compile(r"//[^/@]*@")


def _check_value(declared: Setting, text: str) -> None:
    try:
        parse_value(declared, text)
    except InvalidSetting as error:
        # A URL may have a password in it where none is allowed.
        shown = "[hidden]" if declared.is_sensitive else _URL_CREDENTIALS.sub("//[hidden]@", text)
        raise ConfigError(
            f"Invalid value {shown} for setting {declared.name}: {error.reason}; allowed: {allowed_text(declared)}"
        ) from None


def _read(config_class: type[ConfigT], static: Mapping[str, str]) -> ConfigT:
    try:
        return read_settings(config_class, static)
    except InvalidSetting as error:
        raise ConfigError(str(error)) from None


def _check_durations(log: LogConfig) -> None:
    for name, value, is_met, rule in (
        ("log.roll.ms", log.segment_ms, log.segment_ms >= 1, "greater than or equal to 1"),
        ("log.roll.jitter.ms", log.segment_jitter_ms, log.segment_jitter_ms >= 0, "greater than or equal to 0"),
        ("log.retention.ms", 0, log.retention_ms != 0, "unlimited (-1) or, greater than or equal to 1"),
    ):
        if not is_met:
            raise InvalidSetting(name, value, BROKEN_RULE, message=f"{name} must be {rule}")


def _refuse_unserved(server: ServerConfig, static: Mapping[str, str]) -> None:
    """Settings whose promise would silently be broken are refused, not ignored."""
    for name, is_asked, reason in (
        ("create.topic.policy.class.name", server.create_topic_policy_class_name, "policies are not served"),
        ("alter.config.policy.class.name", server.alter_config_policy_class_name, "policies are not served"),
        ("config.providers", server.config_providers, "configuration providers are not served"),
        ("remote.log.storage.system.enable", server.remote_log_storage_system_enable, "there is no tiered storage"),
    ):
        if is_asked:
            raise ConfigError(f"{name}={static[name]}: {reason}; remove the setting")
    if server.process_roles and "broker" not in server.process_roles:
        raise ConfigError(f"process.roles={static['process.roles']}: only the role 'broker' is served")


def _authorizer(server: ServerConfig, static: Mapping[str, str]) -> AuthorizerConfig | None:
    try:
        return AuthorizerConfig.of(server.authorizer_class_name, static)
    except UnknownAuthorizer as error:
        raise ConfigError(str(error)) from None


def _node_id(server: ServerConfig, static: Mapping[str, str]) -> int:
    if "broker.id" not in static or server.broker_id < 0:
        return server.node_id
    if "node.id" in static and server.node_id != server.broker_id:
        raise ConfigError(f"node.id={server.node_id} and broker.id={server.broker_id} must be the same")
    return server.broker_id


def _zookeeper(static: Mapping[str, str]) -> ZooKeeperConfig | None:
    """How to reach ZooKeeper; None for a broker that is alone."""
    if not static.get("zookeeper.connect"):
        return None
    config = _read(ZooKeeperConfig, static)
    try:
        check_connection(config, static)
    except InvalidSetting as error:
        raise ConfigError(str(error)) from None
    return config


def _log_dirs(server: ServerConfig) -> tuple[Path, ...]:
    named = server.log_dirs or server.log_dir
    return tuple(Path(each) for each in named) if named else (default_data_directory(),)


def _listeners(server: ServerConfig) -> tuple[tuple[Endpoint, ...], str]:
    """The listeners to open, and the name of the one among brokers."""
    protocols = _protocol_map(server)
    endpoints = [_endpoint("listeners", text) for text in server.listeners]
    kept = [each for each in endpoints if each.listener not in _upper(server.controller_listener_names)]
    if not kept:
        raise ConfigError(f"listeners={','.join(server.listeners)}: all are controller.listener.names; none is left")
    names = [each.listener for each in kept]
    if len(set(names)) != len(names):
        raise ConfigError(f"listeners={','.join(server.listeners)}: each listener must have a different name")
    listeners = tuple(replace(each, security_protocol=_checked_protocol(each, protocols)) for each in kept)
    ports = [each.port for each in kept if each.port]
    if len(set(ports)) != len(ports) and len({(each.host, each.port) for each in kept}) != len(kept):
        raise ConfigError(f"listeners={','.join(server.listeners)}: each listener must have a different port")
    return listeners, _inter_broker_listener(server, names, protocols)


def _checked_protocol(endpoint: Endpoint, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(endpoint.listener)
    if protocol is None:
        raise ConfigError(
            f"listeners={endpoint}: No security protocol defined for listener {endpoint.listener};"
            " add it to listener.security.protocol.map"
        )
    return protocol


def _inter_broker_listener(server: ServerConfig, names: list[str], protocols: Mapping[str, str]) -> str:
    wanted = server.inter_broker_listener_name
    if wanted is not None:
        if wanted.upper() not in names:
            raise ConfigError(f"inter.broker.listener.name={wanted}: must be one of the listeners {','.join(names)}")
        return wanted.upper()
    protocol = server.security_inter_broker_protocol
    found = next((name for name in names if protocols[name] == protocol), None)
    if found is None:
        raise ConfigError(
            f"security.inter.broker.protocol={protocol}: none of the listeners {','.join(names)} speaks it"
        )
    return found


def _protocol_map(server: ServerConfig) -> dict[str, str]:
    protocols = {name.upper(): "PLAINTEXT" for name in server.controller_listener_names}
    for pair in server.listener_security_protocol_map.split(","):
        name, separator, protocol = (part.strip() for part in pair.rpartition(":"))
        if not separator or protocol.upper() not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map={server.listener_security_protocol_map}: {pair!r} is not NAME:PROTOCOL"
                f" with a protocol of {', '.join(_PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _advertised(server: ServerConfig, listeners: tuple[Endpoint, ...], inter_broker: str) -> dict[str, Endpoint]:
    if server.advertised_listeners is None:
        told = {each.listener: _routable(each) for each in listeners}
    else:
        parsed = [_endpoint("advertised.listeners", text) for text in server.advertised_listeners]
        controllers = _upper(server.controller_listener_names)
        told = {each.listener: _routable(each) for each in parsed if each.listener not in controllers}
    names = {each.listener for each in listeners}
    if unknown := sorted(set(told) - names):
        raise ConfigError(
            f"advertised.listeners names {','.join(unknown)}: must be among the listeners {','.join(sorted(names))}"
        )
    if inter_broker not in told:
        raise ConfigError(f"advertised.listeners must hold the listener among brokers, {inter_broker}")
    for each in told.values():
        if each.host == "0.0.0.0":
            raise ConfigError(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0; give the address that clients use"
            )
    return told


def _routable(endpoint: Endpoint) -> Endpoint:
    return endpoint if endpoint.host else replace(endpoint, host=socket.gethostname())


def _endpoint(name: str, text: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 <= int(match[4]) <= 65535:
        raise ConfigError(f"{name}={text}: Unable to parse {text} to a broker endpoint; allowed: NAME://host:port")
    return Endpoint(listener=match[1].upper(), host=match[2] or match[3] or "", port=int(match[4]))


def _upper(names: Iterable[str]) -> set[str]:
    return {name.upper() for name in names}


def _is_ignored(name: str, text: str) -> bool:
    declared = broker_settings().get(name)
    if declared is None or declared.effective:
        return False
    return bool(parse_value(declared, text) != declared.default)
