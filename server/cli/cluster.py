"""ottla cluster [--brokers 3] [--data folder] [--secure folder] [--http port] [--zookeeper] [--log-level warn] [--override name=value ...]

ottla cluster status [--data folder]           what a running one is like (or --status)
ottla cluster start-broker N [--data folder]   start a broker of a running one that has ended
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ottla.server.cli.command_line import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    PORT_MAX,
    add_logs,
    add_overrides,
    fail,
    given_texts,
    port_number,
)

BROKERS_MAX = 99
HTTP_PORT_MAX = PORT_MAX - BROKERS_MAX
STATUS, START_BROKER = ACTIONS = ("status", "start-broker")

DESCRIPTION = """\
Runs a cluster on this machine in the foreground until SIGTERM or Ctrl-C: several brokers, each a process of its own on a
free port of 127.0.0.1. This command holds the state that they share, in a tree that it serves to them over a Unix socket.

With --zookeeper a new cluster has an Apache ZooKeeper for that: Debian's (libzookeeper-java) or the one among pyspark's jars; it
needs Java. A cluster that began with ZooKeeper keeps it at later starts, and one without stays without.

Data and logs are in one folder, and a second start with the same folder brings the same cluster back, at the same addresses
if their ports are still free. If a process ends, one line says so. A broker that has ended is started again, and recovers, by
`ottla cluster start-broker` in another terminal; `ottla cluster status` shows brokers, leaders and who is in sync. In the command's
own terminal the keys 1 to 9 kill that broker, or start it again. When the command ends, in whatever way, all its processes end.

With --secure clients and brokers show certificates to each other, and what a client needs is printed. A cluster that was
secured once stays so at its next starts.

Settings have Apache Kafka's names and go to all brokers. With three brokers or more the defaults are those of a cluster that
can do without one of them: default.replication.factor=3, min.insync.replicas=2, and the same for the internal topics
(offsets.topic.replication.factor, transaction.state.log.replication.factor, transaction.state.log.min.isr); with two brokers
2 and 1, with one broker 1 and 1. A broker that dies is missed at once, one that hangs after coordination.session.timeout.ms,
which is 6000; with --zookeeper either takes zookeeper.session.timeout.ms, 6000 as well.
"""

EXAMPLES = """\
examples:
  ottla cluster                                  three brokers, data in ~/.local/share/ottla/cluster
  ottla cluster --brokers 5 --data /srv/five     five, with their data in /srv/five
  ottla cluster --http 9644                      with consoles on http://127.0.0.1:9644, :9645 and :9646
  ottla cluster status                           who runs, who leads, who is in sync
  ottla cluster start-broker 2                   start broker 2 again after it was killed
  ottla cluster --override num.partitions=6      one setting for all brokers
  ottla cluster --secure tls                     with TLS, and certificates of brokers and clients in tls/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla cluster`: the number of brokers, their data folder and settings."""
    add = parser.add_argument
    asked = "ask the cluster that runs in this folder, instead of running one"
    add("action", nargs="?", choices=ACTIONS, metavar="status | start-broker", help=asked)
    add("number", nargs="?", type=_count, metavar="N", help="the broker to be started")
    add("--status", action="store_true", help="the same as status")
    add("--brokers", type=_count, metavar="N", help="how many (default: as many as the folder has data of, or 3)")
    add("--data", type=Path, metavar="FOLDER", help="where data and logs go (default: $XDG_DATA_HOME/ottla/cluster)")
    add_overrides(parser, "one setting for all brokers; repeatable")
    secure = "encrypt, and let in only who shows a certificate; they are in this folder, and made if they are not"
    add("--secure", type=Path, metavar="FOLDER", help=secure)
    add("--zookeeper", action="store_true", help="let a new cluster share its tree by an Apache ZooKeeper")
    http = "serve the console of each broker: of broker 1 on this port of 127.0.0.1, of broker 2 on the next; 0: any"
    add("--http", type=partial(port_number, port_max=HTTP_PORT_MAX), metavar="PORT", help=http)
    add_logs(parser)


def run(options: argparse.Namespace) -> int:
    """Run a cluster until a stop is requested, or control a running cluster; return the exit code."""
    if options.status and options.action is None:
        options.action = STATUS
    if (options.action == START_BROKER) != (options.number is not None):
        return fail("start-broker, and nothing else, takes the number of a broker", EXIT_USAGE)
    return _run_one(options) if options.action is None else _ask(options)


def _ask(options: argparse.Namespace) -> int:
    from ottla.server.launch.cluster_command import START_S, default_folder
    from ottla.server.launch.cluster_control import REQUEST_S, Asked, Unanswered, ask, cluster_status

    folder = (options.data or default_folder()).absolute()
    try:
        if options.action == STATUS:
            print("\n".join(cluster_status(folder)))
        else:
            ask(folder, Asked(START_BROKER, options.number), timeout_s=START_S + REQUEST_S)
            print(f"broker {options.number} serves again")
    except Unanswered as problem:
        return fail(str(problem), EXIT_FAILED)
    return EXIT_OK


def _run_one(options: argparse.Namespace) -> int:
    from ottla.server.config.broker_config import ConfigError
    from ottla.server.launch.cluster_command import ClusterFailed, run_cluster

    try:
        texts = given_texts(None, options.override)
        accepted, level = options.accept_empty_log_dir, options.log_level
        run_cluster(
            options.brokers, options.data, texts, accepted, options.secure, options.zookeeper, level, options.http
        )
    except ConfigError as error:
        return fail(str(error), EXIT_USAGE)
    except ClusterFailed as error:
        return fail(str(error), EXIT_FAILED)
    return EXIT_OK


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= BROKERS_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 to {BROKERS_MAX}")
    return int(text)
