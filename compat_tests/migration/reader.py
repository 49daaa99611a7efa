"""Somebody who moves from Kafka as docs/migration.md says: its commands, with the addresses and folders of a test."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from compat_tests.apache.brokers import FAST_START, jars
from compat_tests.docs.pages import DOCS, ROOT, Snippet, snippets
from compat_tests.docs.snippets import Reader

PAGE = DOCS / "migration.md"
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}


def told_to(test: str) -> list[Snippet]:
    """The blocks of the page that say that a test runs them, in their order."""
    return [each for each in snippets(PAGE) if each.why == str(Path(test).relative_to(ROOT))]


class Mover(Reader):
    """`places` says what stands for an address or a folder of the page: {"kafka:9092": "127.0.0.1:29092"}."""

    def __init__(self, folder: Path, release: str, places: Mapping[str, object]) -> None:
        super().__init__(folder, str(places["ottla:9092"]))
        self.places = places
        for name, main in TOOLS.items():
            self.add_command(name, jars(release, tools=True), main)

    def add_command(self, name: str, folder: Path, main: str, *options: str) -> None:
        """A script of Kafka's distribution, which Maven does not have."""
        path = self._commands / name
        path.write_text(f"#!/bin/sh\nexec java {' '.join((*FAST_START, *options))} -cp '{folder}/*' {main} \"$@\"\n")
        path.chmod(0o755)

    def translated(self, snippet: Snippet) -> str:
        text = snippet.text
        for place, real in self.places.items():
            text = text.replace(place, str(real))
        return text

    def begin(self, snippet: Snippet, log: Path) -> subprocess.Popen[bytes]:
        """Start a block whose last command goes on until it is stopped: it becomes the process, so that its signals are its own."""
        *before, last = self.translated(snippet).strip().splitlines()
        script = "\n".join([*before, f"exec {last}"])
        with log.open("ab") as output:
            return subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=self.folder, env=self.environment(), stdout=output, stderr=output,
            )  # fmt: skip
