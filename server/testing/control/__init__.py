"""The control port of the lab: everything that a test does with its Kafka, by HTTP and JSON.

control.py          the port: serves operations, describes them, checks who asks
operations.py       operations of the port
wire_operations.py  operations on the wire tap
"""
