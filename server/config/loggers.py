"""Levels of Ottla's loggers, which clients read and change as resource BROKER_LOGGER (Kafka's LoggingController).

A level is in force at once, also for the loggers below it that have none of their own, and forgotten when the process ends.
Levels have Kafka's names; FATAL is Python's CRITICAL. A logger exists once its module is loaded, as in Kafka.
"""

import logging
from collections.abc import Iterable, Sequence

from ottla.server.config.overrides import ConfigChange, ConfigOperation
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import parse_integer

logger = logging.getLogger("ottla.configs")

ROOT = "root"
OWN = "ottla"
# What a client library says of its requests at these loggers may be secret: their levels are nobody's to change.
WITHHELD = frozenset(["ottla.zookeeper.kazoo"])
LEVELS = {
    "TRACE": logging.DEBUG // 2,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def level_name(level: int) -> str:
    """Kafka's name of a Python level: the most talkative one that leaves out nothing of it."""
    return next((name for name, number in reversed(LEVELS.items()) if level >= number), "TRACE")


def logger_levels() -> dict[str, str]:
    """Level in force of each logger, by name."""
    found = {
        name: logging.getLogger(name) for name in sorted({OWN, *logging.root.manager.loggerDict}) if _is_shown(name)
    }
    return {name: level_name(each.getEffectiveLevel()) for name, each in found.items()} | {
        ROOT: level_name(logging.root.level)
    }


def check_logger_changes(resource_name: str, node_id: int, changes: Sequence[ConfigChange]) -> None:
    """Raise KafkaError as Kafka's RuntimeLoggerManager refuses changes; it looks at each in turn."""
    named = parse_integer(resource_name)
    if named is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {resource_name}")
    if named != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {named}")
    known = logger_levels().keys()
    for change in changes:
        _check(change, known)


def _check(change: ConfigChange, known: Iterable[str]) -> None:
    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, _refused_operation(change.operation))
    if change.name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
    if change.operation == ConfigOperation.SET and change.value not in LEVELS:
        message = (
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level."
            f" Valid log levels are {', '.join(sorted(LEVELS))}"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    if change.operation == ConfigOperation.DELETE and change.name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")


def _refused_operation(operation: int) -> str:
    if operation in ConfigOperation._value2member_map_:
        return f"{ConfigOperation(operation).name} operation is not allowed for the BROKER_LOGGER resource"
    return f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource"


def change_loggers(changes: Iterable[ConfigChange]) -> None:
    """Set the levels; the changes were checked."""
    for change in changes:
        is_set = change.operation == ConfigOperation.SET
        level = LEVELS[change.value or ""] if is_set else logging.NOTSET
        logging.getLogger(None if change.name == ROOT else change.name).setLevel(level)
        if is_set:
            logger.warning("Updated the log level of %s to %s", change.name, change.value)
        else:
            logger.warning("Unset the log level of %s", change.name)


def _is_shown(name: str) -> bool:
    return (name == OWN or name.startswith(f"{OWN}.")) and name not in WITHHELD
