"""ottla status [HOST:PORT] [--json]: brokers, controller, version, and unhealthy partitions"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ottla.server.cli.changes import counted
from ottla.server.cli.client.cluster import release_of
from ottla.server.cli.client.output import print_json, print_line, print_pairs, print_table
from ottla.server.cli.command_line import EXIT_OK, add_address
from ottla.server.cli.on_cluster import add_connection, add_json, run_on_cluster, wants_json
from ottla.server.config.endpoint import host_and_port

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster
    from ottla.wire.messages.metadata import MetadataResponse

_TROUBLES = {"under-replicated": "under_replicated", "offline": "offline"}
NAMED_MAX = 20
"""Partitions that are named each by each; JSON has all of them."""

DESCRIPTION = """\
Tells how a cluster is: its brokers, its controller, and partitions without a leader or with too few replicas in sync. It speaks
to any Kafka, as topics, groups, produce, consume and bench do.
"""

EXAMPLES = """\
examples:
  ottla status                                   of the cluster at localhost:9092, or at $OTTLA_BOOTSTRAP_SERVERS
  ottla status broker1.example:9092
  ottla status -b broker1.example:9092 --command-config client.properties
  ottla status --json | jq .partitions.offline
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla status`: the cluster."""
    add_address(parser, "a broker of the cluster, as -b names it")
    add_connection(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the status of the cluster; return the exit code."""
    return run_on_cluster(lambda cluster: _show(cluster, options), options)


def _show(cluster: Cluster, options: argparse.Namespace) -> int:
    found = status_of(cluster)
    if wants_json(options):
        print_json(found)
        return EXIT_OK
    topics, partitions = found["topics"], found["partitions"]
    internal = f" and {topics['internal']} internal" if topics["internal"] else ""
    print_pairs(
        [
            ("cluster id", found["cluster_id"]),
            ("version", f"compatible with Apache Kafka {found['version']}"),
            ("controller", "none" if found["controller"] is None else found["controller"]),
            ("topics", f"{topics['count']}{internal}, with {counted(partitions['count'], 'partition')}"),
            ("under-replicated", _named(partitions["under_replicated"])),
            ("offline", _named(partitions["offline"])),
        ],
        alarming=[name for name, key in _TROUBLES.items() if partitions[key]],
    )
    print_line("")
    rows = [(each["id"], each["address"], each["rack"], each["leads"], each["replicas"]) for each in found["brokers"]]
    print_table(("BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS"), rows)
    return EXIT_OK


def _named(partitions: list[str]) -> str:
    if not partitions:
        return "0"
    more = f" and {len(partitions) - NAMED_MAX} more" if len(partitions) > NAMED_MAX else ""
    return f"{len(partitions)} ({', '.join(partitions[:NAMED_MAX])}{more})"


def status_of(cluster: Cluster) -> dict[str, Any]:
    """Collect the status that `ottla status --json` prints. Partitions are named topic-number."""
    answer = cluster.metadata(None)
    partitions = [
        (f"{topic.name}-{each.partition_index}", each) for topic in answer.topics for each in topic.partitions
    ]
    return {
        "cluster_id": answer.cluster_id,
        "version": release_of(cluster.first.versions),
        "controller": answer.controller_id if answer.controller_id >= 0 else None,
        "brokers": _brokers(answer),
        "topics": {
            "count": sum(not each.is_internal for each in answer.topics),
            "internal": sum(each.is_internal for each in answer.topics),
        },
        "partitions": {
            "count": len(partitions),
            "under_replicated": sorted(
                name for name, each in partitions if len(each.isr_nodes) < len(each.replica_nodes)
            ),
            "offline": sorted(name for name, each in partitions if each.leader_id < 0),
        },
    }


def _brokers(answer: MetadataResponse) -> list[dict[str, Any]]:
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            leads[each.leader_id] = leads.get(each.leader_id, 0) + 1
            for node_id in each.replica_nodes:
                replicas[node_id] = replicas.get(node_id, 0) + 1
    return [
        {
            "id": each.node_id,
            "address": host_and_port(each.host, each.port),
            "rack": each.rack,
            "leads": leads.get(each.node_id, 0),
            "replicas": replicas.get(each.node_id, 0),
        }
        for each in sorted(answer.brokers, key=lambda each: each.node_id)
    ]
