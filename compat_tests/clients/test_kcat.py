"""kcat as Debian ships it (librdkafka 2.0.2: an old client with a strict parser)."""

import json

import pytest


@pytest.fixture
def run_kcat(run, kcat, bootstrap):
    return lambda *arguments, stdin="": run(kcat, "-b", bootstrap, *arguments, stdin=stdin)


@pytest.mark.one_broker("it counts them")
def test_the_cluster_is_listed(run_kcat, make_topic, broker):
    topic = make_topic(partitions=2)
    listing = json.loads(run_kcat("-L", "-J"))
    [node] = listing["brokers"]
    assert node["name"] == broker.bootstrap
    assert listing["controllerid"] == node["id"]
    partitions = {entry["topic"]: entry["partitions"] for entry in listing["topics"]}[topic]
    assert [(entry["partition"], entry["leader"], entry["isrs"]) for entry in partitions] == [
        (i, node["id"], [{"id": node["id"]}]) for i in range(2)
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(run_kcat, topic, codec):
    lines = "".join(f"key{i}:value {i} {'x' * 200}\n" for i in range(200))
    run_kcat("-P", "-t", topic, "-K:", "-z", codec, "-H", "header=h\u00e9", stdin=lines)
    assert run_kcat("-C", "-t", topic, "-e", "-q", "-K:") == lines
    first = json.loads(run_kcat("-C", "-t", topic, "-c", "1", "-q", "-J"))
    assert (first["key"], first["offset"], first["headers"]) == ("key0", 0, ["header", "h\u00e9"])


def test_offsets_from_either_end_and_by_time(run_kcat, topic):
    run_kcat("-P", "-t", topic, stdin="a\nb\nc\nd\n")
    read = ("-C", "-t", topic, "-e", "-q", "-f", "%s %o\n")
    assert run_kcat(*read, "-o", "2") == "c 2\nd 3\n"
    assert run_kcat(*read, "-o", "-1") == "d 3\n"
    assert run_kcat(*read, "-o", "s@0", "-o", "e@99999999999999") == "a 0\nb 1\nc 2\nd 3\n"
    assert run_kcat("-Q", "-t", f"{topic}:0:0") == f"{topic} [0] offset 0\n"


def test_a_consumer_group_gets_everything_once(run_kcat, make_topic, unique):
    topic, group = make_topic(partitions=3), unique("group")
    lines = [f"line {i}" for i in range(60)]
    run_kcat("-P", "-t", topic, "-K ", stdin="".join(f"{line.replace(' ', '-')} {line}\n" for line in lines))
    read = ("-G", group, "-q", "-e", "-X", "auto.offset.reset=earliest", "-f", "%s\n", topic)
    assert sorted(run_kcat(*read).splitlines()) == sorted(lines)
    run_kcat("-P", "-t", topic, stdin="one more\n")
    assert run_kcat(*read) == "one more\n"


def test_idempotent_production(run_kcat, topic):
    lines = "".join(f"{i}\n" for i in range(1000))
    run_kcat("-P", "-t", topic, "-X", "enable.idempotence=true", "-X", "batch.num.messages=50", stdin=lines)
    assert run_kcat("-C", "-t", topic, "-e", "-q") == lines


@pytest.mark.parametrize("version", ["0.8.2", "0.9.0", "0.10.0"])
def test_protocols_of_ten_years_ago(run_kcat, topic, is_ottla, version):
    if not is_ottla:
        pytest.skip("Apache Kafka 4 has given up message formats 0 and 1; Ottla still converts them")
    old = ("-X", "api.version.request=false", "-X", f"broker.version.fallback={version}")
    lines = "".join(f"key{i}:value {i}\n" for i in range(100))
    for codec in ("none", "gzip", "snappy"):
        run_kcat("-P", "-t", topic, "-K:", "-z", codec, *old, stdin=lines)
    run_kcat("-P", "-t", topic, "-K:", "-z", "lz4", stdin=lines)
    # From offset 0, because finding the start would take ListOffsets v0, which is not served.
    read = ("-C", "-t", topic, "-o", "0", "-e", "-q", "-K:")
    assert run_kcat(*read) == lines * 4
    assert run_kcat(*read, *old) == lines * 4
