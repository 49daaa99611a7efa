"""Wire tap of the lab: everything that clients and brokers say to each other, and rules that change it.

wire.py          `Wire`, the tap as tests see it: seen requests, rules, exports
wire_request.py  a seen request with its answer, decoded when asked for
request_log.py   the last seen requests, bounded in number and bytes
filters.py       which requests are meant: by API, topic, partition, group and fields
subjects.py      topics, partitions and groups that a message is about
topic_names.py   names of topic ids
kafka_names.py   APIs, errors and message classes by Kafka's names
frames.py        cuts a stream into frames and keeps what is asked of each
skeletons.py     keeps of a large frame everything but its records
conversation.py  machine of one connection that listens
ruled_conversation.py  the machine when rules act: bytes of both sides in, bytes for both sides out
rules.py         rules in force: fail, delay, half, twice, drop, disconnect
refusals.py      error answers for a whole request or some of its partitions
redaction.py     secrets that are hidden before anything is written
json_lines.py    requests as JSON lines
pcap.py          requests as a capture file for Wireshark
tapped.py        transport of a tapped connection
decrypted.py     plain text of a connection with TLS, for the tap
"""
