"""Squares of numbers, by FastStream on aiokafka or on librdkafka: program.py CLIENT BOOTSTRAP SOURCE TARGET."""

import asyncio
import sys

from faststream import AckPolicy, FastStream

client, bootstrap, source, target = sys.argv[1:]
if client == "aiokafka":
    from faststream.kafka import KafkaBroker
else:
    from faststream.confluent import KafkaBroker

broker = KafkaBroker(bootstrap)


# The offset is committed after the answer is written: a record may come again, and none is left out.
@broker.subscriber(source, group_id="squares", auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR)
@broker.publisher(target)
async def square(number: int) -> int:
    return number * number


asyncio.run(FastStream(broker).run())
