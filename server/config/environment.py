"""Settings from environment variables, as the images of Apache Kafka and its distributions take them.

    KAFKA_NUM_PARTITIONS=3          num.partitions=3    `_` stands for a dot,
    KAFKA_CFG_NUM_PARTITIONS=3      the same            as of Bitnami's image
    OTTLA_A__B___C=4                a_b-c=4             `__` for an underscore, `___` for a hyphen

A later line of these goes before an earlier one. A KAFKA_ variable that is no setting is ignored with a warning, as images
know variables of their own; an OTTLA_ variable that is no setting is an error. Variables of the Java virtual machine, and what
Kubernetes adds for a service, are passed over in silence. Some variables mean more than a setting:

    CLUSTER_ID, KAFKA_KRAFT_CLUSTER_ID                  id of the cluster, if this start begins one
    KAFKA_ADVERTISED_HOST_NAME, KAFKA_ADVERTISED_PORT   advertised.listeners, by the names of Kafka up to 2.8
    KAFKA_CREATE_TOPICS=orders:6:1,users:1:1:compact    topics to create: name, partitions, replicas, cleanup.policy
    KAFKA_OPTS=-Djava.security.auth.login.config=FILE   logins (`environment_logins.py`)
    KAFKA_SSL_KEYSTORE_FILENAME, _CREDENTIALS           keys and passwords below /etc/kafka/secrets (likewise)

(apache/kafka, core/src/main/scala/kafka/docker/KafkaDockerWrapper.scala)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.server.config.broker_config import ConfigError, is_known_name, known_names
from ottla.server.config.endpoint import host_and_port
from ottla.server.config.listeners import listeners_of
from ottla.server.config.server_config import ServerConfig
from ottla.wire.settings import InvalidSetting, parse_integer, read_settings

KAFKA, BITNAMI, OWN = "KAFKA_", "KAFKA_CFG_", "OTTLA_"
PREFIXES = (KAFKA, BITNAMI, OWN)
"""A later one goes before an earlier one."""

NO_SETTINGS = frozenset(
    (
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LOG4J_CMD_OPTS",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
        "OTTLA_BOOTSTRAP_SERVERS",
        "OTTLA_CONTROL_TOKEN",
        "OTTLA_PORTABLE",
        "OTTLA_PURE_PYTHON",
    )
)
CLUSTER_IDS = ("CLUSTER_ID", "KAFKA_CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID")
ADVERTISED_HOST, ADVERTISED_PORT = "KAFKA_ADVERTISED_HOST_NAME", "KAFKA_ADVERTISED_PORT"
HOST, PORT = "KAFKA_HOST_NAME", "KAFKA_PORT"
TOPICS, SEPARATOR = "KAFKA_CREATE_TOPICS", "KAFKA_CREATE_TOPICS_SEPARATOR"
OPTIONS = "KAFKA_OPTS"
USERS, PASSWORDS = "KAFKA_CLIENT_USERS", "KAFKA_CLIENT_PASSWORDS"
PEER_USER, PEER_PASSWORD = "KAFKA_INTER_BROKER_USER", "KAFKA_INTER_BROKER_PASSWORD"
STORES = {
    "KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location",
    "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location",
    "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
    "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
    "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
}
"""Names of files below /etc/kafka/secrets: the setting is the path of the first two, and the text in the others."""

_UNDERSTOOD = frozenset(
    (
        *CLUSTER_IDS,
        *(ADVERTISED_HOST, ADVERTISED_PORT, HOST, PORT),
        *(TOPICS, SEPARATOR, OPTIONS),
        *(USERS, PASSWORDS, PEER_USER, PEER_PASSWORD),
        *STORES,
    )
)
"""Variables that are no settings, and that this module or `environment_logins.py` reads."""

_COMMANDS = ("HOSTNAME_COMMAND", "PORT_COMMAND", "BROKER_ID_COMMAND", "RACK_COMMAND")
# Of a service that is called kafka, kafka-ui, ottla-0 and so on. Few starts use the patterns, so none is compiled before.
_OF_KUBERNETES = (
    r"[A-Z0-9_]+_SERVICE_(HOST|PORT(_\w+)?)|[A-Z0-9_]+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?|[A-Z]+_PORT"
)
_SERVICE_PORT, _SERVICE_HOST = "_PORT", "_SERVICE_HOST"
_UNDERSCORES = {"_": ".", "__": "_", "___": "-"}

HOST_LISTENER = "HOST"
_PLACES = r"://(\[[^]]*\]|[^:,]*):"
DEFAULT_LISTENERS = {
    "listeners": f"PLAINTEXT://:19092,{HOST_LISTENER}://:9092",
    "advertised.listeners": f"PLAINTEXT://:19092,{HOST_LISTENER}://localhost:9092",
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{HOST_LISTENER}:PLAINTEXT",
}
"""Port 9092 is published to the host and advertised as localhost; port 19092 is advertised by the container's name."""

_LISTS = ("listeners", "advertised.listeners", "listener.security.protocol.map")
_OF_LISTENERS = (
    "listeners",
    "listener.security.protocol.map",
    "controller.listener.names",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
)
VOTERS = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
_OF_KRAFT = ("process.roles", "controller.", "metadata.log.")
GENERATED_ID = "1001"
_OF_WURSTMEISTER = (ADVERTISED_HOST, ADVERTISED_PORT, TOPICS, *_COMMANDS)
OF_KAFKAS_FILE = dict.fromkeys(
    (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    ),
    "1",
)
"""Settings of the server.properties that Kafka comes with, over which the images of Bitnami and wurstmeister put variables."""

LIKENESS = 0.85
NAMED_MAX = 50
"""Ignored variables that a start names; looking for the nearest setting takes some milliseconds for each."""

TOPICS_MAX = 1000
_CLUSTER_ID = r"[!-~]{1,128}"
_NEWLINE_OF_BASH = r"$'\n'"


class FirstTopic(NamedTuple):
    """A topic that a start creates if it is missing. -1 means the broker's default."""

    name: str
    partitions: int = -1
    replicas: int = -1
    cleanup_policy: str = ""


@dataclass(frozen=True, kw_only=True)
class FromEnvironment:
    """Content of the environment that concerns a broker."""

    texts: Mapping[str, str] = field(repr=False)  # with passwords
    """Settings by name."""

    variables: Mapping[str, str] = field(repr=False)
    """Other variables that a broker understands, with their values."""

    cluster_id: str | None = None
    """Id for a new cluster; None: a random one."""

    topics: tuple[FirstTopic, ...] = ()
    notes: tuple[str, ...] = ()
    """Lines for the log, about variables without effect."""

    warnings: tuple[str, ...] = ()


def read_environment(environment: Mapping[str, str]) -> FromEnvironment:
    """Read settings and the other variables that images of Kafka understand. Raises ConfigError."""
    texts: dict[str, str] = {}
    unknown: list[str] = []
    for prefix in PREFIXES:
        for variable in sorted(environment):
            name = _setting_name(variable, prefix, environment)
            if name is None:
                continue
            # One of ours that is unknown is refused with all settings.
            if prefix == OWN or is_known_name(name):
                texts[name] = environment[variable]
                # Some scripts put a comma behind the last address, which Kafka passed over up to 3.9.
                if prefix != OWN and name in _LISTS:
                    texts[name] = texts[name].strip(", ")
            else:
                unknown.append(variable)
    variables = {name: environment[name] for name in _UNDERSTOOD & environment.keys()}
    warnings = [*_ignored(unknown), *_without_commands(environment, texts)]
    warnings += _add_older_listeners(texts, variables, environment)
    warnings += _add_broker_id(texts)
    if any(each.startswith(BITNAMI) or each in _OF_WURSTMEISTER for each in environment):
        texts = OF_KAFKAS_FILE | texts
    topics, malformed = first_topics(variables.get(TOPICS, ""), variables.get(SEPARATOR) or ",")
    notes, lonely = _about_kraft(texts)
    return FromEnvironment(
        texts=texts,
        variables=variables,
        cluster_id=_cluster_id(environment),
        topics=topics,
        notes=tuple(notes),
        warnings=(*warnings, *malformed, *lonely),
    )


def add_listeners(texts: dict[str, str]) -> None:
    """Add `listeners` for a container whose settings lack them: the advertised ports, or DEFAULT_LISTENERS."""
    if "listeners" in texts:
        return
    if "advertised.listeners" in texts:
        texts["listeners"] = re.sub(_PLACES, "://:", texts["advertised.listeners"])
    else:
        texts.update(DEFAULT_LISTENERS | texts)


def address_to_ask(environment: Mapping[str, str]) -> tuple[str, bool]:
    """Return HOST:PORT of a listener that `environment` names, and whether it encrypts. Raises ConfigError.

    One that does not encrypt is preferred. The host is this one, if the listener is bound to all addresses.
    """
    texts = dict(read_environment(environment).texts)
    add_listeners(texts)
    # `ottla start` reports other wrong settings.
    named = {name: texts[name] for name in _OF_LISTENERS if name in texts}
    try:
        listeners, _ = listeners_of(read_settings(ServerConfig, named))
    except InvalidSetting as error:
        raise ConfigError(str(error)) from None
    chosen = min(listeners, key=lambda each: each.is_encrypted)
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(chosen.host, chosen.host)
    return host_and_port(host, chosen.port), chosen.is_encrypted


def variable_of(name: str, prefix: str = KAFKA) -> str:
    """Return the variable that gives the setting `name`."""
    signs = {sign: underscores for underscores, sign in _UNDERSCORES.items()}
    return prefix + "".join(signs.get(each, each) for each in name.upper())


def _setting_name(variable: str, prefix: str, environment: Mapping[str, str]) -> str | None:
    """Return the name that `variable` would give to a setting; None if it has another prefix or means something else."""
    if not variable.startswith(prefix) or variable == prefix or (prefix == KAFKA and variable.startswith(BITNAMI)):
        return None
    if variable in NO_SETTINGS or variable in _UNDERSTOOD or _is_of_kubernetes(variable, environment):
        return None
    name = variable.removeprefix(prefix).lower()
    return re.sub("_{1,3}", lambda run: _UNDERSCORES[run[0]], name)


def _is_of_kubernetes(variable: str, environment: Mapping[str, str]) -> bool:
    if re.fullmatch(_OF_KUBERNETES, variable) is not None:
        return True
    # KAFKA_UI_PORT could be a setting, were there no KAFKA_UI_SERVICE_HOST beside it.
    return variable.endswith(_SERVICE_PORT) and variable.removesuffix(_SERVICE_PORT) + _SERVICE_HOST in environment


def _ignored(unknown: Iterable[str]) -> list[str]:
    """Return warnings about variables that are no settings: one for each that looks mistyped, and one for the rest."""
    if not unknown:
        return []
    import difflib  # most environments are understood

    candidates = {variable_of(name, "") for name in known_names()} | {each.removeprefix(KAFKA) for each in _UNDERSTOOD}
    named, strangers, warnings = list(unknown), [], []
    for variable in named[:NAMED_MAX]:
        prefix = BITNAMI if variable.startswith(BITNAMI) else KAFKA
        # The prefix, which all names share, would make all of them similar.
        close = difflib.get_close_matches(variable.removeprefix(prefix), candidates, n=1, cutoff=LIKENESS)
        if close:
            warnings.append(f"{variable} is ignored: there is no such setting; did you mean {prefix}{close[0]}?")
        else:
            strangers.append(variable)
    if strangers:
        more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
        warnings.append(f"Ignored, because they are no settings: {', '.join(strangers)}{more}")
    return warnings


def _without_commands(environment: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
    """Return a warning about variables whose value is a command. Raises ConfigError if a setting needs its output."""
    given = [name for name in _COMMANDS if name in environment]
    for name in given:
        if (setting := next((each for each in texts if f"_{{{name}}}" in texts[each]), None)) is not None:
            raise ConfigError(
                f"{setting} wants the output of {name}: commands in variables are not run; write the value there"
            )
    return [f"{', '.join(given)}: ignored, because commands in variables are not run"] if given else []


def _add_older_listeners(
    texts: dict[str, str], variables: Mapping[str, str], environment: Mapping[str, str]
) -> list[str]:
    """Add the listeners that Kafka's older names and Bitnami's image mean; return warnings about names without effect."""
    # Kubernetes sets KAFKA_PORT=tcp://... for a service that is called kafka.
    port = text if (text := variables.get(PORT, "")).isdecimal() else ""
    host, advertised_host = variables.get(HOST, ""), variables.get(ADVERTISED_HOST, "")
    advertised_port = variables.get(ADVERTISED_PORT) or port or "9092"
    older = [name for name in (ADVERTISED_HOST, ADVERTISED_PORT) if variables.get(name)]
    if older and "advertised.listeners" in texts:
        return [f"{' and '.join(older)}: ignored, because advertised.listeners is given"]
    if older:
        texts["advertised.listeners"] = f"PLAINTEXT://{_bracketed(advertised_host)}:{advertised_port}"
        texts.setdefault("listeners", f"PLAINTEXT://{_bracketed(host)}:{port or '9092'}")
    elif "advertised.listeners" not in texts and (
        host or port or any(each.startswith(BITNAMI) for each in environment)
    ):
        texts.setdefault("listeners", f"PLAINTEXT://{_bracketed(host)}:{port or '9092'}")
    return []


def _add_broker_id(texts: dict[str, str]) -> list[str]:
    """Add the id that ZooKeeper gives to the first broker without one (broker.id.generation.enable); return a warning."""
    if not texts.get("zookeeper.connect") or texts.get("node.id") or texts.get("broker.id", "-1").strip() != "-1":
        return []
    texts["broker.id"] = GENERATED_ID
    return [
        f"KAFKA_BROKER_ID is not given: this broker is {GENERATED_ID}; each broker of a cluster needs an id of its own"
    ]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _about_kraft(texts: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return notes and warnings about settings of KRaft."""
    given = sorted(name for name in texts if name.startswith(_OF_KRAFT))
    if not given:
        return [], []
    notes = [f"There is no KRaft here, so these mean nothing: {', '.join(given)}"]
    members = max(len(texts.get(name, "").split(",")) for name in VOTERS)
    if members < 2 or texts.get("zookeeper.connect"):
        return notes, []
    alone = "but this broker is alone: brokers in several containers become a cluster by zookeeper.connect"
    return notes, [f"The quorum of KRaft controllers has {members} members, {alone}"]


def _cluster_id(environment: Mapping[str, str]) -> str | None:
    for name in CLUSTER_IDS:
        if text := environment.get(name, "").strip():
            if re.fullmatch(_CLUSTER_ID, text) is None:
                raise ConfigError(f"{name}: must be 1 to 128 characters of ASCII without blanks")
            return text
    return None


def first_topics(text: str, separator: str = ",") -> tuple[tuple[FirstTopic, ...], list[str]]:
    """Parse KAFKA_CREATE_TOPICS; return the topics, and a warning for each that is malformed."""
    topics: list[FirstTopic] = []
    warnings: list[str] = []
    for part in text.split("\n" if separator == _NEWLINE_OF_BASH else separator):
        if not part.strip():
            continue
        if len(topics) == TOPICS_MAX:
            warnings.append(f"{TOPICS}: only the first {TOPICS_MAX} topics are created")
            break
        if (topic := _first_topic([each.strip() for each in part.split(":")])) is None:
            warnings.append(f"{TOPICS}: {part.strip()!r} is ignored: must be name:partitions:replicas[:cleanup.policy]")
        else:
            topics.append(topic)
    return tuple(topics), warnings


def _first_topic(words: list[str]) -> FirstTopic | None:
    if not words[0] or len(words) > 4:
        return None
    name, partitions, replicas, policy = (*words, "", "", "")[:4]
    counts = parse_integer(partitions or "-1"), parse_integer(replicas or "-1")
    if counts[0] is None or counts[1] is None:
        return None
    return FirstTopic(name, counts[0], counts[1], policy)
