"""ottla topics [list | create | delete | describe | alter | offsets | trim]"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.server.cli.administration.topic_changes import TIMEOUT_MS, add_actions
from ottla.server.cli.changes import Step, add_dry_run, add_yes, agree, carry_out, counted, done_word
from ottla.server.cli.client.cluster import (
    EARLIEST,
    LATEST,
    Cluster,
    TemporaryFailure,
    failed,
    offsets_at,
    only,
)
from ottla.server.cli.client.configs import TOPIC, assignment
from ottla.server.cli.client.output import (
    RequestFailed,
    ids,
    print_json,
    print_line,
    print_pairs,
    print_table,
)
from ottla.server.cli.command_line import EXIT_OK, count
from ottla.server.cli.on_cluster import Actions, run_action, wants_json
from ottla.server.config.quantities import shown
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.text import uuid_text

if TYPE_CHECKING:
    from ottla.wire.messages.metadata import MetadataResponseTopic

DESCRIPTION = """\
Lists the topics of a cluster, creates, changes and deletes some, deletes their oldest records, or tells all of some.
"""

EXAMPLES = """\
examples:
  ottla topics                                   list them
  ottla topics create orders -p 6 -r 3 -c retention.ms=1d
  ottla topics describe orders                   partitions, leaders, replicas, offsets, settings
  ottla topics alter orders -c retention.ms=1h -d cleanup.policy
  ottla topics alter orders -p 12 --dry-run      more partitions; says whether that would work
  ottla topics offsets orders --at 2026-01-31T12:00:00
  ottla topics trim orders:0 --to-offset 500     delete what is before offset 500 of partition 0; asks first
  ottla topics delete orders                     asks first; --yes does not
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions of `ottla topics`; the default is `list`."""
    parser.set_defaults(internal=False)
    actions = Actions(parser, "list", _list)
    listing = actions.add("list", "list the topics", _list)
    listing.add_argument("--internal", action="store_true", help="list the cluster's own topics, too")
    creating = actions.add("create", "create topics", _create)
    creating.add_argument("names", nargs="+", metavar="TOPIC")
    creating.add_argument("-p", "--partitions", type=count, metavar="N", help="how many (default: the broker's)")
    creating.add_argument("-r", "--replicas", type=count, metavar="N", help="of each partition (default: the broker's)")
    setting = "a setting of the topics; repeatable"
    creating.add_argument("-c", "--config", action="append", default=[], metavar="NAME=VALUE", help=setting)
    creating.add_argument("--if-not-exists", action="store_true", help="say nothing of topics that are there already")
    creating.add_argument("--dry-run", action="store_true", help="have it checked, and create nothing")
    deleting = actions.add("delete", "delete topics with all their records", _delete)
    deleting.add_argument("names", nargs="+", metavar="TOPIC")
    add_dry_run(deleting)
    add_yes(deleting)
    describing = actions.add("describe", "tell all of topics", _describe)
    describing.add_argument("names", nargs="+", metavar="TOPIC")
    describing.add_argument("--all-configs", action="store_true", help="settings that have their defaults, too")
    add_actions(actions)


def run(options: argparse.Namespace) -> int:
    """Run the action in the command line, or `list` without one; return the exit code."""
    return run_action(options)


def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    topics = [topic_summary(each) for each in cluster.metadata(None).topics if options.internal or not each.is_internal]
    topics.sort(key=lambda each: each["name"] or "")
    if wants_json(options):
        print_json(topics)
        return EXIT_OK
    columns = ("name", "partitions", "replicas", "under_replicated", "offline")
    headings = ("TOPIC", "PARTITIONS", "REPLICAS", "UNDER-REPLICATED", "OFFLINE")
    print_table(headings, [[each[column] for column in columns] for each in topics])
    return EXIT_OK


def _create(cluster: Cluster, options: argparse.Namespace) -> int:
    configs = dict(assignment(each, "--config") for each in options.config)
    partitions, replicas = options.partitions or SERVERS_DEFAULT, options.replicas or SERVERS_DEFAULT

    def create(name: str, *, only_checks: bool) -> bool:
        is_new = create_topic(cluster, name, partitions, replicas, configs, only_checks=only_checks)
        if not is_new and not options.if_not_exists:
            raise RequestFailed(f"topic {name} is there already")
        return is_new

    names = list(dict.fromkeys(options.names))
    new = {name: create(name, only_checks=True) for name in names}
    if not options.dry_run:
        carry_out([Step(f"{each} is created", partial(create, each, only_checks=False)) for each in names if new[each]])
    if wants_json(options):
        print_json([{"name": name, "created": new[name] and not options.dry_run} for name in names])
        return EXIT_OK
    for name in names:
        print_line(f"{name} {_said(new[name], options.dry_run)}")
    return EXIT_OK


def _said(is_new: bool, only_checked: bool) -> str:
    if not is_new:
        return "is there already"
    return "could be created" if only_checked else "is created"


def _delete(cluster: Cluster, options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(options.names))
    topics = cluster.topics(names)
    if not options.dry_run:
        told = [f"{each.name} ({counted(len(each.partitions), 'partition')})" for each in topics]
        agree(options, f"Delete {', '.join(told)} with all records")
        carry_out([Step(f"{each} is deleted", partial(delete_topic, cluster, each)) for each in names])
    if wants_json(options):
        print_json([{"name": name, "deleted": not options.dry_run} for name in names])
        return EXIT_OK
    for name in names:
        print_line(f"{name} {done_word(options)} deleted")
    return EXIT_OK


def _describe(cluster: Cluster, options: argparse.Namespace) -> int:
    topics = describe_topics(cluster, options.names, with_defaults=options.all_configs)
    if wants_json(options):
        print_json(topics)
        return EXIT_OK
    for index, topic in enumerate(topics):
        if index:
            print_line("")
        pairs = [("topic", topic["name"]), ("id", topic["id"])]
        pairs += [(f"  {name}", value and shown(name, value)) for name, value in topic["configs"].items()]
        print_pairs(pairs)
        lists = ("replicas", "isr", "offline")
        rows = [
            (
                each["partition"],
                each["leader"],
                *(ids(each[key]) for key in lists),
                each["start_offset"],
                each["end_offset"],
            )
            for each in topic["partitions"]
        ]
        print_table(("PARTITION", "LEADER", "REPLICAS", "ISR", "OFFLINE", "START", "END"), rows)
    return EXIT_OK


OWN_SOURCE = 1  # of a setting that the topic itself has (Kafka's DYNAMIC_TOPIC_CONFIG)
SERVERS_DEFAULT = -1


def topic_summary(topic: MetadataResponseTopic) -> dict[str, Any]:
    """Return the summary of one topic for the list."""
    partitions = topic.partitions
    return {
        "name": topic.name,
        "partitions": len(partitions),
        "replicas": max((len(each.replica_nodes) for each in partitions), default=0),
        "under_replicated": sum(len(each.isr_nodes) < len(each.replica_nodes) for each in partitions),
        "offline": sum(each.leader_id < 0 for each in partitions),
        "internal": topic.is_internal,
    }


def create_topic(
    cluster: Cluster, name: str, partitions: int, replicas: int, configs: Mapping[str, str], *, only_checks: bool
) -> bool:
    """Create a topic; return False if it exists already. Raises RequestFailed if the cluster refuses.

    `only_checks`: validate the request, but create nothing.
    """
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )

    def create() -> bool:
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=only_checks)
        result = only(cluster.controller().ask(request).topics, f"topic {name}")
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        if result.error_code == ErrorCode.INVALID_CONFIG and (hint := _nearest_settings(configs)):
            refusal = failed(f"topic {name}", result.error_code, result.error_message)
            raise RequestFailed(f"{refusal}{hint}")
        cluster.check(f"topic {name}", result.error_code, result.error_message)
        return True

    is_new = cluster.patiently(create)
    if is_new and not only_checks:
        cluster.patiently(lambda: _has_to_be(cluster, name, is_there=True))
    return is_new


def _nearest_settings(names: Iterable[str]) -> str:
    """Return "; did you mean NAME?" for those of `names` that are no topic settings; empty without a near name."""
    from ottla.replication.config import LogConfig
    from ottla.server.config.broker_config import nearest_name
    from ottla.wire.settings import settings_of

    known = settings_of(LogConfig)
    found = [nearest_name(each, known) for each in names if each not in known]
    return f"; did you mean {', '.join(filter(None, found))}?" if any(found) else ""


def _has_to_be(cluster: Cluster, name: str, *, is_there: bool) -> None:
    """Raise TemporaryFailure while brokers do not show a topic's creation (`is_there`) or, otherwise, its deletion."""
    topic = only(cluster.metadata([name]).topics, f"topic {name}")
    # A user may have the right to create a topic, and no right to describe it.
    if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return
    if is_there and (topic.error_code or any(each.leader_id < 0 for each in topic.partitions)):
        raise TemporaryFailure(f"topic {name} is created, and not all of its partitions have a leader")
    if not is_there and not topic.error_code:
        raise TemporaryFailure(f"topic {name} is deleted, and brokers still tell of it")


def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic. Raises RequestFailed if the topic does not exist or the cluster refuses."""

    def delete() -> None:
        state = DeleteTopicState(name=name, topic_id=bytes(16))
        request = DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=TIMEOUT_MS)
        result = only(cluster.controller().ask(request).responses, f"topic {name}")
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise failed(f"topic {name}", result.error_code, "it does not exist")
        cluster.check(f"topic {name}", result.error_code, result.error_message)

    cluster.patiently(delete)
    cluster.patiently(lambda: _has_to_be(cluster, name, is_there=False))


def describe_topics(cluster: Cluster, names: Sequence[str], *, with_defaults: bool) -> list[dict[str, Any]]:
    """Describe topics: partitions, first and last offsets, settings. `with_defaults`: default settings as well."""
    topics = cluster.topics(names)
    places = {topic.name or "": [each.partition_index for each in topic.partitions] for topic in topics}
    led = {
        topic.name or "": [each.partition_index for each in topic.partitions if each.leader_id >= 0] for topic in topics
    }
    starts, ends = offsets_at(cluster, led, EARLIEST), offsets_at(cluster, led, LATEST)
    configs = _configs(cluster, places, with_defaults)
    return [
        {
            "name": topic.name,
            "id": _id_text(topic.topic_id),
            "internal": topic.is_internal,
            "partitions": [
                {
                    "partition": each.partition_index,
                    "leader": each.leader_id if each.leader_id >= 0 else None,
                    "leader_epoch": each.leader_epoch,
                    "replicas": each.replica_nodes,
                    "isr": each.isr_nodes,
                    "offline": each.offline_replicas,
                    "start_offset": starts.get((topic.name or "", each.partition_index)),
                    "end_offset": ends.get((topic.name or "", each.partition_index)),
                }
                for each in topic.partitions
            ],
            "configs": configs.get(topic.name or "", {}),
        }
        for topic in topics
    ]


def _id_text(topic_id: bytes) -> str | None:
    """Format a topic id as Kafka does; None for brokers before 2.8, which have no topic ids."""
    return uuid_text(topic_id) if any(topic_id) else None


def _configs(cluster: Cluster, names: Iterable[str], with_defaults: bool) -> dict[str, dict[str, str | None]]:
    resources = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in names
    ]
    answer = cluster.ask_any(lambda broker: broker.ask(DescribeConfigsRequest(resources=resources)))
    found = {}
    for each in answer.results:
        if each.error_code:
            raise failed(f"the settings of topic {each.resource_name}", each.error_code, each.error_message)
        found[each.resource_name] = {
            config.name: config.value
            for config in sorted(each.configs, key=lambda config: config.name)
            if with_defaults or config.config_source == OWN_SOURCE
        }
    return found
