"""Index records in OpenSearch, each once: program.py BOOTSTRAP TOPIC OPENSEARCH.

Its place is the id of a record's document, so that a record that is read again is written over itself. Offsets are committed when
OpenSearch has what is before them.
"""

import json
import sys

from confluent_kafka import Consumer
from opensearchpy import OpenSearch
from opensearchpy.helpers import bulk

bootstrap, topic, address = sys.argv[1:]
search = OpenSearch(address, timeout=60, max_retries=5, retry_on_timeout=True)
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": "indexer",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)
consumer.subscribe([topic])
while True:
    records = [each for each in consumer.consume(100, timeout=0.5) if not each.error()]
    if records:
        actions = [
            {
                "_index": topic,
                "_id": f"{each.topic()}-{each.partition()}-{each.offset()}",
                "_source": json.loads(each.value()),
            }
            for each in records
        ]
        bulk(search, actions)
        consumer.commit(asynchronous=True)
