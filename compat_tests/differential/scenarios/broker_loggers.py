"""The levels of loggers. Both brokers have loggers of their own; they have the root in common.

Each scenario leaves the levels as they were: the brokers are shared.
"""

from typing import Any

from compat_tests.differential.asking_administration import (
    APPEND,
    BROKER_LOGGER,
    DELETE,
    OWN_ID,
    SET,
    SUBTRACT,
    Changes,
    alter,
    describe,
)
from compat_tests.differential.conversation import Talk, scenario
from compat_tests.differential.scenarios.alter_configs import replace

from ottla.wire.messages.alter_configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest

# Of ids in every spelling, and of what is none.
NAMES = ("", "7", "-1", "x", "+0", "00", " 0", "1.5", "2147483648", "99999999999999999999")
LEVELS = ("FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE")
NO_LEVELS = ("OFF", "ALL", "info", "WARNING", "CRITICAL", "", " INFO", "20", "none", "x" * 40)
NO_LOGGERS = ("no.such", "", "ROOT", " root", "root.x", "..", "x" * 300)


def ask(talk: Talk, changes: Changes, label: str, *, name: str = OWN_ID, validate_only: bool = False) -> Any:
    return talk.ask(alter(((BROKER_LOGGER, name), changes), validate_only=validate_only), label=label)


def told(talk: Talk, label: str, **flags: bool) -> None:
    talk.ask(describe((BROKER_LOGGER, OWN_ID), keys=["root"], **flags), label=label)


def restore(talk: Talk, level: str) -> None:
    talk.do(alter(((BROKER_LOGGER, OWN_ID), [("root", SET, level)])))


def level_of_root(talk: Talk) -> str:
    level: str = talk.do(describe((BROKER_LOGGER, OWN_ID), keys=["root"])).results[0].configs[0].value
    return level


@scenario(DescribeConfigsRequest)
def names(talk: Talk) -> None:
    for name in NAMES:
        talk.ask(describe((BROKER_LOGGER, name), keys=["no.such"]), label=repr(name))
    talk.ask(describe((BROKER_LOGGER, OWN_ID), keys=["no.such"]), label="no such logger")


@scenario(DescribeConfigsRequest)
def flags(talk: Talk) -> None:
    before = level_of_root(talk)
    restore(talk, "WARN")
    for synonyms in (False, True):
        for documentation in (False, True):
            told(
                talk,
                f"synonyms {synonyms}, documentation {documentation}",
                synonyms=synonyms,
                documentation=documentation,
            )
    request = describe((BROKER_LOGGER, OWN_ID), (BROKER_LOGGER, OWN_ID), keys=["root", "no.such", "root"])
    talk.ask(request, label="twice")
    restore(talk, before)


@scenario(DescribeConfigsRequest)
def all_of_them(talk: Talk) -> None:
    """Every logger has a known level, and all look the same."""
    configs = talk.do(describe((BROKER_LOGGER, OWN_ID), synonyms=True), talk.version).results[0].configs
    talk.note("the root is among them", "root" in {each.name for each in configs})
    talk.note("unlike others", [each.name for each in configs if each.value not in LEVELS])
    traits = {(each.read_only, each.config_source, each.is_sensitive, len(each.synonyms)) for each in configs}
    talk.note("traits", sorted(traits))


@scenario(IncrementalAlterConfigsRequest)
def levels(talk: Talk) -> None:
    before = level_of_root(talk)
    for level in (*LEVELS, *NO_LEVELS):
        ask(talk, [("root", SET, level)], f"{level!r} tried", validate_only=True)
        ask(talk, [("root", SET, level)], f"{level!r}")
        told(talk, f"after {level!r}")
    restore(talk, before)


@scenario(IncrementalAlterConfigsRequest)
def operations(talk: Talk) -> None:
    before = level_of_root(talk)
    for operation in (DELETE, APPEND, SUBTRACT, 4, -1, 127):
        for logger in ("root", "no.such"):
            ask(talk, [(logger, operation, "INFO")], f"operation {operation} on {logger}")
    ask(talk, [("root", DELETE, None)], "delete without a value")
    ask(talk, [("root", SET, None)], "set without a value")
    ask(talk, [], "nothing")
    ask(talk, [("root", SET, "INFO"), ("root", SET, "WARN")], "twice")
    restore(talk, before)


@scenario(IncrementalAlterConfigsRequest)
def names_that_are_no_loggers(talk: Talk) -> None:
    for logger in NO_LOGGERS:
        ask(talk, [(logger, SET, "INFO")], f"set {logger!r}")
        ask(talk, [(logger, DELETE, None)], f"delete {logger!r}")
    ask(talk, [("no.such", SET, "none")], "neither logger nor level")


@scenario(IncrementalAlterConfigsRequest)
def one_wrong_one_right(talk: Talk) -> None:
    """None of the changes of a resource happens if one is wrong."""
    before = level_of_root(talk)
    restore(talk, "WARN")
    ask(talk, [("root", SET, "ERROR"), ("no.such", SET, "INFO")], "another logger is wrong")
    told(talk, "unchanged")
    restore(talk, before)


@scenario(IncrementalAlterConfigsRequest)
def names_that_are_no_brokers(talk: Talk) -> None:
    for name in NAMES:
        ask(talk, [("root", SET, "none")], f"{name!r} set", name=name)
        ask(talk, [("root", APPEND, "none")], f"{name!r} appended to", name=name)


@scenario(AlterConfigsRequest)
def replaced(talk: Talk) -> None:
    for name in (OWN_ID, "", "x"):
        talk.ask(replace(((BROKER_LOGGER, name), [("root", "INFO")])), label=repr(name))
