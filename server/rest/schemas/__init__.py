"""Embedded formats with a schema: Avro, JSON Schema and Protobuf, by a schema registry.

    schemas.py       schemas of requests and records, as Confluent's proxy finds them
    record_values.py schemas of records for `ottla consume` and `ottla produce`
    registry.py      client of the registry, which keeps what cannot change
    framing.py       Confluent's wire format: the schema's id in front of the data
    codec.py         port of a format, and the making of one from a schema's text
    avro.py          Avro's binary form and its JSON encoding
    json_schema.py   JSON that is validated
    protobuf.py      Protobuf's binary form and its JSON mapping

A schema is parsed, and values are coded, in threads: both may take long. The libraries are those of the registry, and are loaded when
the first schema is parsed.
"""
