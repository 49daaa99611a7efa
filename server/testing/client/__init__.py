"""A small Kafka client for tests, over any stream: a simulated one or a real socket.

conversation.py requests to bytes and bytes to responses, without input or output
connections.py  connections to brokers, and who leads
streams.py      connections over trio's streams
admin.py        requests to whoever answers them; topics and offsets
client.py       the client of a test
producer.py     writes records, also in transactions
consumer.py     reads records, alone or as the member of a group
membership.py   a member of a group; the protocol of KIP-848
classic_membership.py  a member of a classic group
answers.py      errors, and which of them pass
"""
