"""Compares the facets of Spark and of OpenSearch with those of plain Python, and with what the generator told.

    python check.py --bootstrap 127.0.0.1:9092 --output /tmp/search

Without OPENSEARCH_URL or --opensearch it compares the others, and says so.
"""

import argparse
import json
import os
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import expected
import feed

SHOWN = 5
BUCKETS = 1000


def of_spark(bootstrap: str, topic: str) -> dict[expected.Facet, int]:
    """Facets of the job's topic: the last record of a key holds."""
    found = {}
    for record in expected.records(bootstrap, f"{topic}-facets"):
        row = json.loads(record.value)
        found[row["hour"], row["facet"], row["of"]] = row["posts"]
    return found


def ask(opensearch: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{opensearch}/{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def of_opensearch(opensearch: str, index: str) -> dict[expected.Facet, int]:
    """Facets of an index, by one search with aggregations."""
    ask(opensearch, f"{index}/_refresh", {})
    terms = {name: {"terms": {"field": field, "size": BUCKETS}} for name, field in (("tag", "tags"), ("lang", "lang"))}
    hours = {"field": "time", "fixed_interval": "1h", "min_doc_count": 1}
    body = {
        "size": 0,
        "query": {"bool": {"must_not": {"term": {"id": expected.LAST}}}},
        "aggs": {"hours": {"date_histogram": hours, "aggs": terms}},
    }
    found = {}
    for bucket in ask(opensearch, f"{index}/_search", body)["aggregations"]["hours"]["buckets"]:
        hour = expected.hour(bucket["key_as_string"])
        found[hour, "posts", ""] = bucket["doc_count"]
        found |= {(hour, name, each["key"]): each["doc_count"] for name in terms for each in bucket[name]["buckets"]}
    return found


def dead_letters(bootstrap: str, topic: str) -> tuple[int, Counter[str]]:
    """How many differ by their keys, and how many of each problem were written."""
    letters = expected.records(bootstrap, f"{topic}-dead")
    problems = Counter(dict(letter.headers)["problem"].decode() for letter in letters)
    return len({letter.key for letter in letters}), problems


def problems(bootstrap: str, topic: str, output: Path, opensearch: str | None) -> list[str]:
    """What differs; shows the largest facets side by side."""
    written = expected.records(bootstrap, topic)
    posts, _ = expected.posts(record.value for record in written)
    wanted, spark = expected.facets(posts.values()), of_spark(bootstrap, topic)
    indexed = of_opensearch(opensearch, topic) if opensearch else None
    for facet in sorted(wanted, key=lambda each: (-wanted[each], each))[:SHOWN]:
        print(*facet)
        print("  Spark     ", spark.get(facet, "nothing"))
        if indexed is not None:
            print("  OpenSearch", indexed.get(facet, "nothing"))
        print("  expected  ", wanted[facet])
    tags = {facet: number for facet, number in wanted.items() if facet[1] == "tag"}
    (letters, why), poison = dead_letters(bootstrap, topic), expected.told_poison(output) + feed.LONG_POSTS
    print(f"facets: {len(spark)} found by Spark, {len(wanted)} expected")
    print(f"posts: {len(posts)} in {len(written)} records of the topic")
    print(f"dead letters: {letters} found, {poison} expected; {', '.join(sorted(why))}")
    if indexed is None:
        print("OpenSearch: not compared, for there is none")
    differ = {
        "Spark": spark != wanted,
        "OpenSearch": indexed is not None and indexed != wanted,
        "posts that the generator told": tags != expected.told_tags(output),
        "dead letters": letters != poison,
    }
    return [name for name, is_so in differ.items() if is_so]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the facets.")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--topic", default="posts")
    parser.add_argument("--opensearch", default=os.environ.get("OPENSEARCH_URL"), metavar="URL")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    if differ := problems(options.bootstrap, options.topic, options.output, options.opensearch):
        sys.exit("NOT EQUAL: " + ", ".join(differ))
    print("equal")


if __name__ == "__main__":
    main()
