"""kafka-configs: quotas of users, clients, pairs of them and addresses; what is set, what is shown, what is refused."""

import pytest

COMMAND = "kafka.admin.ConfigCommand"


def entity(kind: str, name: str) -> tuple[str, ...]:
    return "--entity-type", kind, "--entity-name", name


def default(kind: str) -> tuple[str, ...]:
    return "--entity-type", kind, "--entity-default"


@pytest.mark.parametrize("kind", ["clients", "pairs"])
def test_quotas_are_set_shown_and_removed(beside, unique, kind):
    name = unique("quota")
    named = entity(kind, name) if kind != "pairs" else (*entity("users", name), *entity("clients", name))
    changes = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5,controller_mutation_rate=3.5"
    try:
        beside(COMMAND, *named, "--alter", "--add-config", changes)
        shown = beside(COMMAND, *named, "--describe", unordered=True).out
        assert name in shown and "producer_byte_rate=1024.0" in shown and "controller_mutation_rate=3.5" in shown
        beside(COMMAND, *named, "--alter", "--delete-config", "request_percentage,consumer_byte_rate")
        assert "request_percentage" not in beside(COMMAND, *named, "--describe", unordered=True).out
    finally:
        beside(COMMAND, *named, "--alter", "--delete-config", "producer_byte_rate,controller_mutation_rate")
    assert "rate" not in beside(COMMAND, *named, "--describe", unordered=True).out


def test_quotas_of_addresses_and_defaults(beside):
    try:
        beside(COMMAND, *entity("ips", "10.9.8.7"), "--alter", "--add-config", "connection_creation_rate=7")
        beside(COMMAND, *default("ips"), "--alter", "--add-config", "connection_creation_rate=70")
        shown = beside(COMMAND, "--entity-type", "ips", "--describe", unordered=True).out
        assert "10.9.8.7" in shown and "default" in shown and "connection_creation_rate=70.0" in shown
    finally:
        for named in (entity("ips", "10.9.8.7"), default("ips")):
            beside(COMMAND, *named, "--alter", "--delete-config", "connection_creation_rate")
    assert "rate" not in beside(COMMAND, "--entity-type", "ips", "--describe").out


@pytest.mark.parametrize(
    "arguments",
    [
        (*entity("users", "u"), "--add-config", "no_such=1"),
        (*entity("users", "u"), "--add-config", "producer_byte_rate=0"),
        (*entity("clients", "c"), "--add-config", "producer_byte_rate=fast"),
        (*entity("ips", "10.0.0.300"), "--add-config", "connection_creation_rate=1"),
        (*entity("users", "u"), "--delete-config", "producer_byte_rate"),
    ],
)
def test_what_is_refused(beside, arguments):
    beside(COMMAND, *arguments[:4], "--alter", *arguments[4:])
