"""kafka-producer-perf-test, kafka-consumer-perf-test, kafka-e2e-latency, VerifiableProducer and VerifiableConsumer."""

import json
import re

import pytest

NUMBER = r"\d+(?:\.\d+)?(?:E-?\d+)?|NaN"
# Of a line that tells how fast it went every number is a timing, except how many records there were.
RATES = rf"(?<=, )(?:{NUMBER})(?= (?:records/sec|ms))|\((?:{NUMBER}) MB/sec\)"


def test_producer_performance(beside, both_topic):
    topic = both_topic()
    size = ("--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    command = ("--topic", topic, *size, "--command-property", "acks=all")
    said = beside("ProducerPerformance", *command, timings=RATES)
    assert said.out.startswith("2000 records sent, <timing> records/sec <timing>, <timing> ms avg latency")
    metrics = beside("ProducerPerformance", *command, "--print-metrics", arrange=names_of_metrics)
    assert "record-send-total" in metrics.out
    assert beside("GetOffsetShell", "--topic", topic).out == f"{topic}:0:4000\n"


def names_of_metrics(printed: str) -> str:
    """Values of metrics are timings and counts of requests."""
    return re.sub(rf" : -?(?:{NUMBER})$", " : <value>", re.sub(RATES, "<timing>", printed), flags=re.MULTILINE)


def test_consumer_performance(beside, both_topic):
    topic = both_topic()
    beside("ConsoleProducer", "--topic", topic, stdin="".join(f"value {i}\n" for i in range(1000)))
    command = ("--topic", topic, "--num-records", "1000", "--timeout", "20000")
    said = beside("ConsumerPerformance", *command, arrange=without_rates)
    assert said.out.splitlines()[1].split(", ")[4] == "1000"


def without_rates(printed: str) -> str:
    """Of the table's columns two tell what was read: MB and records; the others are times and rates."""
    lines = printed.splitlines()
    kept = []
    for line in lines:
        cells = line.split(", ")
        is_row = len(cells) == 10 and cells[0][:2] == "20"
        kept.append(", ".join(cell if i in (2, 4) else "<timing>" for i, cell in enumerate(cells)) if is_row else line)
    return "\n".join(kept)


def test_end_to_end_latency(beside, both_topic):
    topic = both_topic()
    command = ("--topic", topic, "--num-records", "200", "--producer-acks", "all", "--record-size", "64")
    said = beside("EndToEndLatency", *command, timings=rf"(?<=latency: )(?:{NUMBER})|(?<= = )\d+|(?<=\t)(?:{NUMBER})$")
    assert said.status == 0
    assert "Avg latency" in said.out


@pytest.mark.parametrize("acks", ["1", "-1"])
def test_verifiable_producer(beside, both_topic, acks):
    topic = both_topic()
    command = ("--topic", topic, "--max-messages", "200", "--acks", acks)
    said = beside("VerifiableProducer", *command, arrange=without_times, alone=True)
    assert said.status == 0
    assert said.out.count('"name": "producer_send_success"') == 200
    assert '"acked": 200' in said.out and '"sent": 200' in said.out


def test_verifiable_consumer(beside, both_topic, unique):
    topic = both_topic()  # one partition: which of several gets a batch without keys is a matter of chance
    beside("ConsoleProducer", "--topic", topic, stdin="".join(f"value {i}\n" for i in range(300)))
    reads = ("--topic", topic, "--group-id", unique("group"), "--max-messages", "300", "--reset-policy", "earliest")
    said = beside("VerifiableConsumer", *reads, arrange=totals, alone=True)
    assert "records_consumed 300" in said.out and "offsets_committed" in said.out


def events(printed: str) -> list[dict]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def without_times(printed: str) -> str:
    """Events in order, without the time of each and the throughput."""
    kept = []
    for event in events(printed):
        for timing in ("timestamp", "avg_throughput"):
            event.pop(timing, None)
        kept.append(json.dumps(event, sort_keys=True))
    return "\n".join(sorted(kept))


def totals(printed: str) -> str:
    """How often a consumer polls, and so the events in between, is a matter of speed: what they add up to is not."""
    kept = {"startup": 0, "records_consumed": 0}
    ends: dict[tuple[str, int], int] = {}
    names = set()
    for event in events(printed):
        names.add(event["name"])
        if event["name"] == "records_consumed":
            kept["records_consumed"] += event["count"]
            ends |= {(each["topic"], each["partition"]): each["maxOffset"] for each in event["partitions"]}
    lines = [f"{name} {count}" for name, count in kept.items()] + sorted(names)
    return "\n".join(lines + [f"{place} {end}" for place, end in sorted(ends.items())])
