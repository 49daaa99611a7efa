"""Names of topics and groups for a shell's completion, from the cluster that the command line names.

A press of Tab must neither wait long nor print an error: after LIMIT_S, or on any failure, there are no names. A name with characters that
have a meaning in a shell, such as a space or a dollar sign, is left out: a stranger may have chosen the name of a group.
"""

from __future__ import annotations

import argparse
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from ottla.server.cli.client.cluster import Cluster
from ottla.server.cli.client.groups import list_groups
from ottla.server.cli.command_line import Place, is_option, option_of
from ottla.server.cli.on_cluster import reach

LIMIT_S = 1.0
NAMES_MAX = 2000
_SAFE = re.compile(r"[A-Za-z0-9_.@+/:][A-Za-z0-9_.@+/:-]{0,254}")


def topic_names(parser: argparse.ArgumentParser, words: Sequence[str], begun: str) -> list[str]:
    """Return names of topics that begin with `begun`; internal topics only if `begun` begins with an underscore.

    `parser` and `words`: command line with the connection's options.
    """

    def found(cluster: Cluster) -> list[str]:
        topics = cluster.metadata(None).topics
        return [each.name or "" for each in topics if not each.is_internal or begun.startswith("_")]

    return _names(found, parser, words, begun)


def group_names(parser: argparse.ArgumentParser, words: Sequence[str], begun: str) -> list[str]:
    """Return names of groups that begin with `begun`. `parser` and `words`: as in `topic_names`."""
    return _names(lambda cluster: [each.group for each in list_groups(cluster)], parser, words, begun)


def _names(
    ask: Callable[[Cluster], list[str]], parser: argparse.ArgumentParser, words: Sequence[str], begun: str
) -> list[str]:
    found: list[str] = []
    try:
        with _limited(), closing(reach(connection_options(parser, words))) as cluster:
            found = ask(cluster)
    except Exception:  # noqa: BLE001 - whatever it is, completion prints no error
        return []
    return sorted(each for each in found if each.startswith(begun) and _SAFE.fullmatch(each))[:NAMES_MAX]


@contextmanager
def _limited() -> Iterator[None]:
    """Raise TimeoutError in this block after LIMIT_S."""

    def on_alarm(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def connection_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Return the options of the connection that unfinished words of a command line have."""
    found = argparse.Namespace(timeout=LIMIT_S, properties=[])
    place = Place(parser)
    for word in words:
        action, value = place.awaiting, word
        place.take(word)
        if is_option(word):
            name, separator, value = word.partition("=")
            if not separator and not word.startswith("--"):
                value = word[2:]  # -bHOST:PORT
            action = option_of(place.parser, name) if value else None
        if action is None:
            continue
        if action.dest == "properties":
            found.properties.append(value)
        elif action.dest == "bootstrap_server":
            found.bootstrap_server = value
        elif action.dest == "command_config":
            found.command_config = Path(value)
    return found
