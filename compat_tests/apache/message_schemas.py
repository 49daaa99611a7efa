"""The schemas of Kafka's messages, as the classes of kafka-clients have them. MessageSchemas.java prints them once, into .cache/."""

import hashlib
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat_tests.apache.brokers import FAST_START, ROOT, bound_to_us, jars, version

SOURCE = Path(__file__).with_name("MessageSchemas.java")
FOLDER = ROOT / ".cache" / "message_schemas"


def message_schemas(release: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By name, for each message that the release ("kafka_4" or "kafka_3") has: its key, and a schema for each version."""
    folder = jars(release)
    asked = hashlib.sha256(SOURCE.read_bytes() + " ".join(names).encode()).hexdigest()[:16]
    printed = FOLDER / f"{version(release)}-{asked}.jsonl"
    if not printed.exists():
        command = [*bound_to_us(), "java", *FAST_START, "-cp", f"{folder}/*", str(SOURCE), *names]
        lines = subprocess.run(command, check=True, capture_output=True, timeout=600).stdout
        FOLDER.mkdir(parents=True, exist_ok=True)
        unfinished = printed.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(lines)
        unfinished.replace(printed)
    found = [json.loads(line) for line in printed.read_text().splitlines()]
    return {each["name"]: each for each in found}
