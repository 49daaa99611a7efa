"""Formats of schemas: Avro, JSON Schema and Protobuf.

    format.py             port of a format; formats.py: the table of them
    compatibility.py      levels of compatibility
    avro.py               Avro, with its canonical texts
    json_schema.py        JSON Schema; json_shapes.py: schemas in parts; json_comparison.py by json_rules.py
    protobuf.py           Protobuf, with its texts; proto_descriptors.py: descriptors; proto_rules.py: compatibility

A format parses a text with the texts that it refers to, and knows how one parsed schema is read with another. All of it is done in a
thread, because a long schema takes long.
"""
