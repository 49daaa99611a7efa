"""Settings in variables of the environment, as images of Apache Kafka take them.

    KAFKA_NUM_PARTITIONS=3      num.partitions=3        _ stands for a dot,
    OTTLA_A__B___C=4            a_b-c=4                 __ for an underscore, ___ for a hyphen

OTTLA_ goes before KAFKA_. What these images take for something else, such as KAFKA_HEAP_OPTS, and what Kubernetes adds for a
service of that name is no setting (apache/kafka, core/src/main/scala/kafka/docker/KafkaDockerWrapper.scala).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIXES = ("KAFKA_", "OTTLA_")
"""The later one goes before the earlier one."""

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
        "KAFKA_OPTS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_VERSION",
        "OTTLA_BOOTSTRAP_SERVERS",
        "OTTLA_PORTABLE",
        "OTTLA_PURE_PYTHON",
    )
)
# Of a service that is called kafka, kafka-ui, ottla-0 and so on.
_OF_KUBERNETES = re.compile(
    r"[A-Z0-9_]+_SERVICE_(HOST|PORT(_\w+)?)|[A-Z0-9_]+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?|[A-Z]+_PORT"
)
_SERVICE_PORT, _SERVICE_HOST = "_PORT", "_SERVICE_HOST"
_UNDERSCORES = {"_": ".", "__": "_", "___": "-"}

HOST_LISTENER = "HOST"
_PLACES = re.compile(r"://(\[[^]]*\]|[^:,]*):")
DEFAULT_LISTENERS = {
    "listeners": f"PLAINTEXT://:19092,{HOST_LISTENER}://:9092",
    "advertised.listeners": f"PLAINTEXT://:19092,{HOST_LISTENER}://localhost:9092",
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{HOST_LISTENER}:PLAINTEXT",
}
"""Two ways in: 9092, which is published to the host, says that it is localhost; the other says the container's name."""


def settings_from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Texts of the settings in environment variables, by name."""
    found: dict[str, str] = {}
    for prefix in PREFIXES:
        for variable in sorted(environment):
            if variable.startswith(prefix) and variable != prefix and _is_setting(variable, environment):
                found[_name(variable.removeprefix(prefix))] = environment[variable]
    return found


def _is_setting(variable: str, environment: Mapping[str, str]) -> bool:
    if variable in NO_SETTINGS or _OF_KUBERNETES.fullmatch(variable) is not None:
        return False
    # KAFKA_UI_PORT could be a setting, were there no KAFKA_UI_SERVICE_HOST beside it.
    return not (
        variable.endswith(_SERVICE_PORT) and variable.removesuffix(_SERVICE_PORT) + _SERVICE_HOST in environment
    )


def _name(text: str) -> str:
    return re.sub("_{1,3}", lambda found: _UNDERSCORES[found[0]], text.lower())


def add_listeners(texts: dict[str, str]) -> None:
    """Add the listeners of a container whose settings name none: at the advertised addresses, or at DEFAULT_LISTENERS."""
    if "listeners" in texts:
        return
    if "advertised.listeners" in texts:
        texts["listeners"] = _PLACES.sub("://:", texts["advertised.listeners"])
    else:
        texts.update(DEFAULT_LISTENERS | texts)
