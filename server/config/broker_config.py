"""Configuration of a broker: which settings there are, how they are read, and Kafka's rules for several of them.

Settings are declared next to their consumers (`replication/config.py`, `groupcoord/config.py`, and the `*_config.py` beside this
module for the server); `without_effect.py` lists Kafka's others. `load_config` turns texts from a file and the command line into a
`BrokerConfig`, or raises `ConfigError` with one line that a person can act on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from ottla.server.config.coordination_config import CoordinationConfig, ZooKeeperConfig, check_connection
from ottla.server.config.endpoint import Endpoint
from ottla.server.config.listeners import advertised_endpoints, control_plane_listener, listeners_of, protocol_map
from ottla.server.config.sasl_config import KerberosConfig, OAuthLoginConfig, SaslConfig
from ottla.server.config.security_config import AuthorizerConfig, OlderTokenConfig, TlsConfig, TokenConfig
from ottla.server.config.server_config import (
    HttpConfig,
    MemberConfig,
    QuotaConfig,
    SchemaRegistryConfig,
    ServerConfig,
    Worker,
    WorkersConfig,
)
from ottla.server.config.without_effect import FORMER_SETTINGS, inert_settings, older_settings
from ottla.wire.settings import (
    InvalidSetting,
    Setting,
    allowed_text,
    field_name,
    parse_value,
    read_settings,
    settings_of,
    synonym_setting,
)

if TYPE_CHECKING:
    from ottla.server.config.sasl_rules import PeerLoginConfig, SaslListenerConfig

_LISTENER_PREFIX = re.compile(r"listener\.name\.[^.]*\..+")
OF_SINGLE_LISTENERS = ("max.connections", "max.connection.creation.rate")
BROKEN_RULE = "requirement failed"
CORDONED, ALL_DIRECTORIES = "cordoned.log.dirs", "*"


class ConfigError(Exception):
    """Raised if the broker cannot start with its configuration. The text is one line for the operator."""


@dataclass(frozen=True, kw_only=True)
class BrokerConfig:
    """Configuration with which a broker is started."""

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
    """Listener of the controller's connections; None: the inter-broker listener."""
    log_dirs: tuple[Path, ...]
    member: MemberConfig
    zookeeper: ZooKeeperConfig | None
    static: Mapping[str, str] = field(repr=False)  # with the passwords
    sasl: Mapping[str, SaslListenerConfig] = field(default_factory=dict)
    """SASL settings, by listener."""
    peer_logins: Mapping[str, PeerLoginConfig] = field(default_factory=dict)
    """Logins of this broker at other members, by listener; a listener that is not here needs none."""
    authorizer: AuthorizerConfig | None = None
    http: HttpConfig = field(default_factory=HttpConfig)
    schema_registry: SchemaRegistryConfig = field(default_factory=SchemaRegistryConfig)
    coordination: CoordinationConfig = field(default_factory=CoordinationConfig)
    workers: WorkersConfig = field(default_factory=WorkersConfig)
    worker: Worker | None = None
    """Place of this worker among those of one start; None: there are no workers. Not a setting."""

    first_users: tuple[Any, ...] = ()  # of --add-scram (server/security/scram_users.py); no setting, as it is not kept
    accepted_log_dirs: tuple[str, ...] = ()  # taken as they are, although they are not what they were; no setting
    first_cluster_id: str | None = None
    """Id of the cluster if this start begins a new one; None: a random one. Not a setting, as it is kept with the data."""

    first_topics: tuple[Any, ...] = ()  # `FirstTopic`s (server/config/environment.py); no setting, likewise

    def advertised_endpoint(self, listener: str, bound_port: int) -> Endpoint:
        """Return the address advertised to clients of a listener; `bound_port` replaces port 0."""
        told = self.advertised.get(listener) or self.advertised[self.inter_broker_listener_name]
        return told if told.port else Endpoint(listener=told.listener, host=told.host, port=bound_port)

    @property
    def is_member(self) -> bool:
        """True if the broker is a member of a cluster; a lone broker is not."""
        return self.zookeeper is not None or bool(self.coordination.coordination_socket)

    @property
    def between_brokers(self) -> frozenset[str]:
        """Names of the listeners that brokers use to connect to each other."""
        return frozenset({self.inter_broker_listener_name, self.control_plane_listener_name or ""}) - {""}

    @property
    def ignored_settings(self) -> tuple[str, ...]:
        """Names of given settings that have no effect here and differ from their defaults."""
        return tuple(sorted(name for name, text in self.static.items() if _is_ignored(name, text)))


@cache
def broker_settings() -> Mapping[str, Setting]:
    """Return all known broker settings by Kafka's names, including those without effect here."""
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
    rest = (ReplicationConfig, MemberConfig, QuotaConfig, *security, HttpConfig, SchemaRegistryConfig)
    for config_class in (ServerConfig, *coordinators, *rest, CoordinationConfig, WorkersConfig):
        known.update(settings_of(config_class))
    return known


@cache
def settings_of_member() -> Mapping[str, Setting]:
    """Return the settings of a cluster member by name, including the ZooKeeper settings of Kafka 3.9."""
    return {**older_settings(), **settings_of(OlderTokenConfig), **settings_of(ZooKeeperConfig), **broker_settings()}


@cache
def known_names() -> frozenset[str]:
    """Return every name that a properties file for a start may contain."""
    return frozenset(settings_of_member()) | FORMER_SETTINGS


def is_known_name(name: str) -> bool:
    """Return True if a properties file for a start may contain `name`."""
    # Nearly all are among the first. All names take longer to know.
    return name in broker_settings() or name in known_names() or _LISTENER_PREFIX.fullmatch(name) is not None


def load_config(texts: Mapping[str, str]) -> BrokerConfig:
    """Parse settings, given as texts by name, into a configuration. Raises ConfigError."""
    static = _checked(texts)
    try:
        return _configuration(static)
    except InvalidSetting as error:
        raise ConfigError(str(error)) from None


def _configuration(static: dict[str, str]) -> BrokerConfig:
    server = read_settings(ServerConfig, static)
    replication = read_settings(ReplicationConfig, static)
    _refuse_unserved(server, static)
    zookeeper, coordination = _zookeeper(static), read_settings(CoordinationConfig, static)
    log, tokens = log_config_from(static), TokenConfig.of(static)
    log.check_consistency()
    coordination.check_together(static)
    check_together(server, replication)
    check_bounds_of_broker(partial(broker_value, static))
    listeners, inter_broker = listeners_of(server)
    advertised = advertised_endpoints(server, listeners, inter_broker)
    sasl = _sasl(listeners, static)
    # A broker that is alone neither speaks to a controller over a connection nor logs in at another one.
    control_plane = None
    if zookeeper is not None:
        wanted = zookeeper.control_plane_listener_name
        control_plane = control_plane_listener(wanted, protocol_map(server), advertised, inter_broker)
    is_member = zookeeper is not None or bool(coordination.coordination_socket)
    logins = _peer_logins((inter_broker, control_plane), sasl, static) if is_member else {}
    node_id = _node_id(server, static)
    # Clients see both names with the id that is in force, whichever was given.
    static["node.id"] = static["broker.id"] = str(node_id)
    if not (server.log_dirs or server.log_dir):
        static["log.dirs"] = str(default_data_directory())
    return BrokerConfig(
        server=read_settings(ServerConfig, static),  # with what was settled meanwhile
        log=log,
        replication=replication,
        groups=read_settings(GroupConfig, static),
        share_partitions=read_settings(SharePartitionConfig, static),
        dead_letters=read_settings(DeadLetterConfig, static),
        transactions=read_settings(TransactionConfig, static),
        quotas=read_settings(QuotaConfig, static),
        share_coordinator=read_settings(ShareCoordinatorConfig, static),
        tokens=tokens,
        node_id=node_id,
        listeners=listeners,
        advertised=advertised,
        inter_broker_listener_name=inter_broker,
        control_plane_listener_name=control_plane,
        log_dirs=_log_dirs(server),
        member=read_settings(MemberConfig, static),
        sasl=sasl,
        peer_logins=logins,
        zookeeper=zookeeper,
        static=static,
        authorizer=AuthorizerConfig.of(server.authorizer_class_name, static),
        http=read_settings(HttpConfig, static),
        schema_registry=read_settings(SchemaRegistryConfig, static),
        coordination=coordination,
        workers=read_settings(WorkersConfig, static),
    )


def _sasl(listeners: Iterable[Endpoint], static: Mapping[str, str]) -> dict[str, SaslListenerConfig]:
    names = [each.listener for each in listeners if each.security_protocol.startswith("SASL_")]
    if not names:
        return {}
    from ottla.server.config.sasl_rules import sasl_of_listener  # few brokers have SASL

    return {name: sasl_of_listener(texts_of_listener(static, name), name) for name in names}


def _peer_logins(
    between_brokers: Iterable[str | None], sasl: Mapping[str, SaslListenerConfig], static: Mapping[str, str]
) -> dict[str, PeerLoginConfig]:
    """Return this broker's logins at other brokers, by inter-broker listener; only listeners with SASL have one."""
    names = [name for name in between_brokers if name is not None and name in sasl]
    if not names:
        return {}
    from ottla.server.config.sasl_rules import peer_login  # as above

    return {name: peer_login(static, name, texts_of_listener(static, name), sasl[name]) for name in names}


def log_config_from(texts: Mapping[str, str]) -> LogConfig:
    """Return the defaults of topic settings, as the broker's settings define them.

    If several synonyms of a topic setting are given, the one of the highest precedence counts.
    """
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
    """Apply Kafka's rules for settings that depend on each other. Raises InvalidSetting."""
    size, threads = replication.log_cleaner_dedupe_buffer_size, replication.log_cleaner_threads
    if threads and size // threads <= 1 << 20:
        name = "log.cleaner.dedupe.buffer.size"
        raise InvalidSetting(name, size, BROKEN_RULE, message=f"{name} must be at least 1MB per cleaner thread.")
    if server.max_connections_per_ip == 0 and not server.max_connections_per_ip_overrides:
        name = "max.connections.per.ip"
        message = f"{name} can be set to zero only if {name}.overrides property is set."
        raise InvalidSetting(name, 0, BROKEN_RULE, message=message)
    _check_cordoned(server.cordoned_log_dirs, _log_dirs(server))
    _check_follower_wait(replication)


def cordoned_among(log_dirs: Sequence[Path], cordoned: Collection[str]) -> list[Path]:
    """Return the directories of `log_dirs` that are `cordoned`: they get no new partitions (KIP-1066)."""
    named = {Path(each) for each in cordoned}
    return [each for each in log_dirs if ALL_DIRECTORIES in cordoned or each in named]


def _check_cordoned(cordoned: Collection[str], log_dirs: Collection[Path]) -> None:
    """Raise InvalidSetting if cordoned.log.dirs names a directory outside log.dirs, or mixes `*` with names."""
    if ALL_DIRECTORIES in cordoned and len(cordoned) > 1:
        message = f"When {CORDONED} is set to {ALL_DIRECTORIES}, it must not contain other values"
        raise InvalidSetting(CORDONED, cordoned, BROKEN_RULE, message=message)
    missing = [each for each in cordoned if each != ALL_DIRECTORIES and Path(each) not in log_dirs]
    if missing:
        message = (
            f"All entries in {CORDONED} must be present in log.dirs or log.dir. Missing entries : {', '.join(missing)}"
        )
        raise InvalidSetting(CORDONED, cordoned, BROKEN_RULE, message=message)


def _check_follower_wait(replication: ReplicationConfig) -> None:
    """Raise InvalidSetting if a follower's fetch may last longer than its socket timeout or the leader's lag limit."""
    name, wait_ms = "replica.fetch.wait.max.ms", replication.replica_fetch_wait_max_ms
    if wait_ms > replication.replica_socket_timeout_ms:
        message = f"replica.socket.timeout.ms should always be at least {name} to prevent unnecessary socket timeouts"
        raise InvalidSetting(name, wait_ms, BROKEN_RULE, message=message)
    if wait_ms > replication.replica_lag_time_max_ms:
        message = (
            f"{name} should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR"
        )
        raise InvalidSetting(name, wait_ms, BROKEN_RULE, message=message)


def texts_of_listener(texts: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return the settings of one listener: `listener.name.<lower-case listener>.<setting>` overrides `<setting>`."""
    prefix = f"listener.name.{listener.lower()}."
    own = {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)}
    return {**texts, **own}


def broker_value(texts: Mapping[str, str], name: str) -> Any:
    """Return the parsed value of a known broker setting, or its default. Raises InvalidSetting."""
    return setting_value(broker_settings()[name], texts)


def setting_value(declared: Setting, texts: Mapping[str, str]) -> Any:
    """Return the parsed value of a setting, or its default. Raises InvalidSetting."""
    text = texts.get(declared.name)
    return declared.default if text is None else parse_value(declared, text)


def default_data_directory() -> Path:
    """Return the default data directory: $XDG_DATA_HOME/ottla, or ~/.local/share/ottla."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "ottla"


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the setting's name that is most like the mistyped `name`; None if no name is similar."""
    import difflib  # only for a message that ends the process

    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return close[0] if close else None


def _checked(texts: Mapping[str, str]) -> dict[str, str]:
    static = {}
    for name, text in texts.items():
        if not is_known_name(name):
            raise ConfigError(_unknown(name))
        text = static[name] = _number(name, text.strip())
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


def _number(name: str, text: str) -> str:
    """Return the number of a duration or size such as 7d; any other text as it is. Raises ConfigError."""
    # Hardly any setting is one of them.
    if not (text[:1].isdigit() and text[-1:].isalpha()):
        return text
    from ottla.server.config.quantities import InvalidQuantity, as_number

    try:
        return as_number(name, text)
    except InvalidQuantity as error:
        raise ConfigError(f"Invalid value {text} for setting {name}: {error}") from None


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


def _check_durations(log: LogConfig) -> None:
    for name, value, is_met, rule in (
        ("log.roll.ms", log.segment_ms, log.segment_ms >= 1, "greater than or equal to 1"),
        ("log.roll.jitter.ms", log.segment_jitter_ms, log.segment_jitter_ms >= 0, "greater than or equal to 0"),
        ("log.retention.ms", 0, log.retention_ms != 0, "unlimited (-1) or, greater than or equal to 1"),
    ):
        if not is_met:
            raise InvalidSetting(name, value, BROKEN_RULE, message=f"{name} must be {rule}")


def _refuse_unserved(server: ServerConfig, static: Mapping[str, str]) -> None:
    """Raise ConfigError if a setting requests a feature that this broker lacks."""
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


def _zookeeper(static: Mapping[str, str]) -> ZooKeeperConfig | None:
    """Return the settings of ZooKeeper; None if the broker does not use it."""
    if not static.get("zookeeper.connect"):
        return None
    config = read_settings(ZooKeeperConfig, static)
    check_connection(config, static)
    return config


def _node_id(server: ServerConfig, static: Mapping[str, str]) -> int:
    if "broker.id" not in static or server.broker_id < 0:
        return server.node_id
    if "node.id" in static and server.node_id != server.broker_id:
        raise ConfigError(f"node.id={server.node_id} and broker.id={server.broker_id} must be the same")
    return server.broker_id


def _log_dirs(server: ServerConfig) -> tuple[Path, ...]:
    named = server.log_dirs or server.log_dir
    return tuple(Path(each) for each in named) if named else (default_data_directory(),)


def _is_ignored(name: str, text: str) -> bool:
    declared = broker_settings().get(name)
    if declared is None or declared.effective:
        return False
    return bool(parse_value(declared, text) != declared.default)
