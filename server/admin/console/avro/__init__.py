"""Values in Avro with Confluent's framing, where the operator names a schema registry (`http.console.schema.registry`).

    registry.py  asks the registry for schemas, and for what people ask of it; replaces the bytes of framed keys and values of a page by text
    schemas.py   reads schemas and values of them, within bounds

A framed value is a zero byte, the id of its schema in four bytes, and the value in Avro's binary form. The writer of a
record chooses the value and, in most registries, also the schema. An array of a million million nulls takes six bytes, a
list of lists may be as deep as the value is long. Avro libraries read either until the memory or the stack is used up. So
values are read here, with bounds on text and depth while they are read.
"""
