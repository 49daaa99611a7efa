"""The schemas of a topic, from a schema registry: those that its records name by their ids, and the latest one.

    python registry.py --registry http://127.0.0.1:8081 --subject clicks-value

Confluent's serializers write five bytes before each value: a zero and the id of the schema that it was written with.
"""

import argparse
import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

TIMEOUT_S = 10


class NoSchemas(Exception):
    """The registry does not answer, or does not have the subject."""


class Schemas(NamedTuple):
    """Versions of a subject. All are read as the latest one, which has defaults for what older ones lack."""

    by_id: dict[int, str]
    latest: str


def schemas(registry: str, subject: str) -> Schemas:
    """Fetch all versions. Raises NoSchemas, so that a job ends at its start and not with wrong values."""
    ids = [
        ask(registry, f"/subjects/{subject}/versions/{number}")["id"]
        for number in ask(registry, f"/subjects/{subject}/versions")
    ]
    by_id = {schema_id: ask(registry, f"/schemas/ids/{schema_id}")["schema"] for schema_id in ids}
    return Schemas(by_id, by_id[ids[-1]])


def ask(registry: str, path: str) -> Any:
    url = registry.rstrip("/") + path
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise NoSchemas(f"{url}: {error.read(1000).decode(errors='replace')}") from None
    except (OSError, ValueError) as error:
        raise NoSchemas(f"{url}: {error}; does a schema registry run there? `ottla start --registry 8081`") from None


def main() -> None:
    parser = argparse.ArgumentParser(description="Show the schemas of a subject.")
    parser.add_argument("--registry", default="http://127.0.0.1:8081")
    parser.add_argument("--subject", default="clicks-value")
    options = parser.parse_args()
    for schema_id, schema in schemas(options.registry, options.subject).by_id.items():
        print(schema_id, schema)


if __name__ == "__main__":
    main()
