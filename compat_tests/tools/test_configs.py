"""kafka-configs: topics, this broker, all brokers; what is set, what is shown, and every refusal."""

import pytest

COMMAND = "kafka.admin.ConfigCommand"
BROKER = ("--entity-type", "brokers", "--entity-name", "0")
ALL_BROKERS = ("--entity-type", "brokers", "--entity-default")


def test_settings_of_a_topic(beside, both_topic):
    topic = ("--entity-type", "topics", "--entity-name", both_topic())
    changes = "retention.ms=7000,cleanup.policy=[compact,delete],max.message.bytes=100000"
    beside(COMMAND, *topic, "--alter", "--add-config", changes)
    shown = beside(COMMAND, *topic, "--describe", unordered=True).out
    assert "retention.ms=7000" in shown and "cleanup.policy=compact,delete" in shown
    everything = beside(COMMAND, *topic, "--describe", "--all", unordered=True).out
    assert (
        "segment.bytes=1073741824 sensitive=false synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}" in everything
    )
    beside(COMMAND, *topic, "--alter", "--delete-config", "retention.ms,cleanup.policy")
    assert "retention.ms" not in beside(COMMAND, *topic, "--describe", unordered=True).out


def test_settings_of_one_broker_and_of_all(beside):
    try:
        beside(COMMAND, *BROKER, "--alter", "--add-config", "log.cleaner.threads=2")
        beside(COMMAND, *ALL_BROKERS, "--alter", "--add-config", "log.cleaner.threads=3,message.max.bytes=2000000")
        shown = beside(COMMAND, *BROKER, "--describe", unordered=True).out
        assert "log.cleaner.threads=2" in shown and "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=3" in shown
        assert "message.max.bytes=2000000" in beside(COMMAND, *ALL_BROKERS, "--describe", unordered=True).out
    finally:
        beside(COMMAND, *BROKER, "--alter", "--delete-config", "log.cleaner.threads")
        beside(COMMAND, *ALL_BROKERS, "--alter", "--delete-config", "log.cleaner.threads,message.max.bytes")
    assert "log.cleaner" not in beside(COMMAND, *BROKER, "--describe", unordered=True).out


def test_levels_of_loggers(beside):
    """Each broker has loggers of its own; only the root is in both."""
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "0")

    def root(text):
        return "".join(line for line in text.splitlines(keepends=True) if line.strip().startswith("root="))

    def level():
        return beside(COMMAND, *loggers, "--describe", arrange=root).out

    try:
        beside(COMMAND, *loggers, "--alter", "--add-config", "root=ERROR")
        assert "root=ERROR" in level()
    finally:
        beside(COMMAND, *loggers, "--alter", "--add-config", "root=WARN")
    assert "root=WARN" in level()
    beside(COMMAND, *loggers, "--alter", "--delete-config", "root")
    beside(COMMAND, *loggers, "--alter", "--add-config", "root=LOUD")
    beside(COMMAND, *loggers, "--alter", "--add-config", "no.such=INFO")


def test_subscriptions_to_metrics_of_clients(beside, unique):
    subscription = ("--entity-type", "client-metrics", "--entity-name", unique("subscription"))
    beside(COMMAND, *subscription, "--alter", "--add-config", "metrics=[a,b],interval.ms=1000")
    shown = beside(COMMAND, *subscription, "--describe", unordered=True).out
    assert "metrics=a,b" in shown and "interval.ms=1000" in shown
    beside(COMMAND, *subscription, "--alter", "--add-config", "interval.ms=1")
    beside(COMMAND, *subscription, "--alter", "--delete-config", "metrics,interval.ms")
    assert "interval.ms=1000" not in beside(COMMAND, *subscription, "--describe", unordered=True).out


def test_settings_of_a_group(beside, unique):
    group = ("--entity-type", "groups", "--entity-name", unique("group"))
    changes = "consumer.session.timeout.ms=50000,share.auto.offset.reset=by_duration:PT1H"

    def own(text):
        """Without the groups of other tests, which each broker has for itself."""
        lines = text.splitlines(keepends=True)
        starts = [number for number, line in enumerate(lines) if group[-1] in line]
        return "".join(line for start in starts for line in lines[start : start + 3])

    try:
        beside(COMMAND, *group, "--alter", "--add-config", changes)
        shown = beside(COMMAND, *group, "--describe", unordered=True).out
        assert "consumer.session.timeout.ms=50000" in shown and "by_duration:PT1H" in shown
        everything = beside(COMMAND, *group, "--describe", "--all", unordered=True).out
        assert "DEFAULT_CONFIG:group.share.record.lock.duration.ms=30000" in everything
        # Without a name: all groups that have settings of their own.
        assert group[-1] in beside(COMMAND, "--entity-type", "groups", "--describe", unordered=True, arrange=own).out
    finally:
        names = "consumer.session.timeout.ms,share.auto.offset.reset"
        beside(COMMAND, *group, "--alter", "--delete-config", names)
    shown = beside(COMMAND, "--entity-type", "groups", "--describe", unordered=True, arrange=own).out
    assert "share.auto.offset.reset" not in shown


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("--entity-type", "topics", "--entity-name", "{topic}", "--add-config", "no.such.setting=1"),
            "Unknown topic config",
        ),
        (("--entity-type", "topics", "--entity-name", "{topic}", "--add-config", "retention.ms=soon"), "Not a number"),
        (("--entity-type", "topics", "--entity-name", "{topic}", "--add-config", "cleanup.policy=keep"), "one of"),
        (("--entity-type", "topics", "--entity-name", "{new}", "--add-config", "retention.ms=1"), "does not exist"),
        (("--entity-type", "groups", "--entity-name", "{new}", "--add-config", "no.such=1"), "Unknown group config"),
        (
            ("--entity-type", "groups", "--entity-name", "{new}", "--add-config", "share.session.timeout.ms=1"),
            "must be in the range",
        ),
        ((*BROKER, "--add-config", "log.dirs=/elsewhere"), "Cannot update these configs dynamically"),
        ((*BROKER, "--add-config", "log.cleaner.threads=-1"), "Invalid"),
        ((*ALL_BROKERS, "--add-config", "broker.rack=here"), "Cannot update"),
        (("--entity-type", "brokers", "--entity-name", "x", "--add-config", "log.cleaner.threads=1"), "valid integer"),
    ],
    ids=lambda value: " ".join(value[2:])[:60] if isinstance(value, tuple) else "",
)
def test_refusals(beside, both_topic, unique, arguments, complaint):
    names = {"{topic}": both_topic(), "{new}": unique("new")}
    said = beside(COMMAND, "--alter", *(names.get(argument, argument) for argument in arguments))
    assert said.status != 0
    assert complaint in said.out + said.err


def test_a_topic_that_is_not_there_is_not_described(beside, unique):
    said = beside(COMMAND, "--entity-type", "topics", "--entity-name", unique("new"), "--describe")
    assert "doesn't exist" in said.out + said.err
