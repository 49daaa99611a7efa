"""Changes of settings at run time: what a request comes to, and whether it is allowed, in Kafka's words.

Two ways in: IncrementalAlterConfigs changes single settings, AlterConfigs replaces all of a resource's. Topics accept
only settings of `LogConfig`, groups those of `GroupSettings`. Brokers accept what Kafka calls dynamic, per broker or for
all; an unknown name is kept, as Kafka does for plugins that might read it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.groupcoord.group_settings import check_group_settings
from ottla.server.config.broker_config import BROKEN_RULE, OF_SINGLE_LISTENERS, broker_settings
from ottla.server.config.client_metrics import check_client_metrics
from ottla.server.config.repository import (
    MIN_INSYNC_REPLICAS,
    ConfigChange,
    ConfigOperation,
    ConfigRepository,
    Texts,
    default_text,
    topic_settings,
    without_listener,
)
from ottla.server.config.security_config import TlsConfig
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import LIST, InvalidSetting, Setting, parse_value, settings_of

VALUE_LENGTH_MAX = 32_767
# Settings are kept for groups that need not exist, so that nothing else limits them.
GROUP_ID_LENGTH_MAX = 1_000
GROUPS_MAX = 10_000

_POOLS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
_OF_ALL_BROKERS = frozenset([*OF_SINGLE_LISTENERS, "num.network.threads"])
_STORES = frozenset(
    name for name in settings_of(TlsConfig) if name.startswith(("ssl.key.", "ssl.keystore.", "ssl.truststore."))
)
# Kafka changes these at run time. Here the listeners are bound once, at start.
_FIXED = ("listeners", "listener.security.protocol.map")


def check_changes(changes: Iterable[ConfigChange]) -> None:
    """Raise INVALID_REQUEST if a name occurs twice or a value is missing."""
    named = [change.name for change in changes]
    empty = [each.name for each in changes if each.value is None and each.operation != ConfigOperation.DELETE]
    check_names(len(named), len(set(named)), empty)


def check_names(count: int, different: int, empty: Sequence[str]) -> None:
    """Raise INVALID_REQUEST if names repeat or lack a value.

    `count`: number of names. `different`: number of different ones. `empty`: names without a value.
    """
    if different != count:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if empty:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")


# ---------------------------------------------------------------------- topics


def changed_topic(texts: Texts, changes: Sequence[ConfigChange]) -> dict[str, str]:
    """Apply incremental changes to a topic's settings; return the new settings."""
    return _changed(texts, changes, topic_settings())


def _changed(
    texts: Texts,
    changes: Sequence[ConfigChange],
    known: Mapping[str, Setting],
    refusal: Callable[[str, str, Setting | None], str] = lambda verb, name, _: (
        f"Can't {verb} to key {name} because its type is not LIST."
    ),
) -> dict[str, str]:
    """Apply incremental changes; return the new settings. Raises INVALID_CONFIG.

    APPEND and SUBTRACT are allowed only for list settings in `known`; `refusal` words the error for others.
    """
    result = dict(texts)
    for change in changes:
        name, operation = change.name, change.operation
        if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            declared = known.get(name)
            if declared is None or declared.kind is not LIST:
                raise KafkaError(ErrorCode.INVALID_CONFIG, refusal(ConfigOperation(operation).name, name, declared))
            result[name] = _joined(result.get(name), declared, change)
        elif operation == ConfigOperation.SET:
            result[name] = change.value or ""
        elif operation == ConfigOperation.DELETE:
            result.pop(name, None)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    return result


def check_topic(repository: ConfigRepository, texts: Texts) -> None:
    """Raise INVALID_CONFIG if a topic cannot have these settings."""
    _check_lengths(texts)
    try:
        config = repository.current.log.with_overrides(texts)
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    # Otherwise every record would be refused, and only the producers would learn why.
    if config.validates_schemas and not repository.current.schema_registry.confluent_schema_registry_url:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "Schema validation needs the broker's confluent.schema.registry.url")


def _check_lengths(texts: Texts) -> None:
    if any(len(text) > VALUE_LENGTH_MAX for text in texts.values()):
        limit = f"the maximum value size of {VALUE_LENGTH_MAX} bytes"
        message = f"The configuration value cannot be added because it exceeds {limit}."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def creation_texts(configs: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Return the settings of a topic to create, by name. Raises INVALID_CONFIG if one lacks a value."""
    listed = list(configs)
    empty = [name for name, text in listed if text is None]
    if empty:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(empty)}")
    return {name: text for name, text in listed if text is not None}


# ---------------------------------------------------------------------- groups


def changed_texts(texts: Texts, changes: Sequence[ConfigChange]) -> dict[str, str]:
    """Apply incremental changes to the settings of a group or subscription; return the new settings.

    As in Kafka, none of these settings is a list.
    """
    return _changed(texts, changes, {})


def check_subscription(repository: ConfigRepository, name: str, texts: Texts) -> None:
    """Raise KafkaError for a client metrics subscription that Kafka would reject."""
    _check_lengths(texts)
    check_client_metrics(name, texts, repository.client_metrics)


def check_group(repository: ConfigRepository, group_id: str, texts: Texts) -> None:
    """Raise KafkaError if a group cannot have these settings."""
    _check_lengths(texts)
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if len(group_id) > GROUP_ID_LENGTH_MAX:
        message = f"A group with settings has an id of no more than {GROUP_ID_LENGTH_MAX} characters."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if len(repository.groups) >= GROUPS_MAX and group_id not in repository.groups:
        message = f"No more than {GROUPS_MAX} groups can have settings of their own."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, message)
    try:
        check_group_settings(texts, repository.value_in_force)
    except InvalidSetting as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


# ---------------------------------------------------------------------- brokers


def changed_broker(texts: Texts, changes: Sequence[ConfigChange]) -> dict[str, str]:
    """Apply incremental changes to a broker's run-time settings; return the new settings."""

    def refusal(verb: str, name: str, declared: Setting | None) -> str:
        if declared is None:
            return f"Unknown config name: {name}"
        return f"Config value {verb.lower()} is not allowed for config key: {name}"

    return _changed(texts, changes, broker_settings(), refusal)


def check_min_insync_replicas(repository: ConfigRepository, before: Texts, after: Texts, *, for_all: bool) -> None:
    """Reject changes of min.insync.replicas that KIP-966 forbids: it must be the same for all brokers.

    Forbidden are its removal for all brokers, and a value for one broker; an older such value may be removed.
    """
    if not repository.has_eligible_leaders():
        return
    is_set = MIN_INSYNC_REPLICAS in after
    if for_all and not is_set:
        message = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    elif not for_all and (is_set or MIN_INSYNC_REPLICAS not in before):
        message = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    else:
        return
    raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def check_broker(repository: ConfigRepository, texts: Texts, *, for_all: bool) -> None:
    """Raise KafkaError for run-time settings that Kafka would reject for one broker or (`for_all`) for all brokers."""
    known = repository.known
    fixed = [each for each in texts if each in known and known[each].is_read_only]
    _refuse_names("Cannot update these configs dynamically", fixed)
    per_listener = "These security configs can be dynamically updated only per-listener using the listener prefix"
    _refuse_names(per_listener, [each for each in texts if each in _STORES])
    _check_values(known, texts)
    if for_all:
        per_broker = "Cannot update these configs at default cluster level, broker id must be specified"
        _refuse_names(per_broker, [each for each in texts if _is_of_one_broker(known, each)])
    _check_effect(repository, texts, for_all=for_all)


def _is_of_one_broker(known: Mapping[str, Setting], name: str) -> bool:
    base = without_listener(name)
    if base is not None:
        return base not in _OF_ALL_BROKERS
    return name in known and known[name].dynamic == "per-broker"


def _refuse_names(message: str, names: Sequence[str]) -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{message}: [{', '.join(names)}]")


def _check_values(known: Mapping[str, Setting], texts: Texts) -> None:
    for name, text in texts.items():
        declared = known.get(without_listener(name) or name)
        if declared is not None:
            try:
                parse_value(declared, text)
            except InvalidSetting as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _check_effect(repository: ConfigRepository, texts: Texts, *, for_all: bool) -> None:
    """Check the configuration that a change results in, and rules for run-time changes. Raises KafkaError."""
    for name in _FIXED:
        if name in texts and texts[name] != repository.value(name):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed while the broker runs")
    try:
        changed = repository.configuration(*_layers(repository, texts, for_all=for_all))
    except InvalidSetting as error:
        raise _refused(error) from None
    # Kafka would load the plug-in and have it replace values. Whoever asks for that is to know that nothing does so here.
    if changed.server.config_providers not in ((), repository.current.server.config_providers):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "config.providers: configuration providers are not served")
    _check_pools(repository, texts)
    _check_connections(repository, texts)
    _check_local_retention("ms", changed.log.local_retention_ms, changed.log.retention_ms)
    _check_local_retention("bytes", changed.log.local_retention_bytes, changed.log.retention_bytes)


def check_with_listeners(repository: ConfigRepository, texts: Texts, *, for_all: bool) -> None:
    """Let the registered checkers check run-time settings before a change. Slow: they read files and decrypt keys.

    Only for clients that may change settings: errors reveal which files exist, and whether a password is right.
    """
    try:
        repository.check(*_layers(repository, texts, for_all=for_all))
    except InvalidSetting as error:
        raise _refused(error) from None


def _layers(repository: ConfigRepository, texts: Texts, *, for_all: bool) -> tuple[Texts, Texts]:
    """Return the run-time settings of all brokers and those of this broker, as they would be after a change.

    The change sets `texts` for all brokers if `for_all`, otherwise for this broker.
    """
    return (texts, repository.for_this_broker.texts) if for_all else (repository.for_all_brokers.texts, texts)


def _refused(error: InvalidSetting) -> KafkaError:
    message = f"{error.reason}: {error}" if error.reason == BROKEN_RULE else str(error)
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check_pools(repository: ConfigRepository, texts: Texts) -> None:
    """Reject a change of a thread pool's size by more than a factor of two, as Kafka does."""
    for name in _POOLS:
        if name not in texts:
            continue
        new, old = int(texts[name]), int(repository.value(name) or 0)
        failed = f"Dynamic thread count update validation failed for {name}={new}, value should"
        if new < old // 2:
            raise _not_applicable(f"{failed} be at least half the current value {old}")
        if new > old * 2:
            raise _not_applicable(f"{failed} not be greater than double the current value {old}")
    if "log.cleaner.threads" in texts:
        new, old = int(texts["log.cleaner.threads"]), int(repository.value("log.cleaner.threads") or 0)
        if new < 1:
            raise _not_applicable("Log cleaner threads should be at least 1")
        if new < old // 2:
            raise _not_applicable(f"Log cleaner threads cannot be reduced to less than half the current value {old}")
        if new > old * 2:
            raise _not_applicable(
                f"Log cleaner threads cannot be increased to more than double the current value {old}"
            )


def _check_connections(repository: ConfigRepository, texts: Texts) -> None:
    """Reject a limit of 0 connections, which would lock out the operator."""
    prefixes = ["", *(f"listener.name.{each.listener.lower()}." for each in repository.current.listeners)]
    for name in OF_SINGLE_LISTENERS:
        if any(int(texts.get(prefix + name, "1")) == 0 for prefix in prefixes):
            raise _not_applicable(f"Invalid {name} 0")


def _check_local_retention(unit: str, local: int, whole: int) -> None:
    """Reject a local retention above the total retention; -2 means the total, -1 unlimited."""
    if whole < 0 or local == -2:
        return
    invalid = f"Invalid value {local} for configuration log.local.retention.{unit}: Value must not be"
    if local == -1:
        raise _not_applicable(f"{invalid} -1 as log.retention.{unit} value is set as {whole}.")
    if local > whole:
        raise _not_applicable(f"{invalid} more than log.retention.{unit} property value: {whole}")


def _not_applicable(reason: str) -> KafkaError:
    """Return the INVALID_REQUEST error for rejected run-time settings.

    Its message is Kafka's, which nests `reason` in the texts of two exceptions.
    """
    nested = f"org.apache.kafka.common.config.ConfigException: {reason}"
    message = f"Invalid value {nested} for configuration Invalid dynamic configuration"
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


# ---------------------------------------------------------------------- single changes


def _joined(present: str | None, declared: Setting, change: ConfigChange) -> str:
    """Append to or subtract from a list setting; return the new text. An unset list starts from its default."""
    members = [each for each in (present if present is not None else default_text(declared) or "").split(",") if each]
    given = (change.value or "").split(",")
    if change.operation == ConfigOperation.SUBTRACT:
        return ",".join(_without(members, Counter(given)))
    known = set(members)
    return ",".join(members + [each for each in dict.fromkeys(given) if each not in known])


def _without(members: Iterable[str], taken: Counter[str]) -> list[str]:
    """Return `members` without as many occurrences of each name as `taken` counts, from the front. Changes `taken`."""
    left = []
    for each in members:
        if taken[each]:
            taken[each] -= 1
        else:
            left.append(each)
    return left
