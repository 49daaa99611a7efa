"""ottla acls [list | add | remove]"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from ottla.server.cli.changes import (
    Step,
    add_dry_run,
    add_yes,
    agree,
    carry_out,
    counted,
    option_words,
    report,
    undo_command,
)
from ottla.server.cli.client.output import RequestFailed, UsageError, print_json, print_line, print_table
from ottla.server.cli.command_line import EXIT_OK
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.cli.security.acl_requests import (
    RULES_AT_ONCE_MAX,
    Filter,
    create_rules,
    delete_rules,
    matching,
    some_rules,
    word_of,
)
from ottla.server.dispatch.access import CLUSTER_NAME, OPERATIONS, AclOperation, ResourceType
from ottla.server.security.acls import WILDCARD, Acl, Entry, Pattern, PatternType, Permission, problem_with

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster

DESCRIPTION = """\
Lists, adds and removes the rules (ACLs) that say which principal may do what. A broker obeys them if it has an authorizer
(authorizer.class.name). A principal without a type, such as alice, is User:alice.
"""

EXAMPLES = """\
examples:
  ottla acls                                     list all rules
  ottla acls list --topic orders                 the rules that hold for this topic, by its name, a prefix or *
  ottla acls add --allow alice --operation read,describe --topic orders --host 10.0.0.7
  ottla acls add --allow etl --producer --topic logs- --pattern prefixed
  ottla acls add --allow billing --consumer --topic orders --group billing
  ottla acls remove --principal alice            asks first; --yes does not
  ottla acls remove --allow billing --consumer --topic orders --group billing
"""


_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
"""Options that name resources, and the resources' types; --cluster has no name."""

_PRODUCER = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_CONSUMER = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla acls`; the default is `list`."""
    parser.set_defaults(**_NO_FILTER)
    actions = Actions(parser, "list", _list)
    listing = actions.add("list", "list rules", _list)
    _add_filters(listing, PatternType.MATCH)
    adding = actions.add("add", "add rules", _add)
    who = "allow this principal; repeatable"
    adding.add_argument("--allow", "--allow-principal", action="append", default=[], metavar="PRINCIPAL", help=who)
    who = "deny this principal, whatever other rules allow; repeatable"
    adding.add_argument("--deny", "--deny-principal", action="append", default=[], metavar="PRINCIPAL", help=who)
    _add_operation(adding, "operations to allow or deny, such as read,describe; repeatable")
    _add_roles(adding)
    _add_resources(adding)
    pattern = "whether names are whole names or prefixes (default: literal)"
    adding.add_argument("--pattern", choices=("literal", "prefixed"), default="literal", help=pattern)
    where = "only from this address or network; repeatable (default: * for all)"
    adding.add_argument("--host", action="append", default=[], metavar="HOST", help=where)
    add_dry_run(adding)
    removing = actions.add("remove", "remove the rules that match", _remove)
    _add_filters(removing, PatternType.LITERAL)
    _add_roles(removing)
    removing.add_argument("--all", action="store_true", help="remove all rules")
    add_dry_run(removing)
    add_yes(removing)


_NO_FILTER: dict[str, Any] = dict.fromkeys(_RESOURCES, ()) | {
    "cluster": False,
    "producer": False,
    "consumer": False,
    "principal": (),
    "allow": (),
    "deny": (),
    "operation": (),
    "host": (),
    "pattern": None,
    "usual_pattern": PatternType.MATCH,
}


def _add_resources(parser: argparse.ArgumentParser) -> None:
    add = partial(parser.add_argument, action="append", default=[])
    add("--topic", metavar="TOPIC", help="a topic; repeatable, as are the next")
    add("--group", metavar="GROUP", help="a group")
    add("--transactional-id", metavar="ID", help="a transactional id")
    add("--delegation-token", metavar="ID", help="a delegation token")
    add("--user", metavar="NAME", help="a user, for whom tokens are made (create-tokens, describe-tokens)")
    parser.add_argument("--cluster", action="store_true", help="the cluster")


def _add_operation(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--operation", action="append", default=[], metavar="NAME,NAME", help=what)


def _add_roles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--producer", action="store_true", help="what a producer needs for its topics and its id")
    parser.add_argument("--consumer", action="store_true", help="what a consumer needs for its topics and its group")


def _add_filters(parser: argparse.ArgumentParser, usual: PatternType) -> None:
    add = partial(parser.add_argument, action="append", default=[], metavar="PRINCIPAL")
    add("--principal", help="rules of this principal; repeatable, as are the next")
    add("--allow", "--allow-principal", help="rules that allow this principal something")
    add("--deny", "--deny-principal", help="rules that deny this principal something")
    _add_operation(parser, "rules about these operations")
    _add_resources(parser)
    kinds = f"kind of the rules' patterns; match: all that hold for the name (default: {word_of(usual)})"
    parser.add_argument("--pattern", choices=("literal", "prefixed", "any", "match"), help=kinds)
    parser.set_defaults(usual_pattern=usual)
    parser.add_argument("--host", action="append", default=[], metavar="HOST", help="rules for exactly this host")


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line; without one `list`."""
    return run_action(options)


# --- words


def _plain(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "")


def _operations(texts: Iterable[str]) -> list[AclOperation]:
    """Parse --operation; Kafka's spellings are taken, too (DescribeConfigs). Raises UsageError."""
    known = {_plain(each.name): each for each in AclOperation if each > AclOperation.ANY}
    found: dict[AclOperation, None] = {}
    for text in texts:
        for each in text.split(","):
            operation = known.get(_plain(each.strip()))
            if operation is None:
                raise UsageError(f"--operation {each}: must be one of {', '.join(map(word_of, known.values()))}")
            found[operation] = None
    return list(found)


def _principal(text: str) -> str:
    if not text or text.endswith(":") or text.startswith(":"):
        raise UsageError(f"{text!r} is no principal: it must be a user's name, or TYPE:NAME")
    return text if ":" in text else f"User:{text}"


def _resources(options: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    found = [(kind, name) for option, kind in _RESOURCES.items() for name in dict.fromkeys(getattr(options, option))]
    return found + [(ResourceType.CLUSTER, CLUSTER_NAME)] * options.cluster


def _principals(options: argparse.Namespace) -> list[tuple[str, Permission]]:
    found = [(_principal(each), Permission.ALLOW) for each in options.allow]
    return list(dict.fromkeys(found + [(_principal(each), Permission.DENY) for each in options.deny]))


# --- list


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    found = matching(cluster, _filters(options))
    if wants_json(options):
        print_json([_as_json(each) for each in found])
    elif not found:
        print_line("no rules")
    else:
        _print_rules(found)
    return EXIT_OK


def _filters(options: argparse.Namespace) -> list[Filter]:
    """Return filters of which a rule has to match one: all combinations of the options."""
    who: list[tuple[str | None, Permission]] = [*_principals(options)]
    who += [(_principal(each), Permission.ANY) for each in options.principal]
    what: list[tuple[ResourceType, str | None]] = [*_resources(options)]
    hosts: list[str | None] = [*options.host]
    operations = _operations(options.operation)
    has_role = options.producer or options.consumer
    if has_role and not what:
        raise UsageError(f"{_role_option(options)} of what? Give --topic, --group or another resource")
    return [
        Filter(of, name, _pattern_type(options, name), principal, host, operation, permission)
        for (principal, permission), host, (of, name) in product(
            who or [(None, Permission.ANY)], hosts or [None], what or [(ResourceType.ANY, None)]
        )
        for operation in (_operations_of(of, operations, options) if has_role else operations or [AclOperation.ANY])
    ]


def _pattern_type(options: argparse.Namespace, name: str | None) -> PatternType:
    """Return the kind of patterns of --pattern; without the option the action's default, which needs a name to match."""
    if options.pattern is not None:
        return PatternType[str(options.pattern).upper()]
    return PatternType.ANY if name is None else options.usual_pattern


def _as_json(acl: Acl) -> dict[str, str]:
    pattern, entry = acl
    return {
        "principal": entry.principal,
        "permission": word_of(entry.permission),
        "operation": word_of(entry.operation),
        "resource": word_of(pattern.resource_type),
        "name": pattern.name,
        "pattern": word_of(pattern.pattern_type),
        "host": entry.host,
    }


def _print_rules(rules: Sequence[Acl]) -> None:
    rows = [list(_as_json(each).values()) for each in rules]
    print_table(("PRINCIPAL", "PERMISSION", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST"), rows)


# --- add


def _add(cluster: Cluster, options: argparse.Namespace) -> int:
    wanted = _wanted(options)
    known = set(matching(cluster, _exact_patterns(wanted)))
    new = [each for each in wanted if each not in known]
    if new and not options.dry_run:
        carry_out([Step("the rules are added", partial(create_rules, cluster, new))])
    _report(options, new, "added", _undo(options, "remove", new))
    return EXIT_OK


def _wanted(options: argparse.Namespace) -> list[Acl]:
    """Return the rules that the options name. Raises UsageError if one of them is invalid."""
    who, what, operations = _principals(options), _resources(options), _operations(options.operation)
    if not who:
        raise UsageError("whom do the rules concern? Give --allow or --deny")
    if not what:
        raise UsageError("what do the rules concern? Give --topic, --group, --cluster or another resource")
    if not operations and not options.producer and not options.consumer:
        raise UsageError("what is allowed or denied? Give --operation, --producer or --consumer")
    kind = PatternType[options.pattern.upper()]
    found: dict[Acl, None] = {}
    for (of, name), (principal, permission), host in product(what, who, options.host or [WILDCARD]):
        for operation in _operations_of(of, operations, options):
            # A cluster has one name, whatever the other names are.
            pattern = Pattern(of, PatternType.LITERAL if of is ResourceType.CLUSTER else kind, name)
            found[_checked(Acl(pattern, Entry(principal, host, operation, permission)))] = None
    if len(found) > RULES_AT_ONCE_MAX:
        raise UsageError(f"these are {len(found):,} rules, and {RULES_AT_ONCE_MAX:,} can be added at a time")
    return sorted(found)


def _operations_of(
    kind: ResourceType, operations: Sequence[AclOperation], options: argparse.Namespace
) -> list[AclOperation]:
    found = [*operations]
    for is_wanted, role in ((options.producer, _PRODUCER), (options.consumer, _CONSUMER)):
        found += role.get(kind, ()) if is_wanted else ()
    if not found:
        raise UsageError(f"{_role_option(options)} says nothing of a {word_of(kind)}: give --operation, too")
    return list(dict.fromkeys(found))


def _role_option(options: argparse.Namespace) -> str:
    return "--producer" if options.producer else "--consumer"


def _checked(acl: Acl) -> Acl:
    if problem := problem_with(acl):
        raise UsageError(problem)
    kind, operation = acl.pattern.resource_type, acl.entry.operation
    possible = OPERATIONS[kind].operations
    # Kafka takes such a rule, and nobody ever asks for it.
    if operation is not AclOperation.ALL and operation not in possible:
        names = ", ".join(map(word_of, possible))
        raise UsageError(f"there is no {word_of(operation)} of a {word_of(kind)}; there are {names} and all")
    return acl


def _exact_patterns(rules: Iterable[Acl]) -> list[Filter]:
    patterns = dict.fromkeys(each.pattern for each in rules)
    return [Filter(each.resource_type, each.name, each.pattern_type) for each in patterns]


# --- remove


def _remove(cluster: Cluster, options: argparse.Namespace) -> int:
    filters = _filters(options)
    if options.all is (filters != [Filter()]):
        raise UsageError("which rules? Give --principal, --topic or another filter; or --all, which goes with none")
    found = matching(cluster, filters)
    if not found:
        raise RequestFailed("no rule matches: nothing is changed")
    if len(found) > RULES_AT_ONCE_MAX:
        raise RequestFailed(
            f"{len(found):,} rules match, and {RULES_AT_ONCE_MAX:,} can be removed at a time: name fewer"
        )
    if not options.dry_run:
        agree(options, f"Remove {counted(len(found), 'rule')}: {some_rules(found)}")
        carry_out([Step("the rules are removed", partial(delete_rules, cluster, found))])
    _report(options, found, "removed", _undo(options, "add", found))
    return EXIT_OK


# --- results


def _report(options: argparse.Namespace, rules: Sequence[Acl], done: str, undo: Sequence[str]) -> None:
    def show() -> None:
        if rules:
            _print_rules(rules)
        print_line(_counted(rules, f"would be {done}") if options.dry_run else _counted(rules, done))

    report(options, {"rules": [_as_json(each) for each in rules]}, show, undo)


def _counted(rules: Sequence[Acl], done: str) -> str:
    return f"{counted(len(rules), 'rule')} {done}"


def _undo(options: argparse.Namespace, action: str, rules: Iterable[Acl]) -> list[str]:
    """Return a command for all operations of a principal on a resource, which adds or removes exactly these rules."""
    groups: dict[tuple[Pattern, str, str, Permission], list[str]] = {}
    for pattern, entry in rules:
        key = (pattern, entry.principal, entry.host, entry.permission)
        groups.setdefault(key, []).append(word_of(entry.operation))
    return [
        undo_command(options, "acls", action, *_rule_options(*key), "--operation", ",".join(operations))
        for key, operations in groups.items()
    ]


def _rule_options(pattern: Pattern, principal: str, host: str, permission: Permission) -> Iterator[str]:
    yield from option_words(f"--{word_of(permission)}", principal)
    if pattern.resource_type is ResourceType.CLUSTER:
        yield "--cluster"
    else:
        yield from option_words(f"--{word_of(pattern.resource_type)}", pattern.name)
    if pattern.pattern_type is PatternType.PREFIXED:
        yield from ("--pattern", "prefixed")
    yield from option_words("--host", host)
