"""Starts three producers of readings (`ottla generate metrics`), which write at the same time, and ends the data.

    python produce.py --bootstrap 127.0.0.1:9092 --output /tmp/metrics

Readings come late, twice, or as poison. What each producer wrote is told in the output folder: the minutes of its hosts, and how many
records were what.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from kafka import KafkaProducer

SEEDS = (1, 2, 3)
RECORDS = 2000
SHARES = ("--late", "0.05", "--doubled", "0.02", "--poison", "0.005")

# Windows end when time goes on. One reading of a day later tells the job that the data is over.
LAST = {"id": "end", "host": "nobody", "metric": "none", "value": 0, "time": "2026-01-02T00:00:00.000Z"}


def generate(bootstrap: str, topic: str, output: Path, records: int = RECORDS) -> None:
    """Run all producers to their end. Raises CalledProcessError if one fails."""
    output.mkdir(parents=True, exist_ok=True)
    ottla = shutil.which("ottla")
    command = [ottla] if ottla else [sys.executable, "-m", "ottla"]
    command += ["generate", "metrics", "-b", bootstrap, "-t", topic, "--records", str(records), *SHARES, "--json"]
    running = []
    for seed in SEEDS:
        arguments = ["--seed", str(seed), "--expected", str(output / f"expected-{seed}.jsonl")]
        running.append(subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE))
    outputs = [process.communicate()[0] for process in running]
    for seed, process, told in zip(SEEDS, running, outputs, strict=True):
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        (output / f"generated-{seed}.json").write_bytes(told)
    end(bootstrap, topic)


def end(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        producer.send(topic, json.dumps(LAST).encode(), key=b"nobody").get(timeout=60)
    finally:
        producer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write readings of hosts by three producers.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="metrics")
    parser.add_argument("--output", type=Path, required=True, help="folder for what was written")
    options = parser.parse_args()
    try:
        generate(options.bootstrap, options.topic, options.output)
    except subprocess.CalledProcessError as error:
        sys.exit(f"A producer failed with exit code {error.returncode}.")
    print(f"readings: {len(SEEDS)} producers wrote {len(SEEDS) * RECORDS + 1:,} records", flush=True)


if __name__ == "__main__":
    main()
