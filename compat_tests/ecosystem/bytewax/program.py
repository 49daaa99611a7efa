"""A dataflow of Bytewax with recovery, for `python -m bytewax.run`: squares of numbers, by its source and its sink for Kafka."""

import os

from bytewax import operators
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow

brokers = [os.environ["BOOTSTRAP"]]

flow = Dataflow("squares")
read = kafka.input("read", flow, brokers=brokers, topics=[os.environ["SOURCE"]], batch_size=50)
squared = operators.map(
    "square", read.oks, lambda message: KafkaSinkMessage(message.key, str(int(message.value) ** 2).encode())
)
kafka.output("write", squared, brokers=brokers, topic=os.environ["TARGET"])
