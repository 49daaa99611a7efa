"""ottla quotas [list | set | remove]"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.server.cli.changes import Step, add_dry_run, add_yes, agree, carry_out, option_words, report, undo_command
from ottla.server.cli.client.cluster import only
from ottla.server.cli.client.configs import assignment
from ottla.server.cli.client.output import RequestFailed, UsageError, print_json, print_line, print_table
from ottla.server.cli.command_line import EXIT_OK
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.config.quantities import shown
from ottla.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ottla.server.cli.client.cluster import Cluster
    from ottla.wire.messages.client_quotas import DescribedEntryData

DESCRIPTION = """\
Lists, sets and removes quotas of users, client ids, both together, and addresses: producer_byte_rate and consumer_byte_rate (bytes
per second and broker), request_percentage, controller_mutation_rate; of addresses connection_creation_rate (per second).
"""

EXAMPLES = """\
examples:
  ottla quotas                                   list all
  ottla quotas set --user alice producer_byte_rate=1MiB consumer_byte_rate=2MiB
  ottla quotas set --user-defaults --client-id app request_percentage=50
  ottla quotas set --ip 10.0.0.7 connection_creation_rate=10
  ottla quotas remove --user alice producer_byte_rate
  ottla quotas remove --user alice               all of its quotas; asks first, --yes does not
"""

EXACT, DEFAULT = 0, 1
_NAMES = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Options that name an entity, and Kafka's types of entities."""
_DEFAULTS = {"user_defaults": "user", "client_defaults": "client-id", "ip_defaults": "ip"}

Entity = dict[str, str | None]
"""Names by type. None stands for all that have no quota of their own."""


class Quotas(NamedTuple):
    """Quotas of one entity."""

    entity: Entity
    values: dict[str, float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla quotas`; the default is `list`."""
    parser.set_defaults(**dict.fromkeys(_KINDS), **dict.fromkeys(_DEFAULTS, False))
    actions = Actions(parser, "list", _list)
    listing = actions.add("list", "list quotas", _list)
    _add_entity(listing)
    setting = actions.add("set", "set quotas of one entity", _set)
    setting.add_argument("quotas", nargs="+", metavar="QUOTA=VALUE")
    _add_entity(setting)
    add_dry_run(setting)
    removing = actions.add("remove", "remove quotas of one entity", _remove)
    removing.add_argument("quotas", nargs="*", metavar="QUOTA", help="only these (default: all of the entity)")
    _add_entity(removing)
    add_dry_run(removing)
    add_yes(removing)


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for name, what, others in (
        ("user", "a user", "users that have no quota of their own"),
        ("client-id", "a client id; with --user of this user", "client ids that have no quota of their own"),
        ("ip", "an address", "addresses that have no quota of their own"),
    ):
        group = parser.add_mutually_exclusive_group()
        group.add_argument(f"--{name}", metavar="NAME", help=what)
        group.add_argument(f"--{name.removesuffix('-id')}-defaults", action="store_true", help=others)


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `list`."""
    return run_action(options)


def _entity(options: argparse.Namespace) -> Entity:
    """Return the entity that the options name. Raises UsageError if they contradict each other."""
    entity: Entity = {kind: name for each, kind in _KINDS.items() if (name := getattr(options, each)) is not None}
    entity |= {kind: None for each, kind in _DEFAULTS.items() if getattr(options, each)}
    if "ip" in entity and len(entity) > 1:
        raise UsageError("an address has quotas of its own: --ip goes with no other option")
    if "" in entity.values():
        raise UsageError("the name of a user, client id or address cannot be empty")
    return entity


def _named_entity(options: argparse.Namespace) -> Entity:
    entity = _entity(options)
    if not entity:
        raise UsageError("whose quotas? Give --user, --client-id, --ip, or one of their defaults")
    return entity


# --- list


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    found = _quotas(cluster, _entity(options), is_strict=False)
    if wants_json(options):
        print_json([each._asdict() for each in found])
    elif not found:
        print_line("no quotas")
    else:
        rows = [
            (*_cells(each.entity), key, shown(key, _text(value)))
            for each in found
            for key, value in each.values.items()
        ]
        print_table(("USER", "CLIENT ID", "IP", "QUOTA", "VALUE"), rows)
    return EXIT_OK


def _quotas(cluster: Cluster, entity: Entity, *, is_strict: bool) -> list[Quotas]:
    """Request the quotas of an entity; unless `is_strict`, of all entities with these names. Raises RequestFailed."""
    components = [
        ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity.items()
    ]
    request = DescribeClientQuotasRequest(components=components, strict=is_strict)

    def ask() -> list[Quotas]:
        answer = cluster.ask_any(lambda broker: broker.ask(request))
        cluster.check("the quotas", answer.error_code, answer.error_message)
        return sorted(map(_described, answer.entries or ()), key=lambda each: _cells(each.entity))

    return cluster.patiently(ask)


def _described(entry: DescribedEntryData) -> Quotas:
    names = {each.entity_type: each.entity_name for each in entry.entity}
    values = {each.key: each.value for each in sorted(entry.values, key=lambda each: each.key)}
    return Quotas(names, values)


def _cells(entity: Entity) -> tuple[str, ...]:
    return tuple("-" if kind not in entity else entity[kind] or "(default)" for kind in _KINDS.values())


def _text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


# --- set and remove


def _set(cluster: Cluster, options: argparse.Namespace) -> int:
    wanted: dict[str, float | None] = {}
    for each in options.quotas:
        name, text = assignment(each, "quota")
        name = name.replace("-", "_")
        if name in wanted:
            raise UsageError(f"quota {name} is named twice")
        wanted[name] = _number(name, text)
    entity = _named_entity(options)
    return _change(cluster, options, entity, _values(cluster, entity), wanted)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        # Sizes are known only for known quotas, so the name is to blame first.
        if name not in _NAMES:
            raise UsageError(f"there is no quota {name}; there are {', '.join(_NAMES)}") from None
        raise UsageError(f"quota {name}={text}: must be a number") from None
    return value


def _remove(cluster: Cluster, options: argparse.Namespace) -> int:
    entity = _named_entity(options)
    known = _values(cluster, entity)
    names = [each.replace("-", "_") for each in dict.fromkeys(options.quotas)] or list(known)
    if missing := [each for each in names if each not in known]:
        raise RequestFailed(f"{_words(entity)} has no quota {missing[0]}; it has {', '.join(known) or 'none'}")
    if not names:
        raise RequestFailed(f"{_words(entity)} has no quotas of its own: nothing is changed")

    def ask() -> None:
        agree(options, f"Remove {', '.join(names)} of {_words(entity)}")

    return _change(cluster, options, entity, known, dict.fromkeys(names), ask)


def _values(cluster: Cluster, entity: Entity) -> dict[str, float]:
    return next((each.values for each in _quotas(cluster, entity, is_strict=True)), {})


def _words(entity: Entity) -> str:
    return " and ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.items())


def _change(
    cluster: Cluster,
    options: argparse.Namespace,
    entity: Entity,
    before: Mapping[str, float],
    wanted: Mapping[str, float | None],
    ask: Callable[[], None] = lambda: None,
) -> int:
    """Set quotas, and remove those that are None; `ask` is called after the brokers have checked the change."""
    _alter(cluster, entity, wanted, only_checks=True)
    if not options.dry_run:
        ask()
        done = f"the quotas of {_words(entity)} are changed"
        carry_out([Step(done, partial(_alter, cluster, entity, wanted, only_checks=False))])
    rows = [(*_cells(entity), key, _text_or_none(before.get(key)), _text_or_none(wanted[key])) for key in wanted]
    changes = {key: {"from": before.get(key), "to": value} for key, value in wanted.items()}
    value: dict[str, Any] = {"entity": entity, "quotas": changes}
    show = partial(print_table, ("USER", "CLIENT ID", "IP", "QUOTA", "FROM", "TO"), rows)
    report(options, value, show, list(_undo(options, entity, before, wanted)))
    return EXIT_OK


def _text_or_none(value: float | None) -> str | None:
    return None if value is None else _text(value)


def _alter(cluster: Cluster, entity: Entity, wanted: Mapping[str, float | None], *, only_checks: bool) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in wanted.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=only_checks)

    def ask() -> None:
        what = f"the quotas of {_words(entity)}"
        found = only(cluster.controller().ask(request).entries, what)
        cluster.check(what, found.error_code, found.error_message)

    cluster.patiently(ask)


def _undo(
    options: argparse.Namespace, entity: Entity, before: Mapping[str, float], wanted: Mapping[str, float | None]
) -> Iterable[str]:
    of = [word for kind, name in entity.items() for word in _entity_words(kind, name)]
    back = [f"{key}={_text(before[key])}" for key in wanted if key in before and before[key] != wanted[key]]
    if back:
        yield undo_command(options, "quotas", "set", *of, *back)
    if new := [key for key in wanted if key not in before]:
        yield undo_command(options, "quotas", "remove", *of, *new)


def _entity_words(kind: str, name: str | None) -> list[str]:
    return [f"--{kind.removesuffix('-id')}-defaults"] if name is None else option_words(f"--{kind}", name)
