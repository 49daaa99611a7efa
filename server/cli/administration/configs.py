"""ottla configs [broker | cluster | topic | group | loggers | client-metrics]"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.server.cli.changes import Step, add_dry_run, carry_out, report, setting_words, undo_command
from ottla.server.cli.client.cluster import live_brokers
from ottla.server.cli.client.configs import (
    BROKER,
    CLIENT_METRICS,
    CLUSTER,
    GROUP,
    LOGGERS,
    TOPIC,
    Altered,
    Resource,
    Setting,
    alter_settings,
    assignment,
    changes_of,
    check_names,
    planned,
    settings_of,
)
from ottla.server.cli.client.output import UsageError, print_json, print_line, print_table
from ottla.server.cli.command_line import EXIT_OK, is_number
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.config.quantities import shown

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster

DESCRIPTION = """\
Tells which settings are in force in a cluster and where each value comes from: the topic, the broker, the cluster's default for all
brokers, the broker's start (its file of settings, options and variables), or Kafka's default. Below it stand the values that it
hides. --set and --delete change some.
"""

EXAMPLES = """\
examples:
  ottla configs                                  of each broker, but for defaults
  ottla configs topic orders --all               defaults, too
  ottla configs broker 1 log.retention.ms        one setting, and what it hides
  ottla configs cluster --set log.retention.ms=7d
                                                 for all brokers
  ottla configs broker 1 --delete log.retention.ms --dry-run
  ottla configs loggers 1 --set root=DEBUG       levels of the log
"""

_KINDS = {
    "broker": (BROKER, "ID", "settings of brokers (default: of all)"),
    "cluster": (BROKER, "", "settings for all brokers"),
    "topic": (TOPIC, "TOPIC", "settings of topics"),
    "group": (GROUP, "GROUP", "settings of groups"),
    "loggers": (LOGGERS, "ID", "levels of the log of brokers (default: of all)"),
    "client-metrics": (CLIENT_METRICS, "NAME", "subscriptions to metrics of clients"),
}
_DEFAULT_SOURCE = "default"
_HIDDEN = "(hidden)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla configs`, which are the kinds of resources; the default is `broker`."""
    parser.set_defaults(kind="broker", names=[], settings=[], all=False, set=[], delete=[], dry_run=False)
    actions = Actions(parser, "broker", _run)
    for kind, (_, metavar, what) in _KINDS.items():
        of_kind = actions.add(kind, what, _run)
        of_kind.set_defaults(kind=kind, names=[])
        if metavar:
            many = "a broker's id" if metavar == "ID" else "its name"
            of_kind.add_argument("name", nargs="?" if metavar == "ID" else None, metavar=metavar, help=many)
        of_kind.add_argument("settings", nargs="*", metavar="NAME", help="only these settings")
        of_kind.add_argument("--all", action="store_true", help="settings that have their defaults, too")
        setting = "set a setting; repeatable"
        of_kind.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=setting)
        deletion = "delete a setting, so that the next source decides; repeatable"
        of_kind.add_argument("--delete", action="append", default=[], metavar="NAME", help=deletion)
        add_dry_run(of_kind)


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `broker`."""
    return run_action(options)


def _run(cluster: Cluster, options: argparse.Namespace) -> int:
    changes = changes_of((assignment(each, "--set") for each in options.set), options.delete)
    resources = _resources(cluster, options)
    if not changes:
        if options.dry_run:
            raise UsageError("what is to be changed? Give --set NAME=VALUE or --delete NAME")
        return _show(cluster, resources, options)
    if options.settings or options.all:
        raise UsageError("names of settings and --all are for a look, and go with no change")
    return _change(cluster, resources, changes, options)


def _resources(cluster: Cluster, options: argparse.Namespace) -> list[Resource]:
    kind, metavar, _ = _KINDS[options.kind]
    if not metavar:
        return [CLUSTER]
    name = getattr(options, "name", None)
    if metavar == "ID" and name is not None and not is_number(name):
        # Without an id the first word is the name of a setting.
        options.settings, name = [name, *options.settings], None
    if name is None:
        return [Resource(kind, str(each)) for each in live_brokers(cluster)]
    if not name:
        raise UsageError(f"the name of a {options.kind} cannot be empty")
    if kind == TOPIC:
        cluster.topics([name])
    return [Resource(kind, name)]


# --- look


def _show(cluster: Cluster, resources: Sequence[Resource], options: argparse.Namespace) -> int:
    found = [(each, _chosen(settings_of(cluster, each), each, options)) for each in resources]
    if wants_json(options):
        print_json([_as_json(resource, settings) for resource, settings in found])
        return EXIT_OK
    for index, (resource, settings) in enumerate(found):
        if index:
            print_line("")
        if len(found) > 1:
            print_line(str(resource))
        if not settings:
            print_line("all settings have their defaults; --all shows them")
            continue
        print_table(("SETTING", "VALUE", "FROM"), [row for each in settings for row in _rows(each)])
    return EXIT_OK


def _chosen(settings: Sequence[Setting], resource: Resource, options: argparse.Namespace) -> list[Setting]:
    if options.settings:
        check_names(settings, resource, options.settings)
        return [each for each in settings if each.name in options.settings]
    return [each for each in settings if options.all or each.source != _DEFAULT_SOURCE]


def _rows(setting: Setting) -> Iterable[tuple[str, str, str]]:
    """Yield the row of the value in force, then rows of the values that it hides."""
    yield setting.name, _shown(setting.name, setting.value, setting), setting.source
    for origin in setting.origins[1:]:
        yield f"  {origin.name}", _shown(origin.name, origin.value, setting), origin.source


def _shown(name: str, value: str | None, setting: Setting) -> str:
    if value is None:
        return _HIDDEN if setting.is_sensitive else "-"
    return shown(name, value)


def _as_json(resource: Resource, settings: Iterable[Setting]) -> dict[str, Any]:
    shown = [
        {
            "name": each.name,
            "value": each.value,
            "source": each.source,
            "read_only": each.is_read_only,
            "sensitive": each.is_sensitive,
            "synonyms": [origin._asdict() for origin in each.origins],
        }
        for each in settings
    ]
    return {"resource": str(resource), "settings": shown}


# --- change


def _change(
    cluster: Cluster, resources: Sequence[Resource], changes: dict[str, str | None], options: argparse.Namespace
) -> int:
    altered = {each: _planned(cluster, each, changes) for each in resources}
    for each in resources:
        alter_settings(cluster, each, changes, only_checks=True)
    if not options.dry_run:
        carry_out([_step(cluster, each, changes) for each in resources])
    rows = [
        (str(resource), each.name, _value(each, each.before_text), _value(each, each.after_text))
        for resource, found in altered.items()
        for each in found
    ]
    value = {
        "changed": [
            {
                "resource": str(resource),
                "setting": each.name,
                "from": _value(each, each.before),
                "to": _value(each, each.after),
            }
            for resource, found in altered.items()
            for each in found
        ]
    }
    undo = [line for resource, found in altered.items() for line in _undo(options, resource, found)]
    show = partial(print_table, ("OF", "SETTING", "FROM", "TO"), rows)
    is_secret = any(each.is_sensitive and each.had_own for found in altered.values() for each in found)
    report(options, value, show, undo, "nobody tells the former value" if is_secret else "")
    return EXIT_OK


def _planned(cluster: Cluster, resource: Resource, changes: dict[str, str | None]) -> list[Altered]:
    known = settings_of(cluster, resource)
    if resource == CLUSTER:
        # A cluster describes its defaults for all brokers only if they are set; each broker describes all settings.
        names = {each.name for each in known}
        of_broker = settings_of(cluster, Resource(BROKER, str(live_brokers(cluster)[0])))
        known = [*known, *(_unset(each) for each in of_broker if each.name not in names)]
    elif resource.kind == CLIENT_METRICS:
        names = {each.name for each in known}
        known = [*known, *(Setting(each, None, "", False, False, ()) for each in changes if each not in names)]
    return planned(known, resource, changes)


def _unset(setting: Setting) -> Setting:
    """Return a setting of a broker as it is without a value for all brokers."""
    return setting._replace(value=None, source="", origins=())


def _step(cluster: Cluster, resource: Resource, changes: dict[str, str | None]) -> Step:
    act: Callable[[], None] = partial(alter_settings, cluster, resource, changes, only_checks=False)
    return Step(f"the settings of {resource} are changed", act)


def _value(altered: Altered, value: str | None) -> str | None:
    return _HIDDEN if altered.is_sensitive else value


def _undo(options: argparse.Namespace, resource: Resource, altered: Sequence[Altered]) -> Iterable[str]:
    changes = [change for each in altered if (change := each.undo) is not None]
    if changes:
        names = [resource.name] if resource.name else []
        yield undo_command(options, "configs", options.kind, *setting_words(changes), names=names)
