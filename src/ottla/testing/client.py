"""A small Kafka client in trio, for tests of brokers and of other clients.

    async with connect("127.0.0.1:9092") as client:          # in a simulation: client = sim.client()
        await client.create_topic("orders", partitions=3)
        await client.producer().send("orders", b"one", key=b"a")
        async with client.consumer("orders", group="billing") as consumer:
            records = await consumer.poll()
            await consumer.commit()
        await client.ask(ListGroupsRequest())                 # any request of ottla.wire.messages

`Conversation` is the protocol alone, for programs that bring their own sockets.
"""

from ottla.server.testing.client.admin import EARLIEST, LATEST
from ottla.server.testing.client.answers import NoAnswer
from ottla.server.testing.client.client import Client, connect
from ottla.server.testing.client.consumer import Consumer, ConsumerRecord
from ottla.server.testing.client.conversation import Conversation, UnsupportedVersion
from ottla.server.testing.client.producer import Outgoing, Producer
from ottla.wire.errors import ErrorCode, KafkaError

__all__ = [
    "EARLIEST",
    "LATEST",
    "Client",
    "Consumer",
    "ConsumerRecord",
    "Conversation",
    "ErrorCode",
    "KafkaError",
    "NoAnswer",
    "Outgoing",
    "Producer",
    "UnsupportedVersion",
    "connect",
]
