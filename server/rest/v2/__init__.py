"""The second version of the API: topics, produce, and consumer instances.

topics.py     topics, partitions, offsets, brokers; produce
consumers.py  paths of consumer instances
instances.py  consumer instances, kept for clients over HTTP
record_texts.py  records as JSON, in the format of an instance
"""
