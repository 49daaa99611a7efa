"""ottla why [TOPIC PARTITION OFFSET]"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.server.cli.client.output import (
    RequestFailed,
    UsageError,
    print_json,
    print_line,
    print_table,
    say,
    shown_text,
)
from ottla.server.cli.command_line import EXIT_OK, is_number
from ottla.server.cli.inspection.cluster_view import ClusterView, Told, ask_broker, checked_url, together, usual_url
from ottla.server.cli.inspection.fate import Fate, fate_of
from ottla.server.cli.on_cluster import add_connection, add_json, run_on_cluster, run_reporting, wants_json
from ottla.server.cli.places import parse_time
from ottla.wire.happenings import KINDS, Happening, as_json, sentence_of, utc_ms

if TYPE_CHECKING:
    from ottla.server.cli.client.cluster import Cluster

TOKEN_VARIABLE = "OTTLA_CONSOLE_TOKEN"

DESCRIPTION = """\
Tells why a broker of Ottla removed a member, rebalanced a group, fenced a producer, refused a write, closed a connection or throttled a
client. The broker has to serve HTTP (ottla start --http :9644). With TOPIC PARTITION OFFSET it tells what became of an offset: there,
aborted, in an open transaction, compacted, removed, not committed yet. That works with any Kafka, and says more with Ottla.
"""

EXAMPLES = """\
examples:
  ottla why                                      of the broker with HTTP on port 9644
  ottla why --group billing --since -1h
  ottla why --http http://10.0.0.5:9644 --token TOKEN
  ottla why orders 0 1742                        what became of offset 1742 of orders-0
  ottla why --data /srv/ottla --group billing    what files tell, also of a stopped broker
"""

_FACTS = ("group", "topic", "transactional_id", "client_id")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `ottla why`: an offset, or what to tell about."""
    parser.add_argument("place", nargs="*", metavar="TOPIC PARTITION OFFSET", help="what became of this offset")
    only = parser.add_argument_group("only what is about")
    only.add_argument("--group", metavar="GROUP", help="this group")
    only.add_argument("--topic", metavar="TOPIC", help="this topic")
    only.add_argument("--transactional-id", metavar="ID", help="this transactional id")
    only.add_argument("--client-id", metavar="ID", help="clients of this id")
    kinds = [_word(each) for each in KINDS]
    what = "this kind, such as rebalance or write-refused"
    only.add_argument("--kind", choices=kinds, type=_word, metavar="KIND", help=what)
    only.add_argument("--since", metavar="TIME", help="what happened since, such as -1h or 2026-11-28T10:30")
    where = "a broker's HTTP endpoint (default: port 9644 of the broker of -b); repeatable"
    parser.add_argument("--http", action="append", default=[], metavar="HOST:PORT", help=where)
    token = f"the console's token, for what is told to nobody else (default: ${TOKEN_VARIABLE})"
    parser.add_argument("--token", metavar="TOKEN", help=token)
    files = "tell what the files of this data directory know, whether a broker runs or not"
    parser.add_argument("--data", type=Path, metavar="DIR", help=files)
    add_connection(parser)
    add_json(parser)


def _word(kind: str) -> str:
    """Return a kind as one word, which a shell completes."""
    return kind.replace(" ", "-")


def run(options: argparse.Namespace) -> int:
    """Print causes, or what became of an offset; return the exit code."""
    if options.place:
        # What is wrong with the words is said before anybody is asked.
        return run_reporting(lambda: _check_fate(options))
    if options.data is not None:
        return run_reporting(lambda: _show(_read(options), options))
    if options.http:
        return run_reporting(lambda: _show(_asked(options, options.http), options))
    return run_on_cluster(lambda cluster: _show(_asked_of(cluster, options), options), options)


# --- causes


def _asked(options: argparse.Namespace, urls: list[str]) -> Told:
    query = _facts(options)
    if options.kind is not None:
        query["kind"] = options.kind.replace("-", " ")
    token = options.token or os.environ.get(TOKEN_VARIABLE)
    return together([ask_broker(checked_url(url), query, token) for url in urls])


def _read(options: argparse.Namespace) -> Told:
    from ottla.server.cli.inspection.past import causes_in  # here, as it knows of logs and groups

    found = [each for each in causes_in(_directory(options.data)) if each.is_about(_facts(options))]
    return Told([each for each in found if options.kind in (None, _word(each.kind))])


def _facts(options: argparse.Namespace) -> dict[str, str]:
    return {name: value for name in _FACTS if (value := getattr(options, name)) is not None}


def _directory(path: Path) -> Path:
    """Return a data directory. Raises UsageError if it cannot be read."""
    try:
        next(path.iterdir(), None)
    except OSError as error:
        raise UsageError(f"--data {path}: {error.strerror}") from None
    return path


def _asked_of(cluster: Cluster, options: argparse.Namespace) -> Told:
    url = usual_url(cluster.first.address.host)
    cluster_id = cluster.metadata(()).cluster_id
    try:
        told = _asked(options, [url])
    except RequestFailed as error:
        raise RequestFailed(
            f"{error}. Only a broker of Ottla that serves HTTP tells why: `ottla start --http :9644`, and --http names"
            " another address"
        ) from None
    if told.cluster_id != cluster_id:
        raise RequestFailed(f"{url} is a broker of another cluster; --http names the right one")
    return told


def _show(told: Told, options: argparse.Namespace) -> int:
    since_ms = _since(options.since)
    found = [each for each in told.happenings if each.last_ms >= since_ms]
    if wants_json(options):
        print_json([as_json(each) for each in found])
    elif found:
        print_table(("TIME", "WHAT", "WHY"), [_row(each) for each in found])
    else:
        print_line("nothing out of the ordinary is known")
    if not told.is_whole:
        say("connections, logins, throttles and addresses are left out: --token gives the console's token")
    if told.left_out:
        say(f"{told.left_out} older ones are left out; --group, --topic and --kind narrow the answer")
    return EXIT_OK


def _row(happening: Happening) -> tuple[str, str, str]:
    return utc_ms(happening.first_ms), happening.kind, sentence_of(happening)


def _since(text: str | None) -> int:
    if text is None:
        return 0
    try:
        return parse_time(text)
    except ValueError as error:
        raise UsageError(f"--since: {error}") from None


# --- an offset


def _check_fate(options: argparse.Namespace) -> int:
    place = _place(options.place)
    if options.data is not None:
        from ottla.server.cli.inspection.past import DirectoryView  # here, as it knows of logs and groups

        topic, partition, offset = place
        return _tell(fate_of(DirectoryView(_directory(options.data), topic, partition), offset), options)
    return run_on_cluster(lambda cluster: _fate(cluster, options, *place), options)


def _fate(cluster: Cluster, options: argparse.Namespace, topic: str, partition: int, offset: int) -> int:
    told = _told_about(cluster, options, topic, partition)
    return _tell(fate_of(ClusterView(cluster, (topic, partition), told), offset), options)


def _tell(fate: Fate, options: argparse.Namespace) -> int:
    if wants_json(options):
        print_json(fate.as_json())
    else:
        for sentence in fate.sentences:
            print_line(shown_text(sentence))
    return EXIT_OK


def _place(words: list[str]) -> tuple[str, int, int]:
    if len(words) != 3:
        raise UsageError("an offset is named by three words: ottla why TOPIC PARTITION OFFSET")
    topic, partition, offset = words
    if not is_number(partition, 9):
        raise UsageError(f"{partition} is not the number of a partition")
    if not is_number(offset, 18):
        raise UsageError(f"{offset} is not an offset")
    return topic, int(partition), int(offset)


def _told_about(cluster: Cluster, options: argparse.Namespace, topic: str, partition: int) -> Told:
    """Return what Ottla's brokers know of a topic; nothing if no endpoint was named and the usual one does not answer."""
    urls = options.http or [usual_url(cluster.first.address.host)]
    token = options.token or os.environ.get(TOKEN_VARIABLE)
    answers: list[Told] = []
    for url in urls:
        try:
            of_topic = ask_broker(checked_url(url), {"topic": topic}, token)
            of_partition = ask_broker(checked_url(url), {"topic": topic, "partition": partition}, token)
        except RequestFailed:
            if options.http:
                raise
            return Told()
        if options.http or of_topic.cluster_id == cluster.metadata(()).cluster_id:
            answers.append(of_topic._replace(log_end_offset=of_partition.log_end_offset))
    return together(answers)
