"""Starts OpenSearch on this machine, runs a command, and ends it again.

    python node.py -- python index.py

The command finds the address in OPENSEARCH_URL. If that is set already, nothing is started. Jars come by Maven (pom.xml), once. Where there
is no Maven, no JDK or no client, or where they cannot be fetched, it says what is missing and runs the command without OpenSearch.
"""

import argparse
import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = re.search(r"<opensearch>(.+)</opensearch>", (HERE / "pom.xml").read_text())[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
START_S = 180
JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Missing(Exception):
    """Why there is no OpenSearch."""


def jars() -> Path:
    """The folder of its jars, fetched with Maven the first time. Raises Missing."""
    given, name = os.environ.get("OPENSEARCH_JARS"), f"opensearch-{VERSION}"
    folder = Path(given) if given else CACHE / "ottla" / name
    if (folder / f"{name}.jar").exists():
        return folder
    if given:
        raise Missing(f"OPENSEARCH_JARS={given} has no {name}.jar")
    if shutil.which("mvn") is None:
        raise Missing("it is fetched with Maven, and there is no mvn command (Debian: apt-get install maven)")
    # The folder appears when it is whole.
    partial = folder.with_name(f"{name}.partial")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    done = subprocess.run(["mvn", "-q", "-B", "-f", HERE / "pom.xml", *goal], check=False, capture_output=True)
    if done.returncode:
        raise Missing(f"Maven cannot fetch it: {done.stdout.decode(errors='replace').strip()[:300]}")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return folder


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """A node with its files in a folder; its address. Raises Missing."""
    if importlib.util.find_spec("opensearchpy") is None:
        raise Missing("its client is missing (pip install -r requirements.txt)")
    if shutil.which("javac") is None:
        raise Missing("there is no javac command (Debian: apt-get install default-jdk-headless)")
    path = f"{jars()}/*"
    subprocess.run(["javac", "-cp", path, "-d", folder / "classes", HERE / "SearchNode.java"], check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["java", *JVM, "-cp", f"{folder / 'classes'}:{path}", "SearchNode", str(folder / "home"), str(port)]
    with open(folder / "opensearch.log", "wb") as log:
        node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait(url, node, folder / "opensearch.log")
        yield url
    finally:
        node.kill()
        node.communicate()


def wait(url: str, node: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and node.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/_cluster/health", timeout=5):
            return
        time.sleep(0.2)
    raise Missing("it does not start: " + log.read_text(errors="replace")[-1000:])


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a command beside an OpenSearch of its own.")
    parser.add_argument("command", nargs="+", help="a command and its arguments, behind --")
    command = parser.parse_args().command
    environment = dict(os.environ)
    with contextlib.ExitStack() as stack:
        if not environment.get("OPENSEARCH_URL"):
            try:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opensearch-")))
                environment["OPENSEARCH_URL"] = stack.enter_context(running(folder))
            except Missing as missing:
                print(f"OpenSearch: left out, {missing}", file=sys.stderr)
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
