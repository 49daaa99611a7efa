"""Creates the topics and records the feed: three runs of `ottla generate posts` at three times of a morning.

    python record.py --bootstrap 127.0.0.1:9092 --output /tmp/search

A fourth run writes into the topic of posts itself, as a careless program would that looks at nothing. What each run wrote is told in
the output folder: posts of each tag in each minute, and how many records were poison.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import TopicAlreadyExistsError
from posts import MAX_RECORD_BYTES

CARELESS = 4
RECORDED = (1, 2, 3)
RECORDS = 1000
SHARES = ("--late", "0.05", "--doubled", "0.02", "--poison", "0.02")


def create_topics(bootstrap: str, topic: str) -> None:
    """The recording has one partition, so that its offsets are the ids of the feed."""
    kept = {"retention.ms": "-1"}
    wanted = {
        f"{topic}-recorded": (1, kept),
        topic: (4, kept | {"max.message.bytes": str(MAX_RECORD_BYTES)}),
        f"{topic}-facets": (1, {"cleanup.policy": "compact"}),
        f"{topic}-dead": (1, kept),
    }
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics(
            {
                name: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}
                for name, (partitions, configs) in wanted.items()
            }
        )
    finally:
        admin.close()


def record(bootstrap: str, topic: str, output: Path, records: int = RECORDS) -> None:
    """Write what each seed generates. Raises CalledProcessError if that fails."""
    output.mkdir(parents=True, exist_ok=True)
    generate(bootstrap, topic, output, CARELESS, "2026-01-01T07:59:45Z", records)
    for seed in RECORDED:
        begin = f"2026-01-01T{8 + seed:02}:59:45Z"
        # Windows end when time goes on. One post of a day later tells the job that the data is over.
        closing = ["--closing"] if seed == RECORDED[-1] else []
        generate(bootstrap, f"{topic}-recorded", output, seed, begin, records, *closing)


def generate(bootstrap: str, topic: str, output: Path, seed: int, begin: str, records: int, *more: str) -> None:
    ottla = shutil.which("ottla")
    command = [ottla] if ottla else [sys.executable, "-m", "ottla"]
    command += [
        "generate",
        "posts",
        "-b",
        bootstrap,
        "-t",
        topic,
        "--seed",
        str(seed),
        "--begin",
        begin,
        "-q",
        "--json",
    ]
    command += ["--records", str(records), *SHARES, "--expected", str(output / f"expected-{seed}.jsonl"), *more]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:  # otherwise it only warns that the recording has records already
        sys.stderr.buffer.write(done.stderr)
    done.check_returncode()
    (output / f"generated-{seed}.json").write_bytes(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="Create the topics and record the feed.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts")
    parser.add_argument("--output", type=Path, required=True, help="folder for what was written")
    parser.add_argument("--records", type=int, default=RECORDS, help="records of each run (default: %(default)s)")
    options = parser.parse_args()
    try:
        create_topics(options.bootstrap, options.topic)
        record(options.bootstrap, options.topic, options.output, options.records)
    except TopicAlreadyExistsError:
        sys.exit(f"Topics named {options.topic}... exist, from another run perhaps. Delete them, or choose a --topic.")
    except subprocess.CalledProcessError as error:
        sys.exit(f"The generator failed with exit code {error.returncode}.")
    print(
        f"recorded: {len(RECORDED) * options.records + 1:,} posts of the feed, {options.records:,} of a careless program"
    )


if __name__ == "__main__":
    main()
