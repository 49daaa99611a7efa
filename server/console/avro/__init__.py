"""Values in Avro with Confluent's framing, where the operator names a schema registry (`http.console.schema.registry`).

    framed.py    finds framed keys and values of a page, and puts text in the place of their bytes
    registry.py  asks the registry for schemas, and keeps them
    schemas.py   reads a schema: names resolved, within bounds
    nodes.py     reads a value of a schema, within bounds

A framed value is a zero byte, the id of its schema in four bytes, and the value in Avro's binary form. Who may write a record
chooses the value and, in most registries, the schema too. An array of a million million nulls takes six bytes, a list of lists may
be as deep as the value is long. Avro libraries read either until the memory or the stack is used up, so the values are read here:
what a value may become is bounded while it is read, in text and in depth.
"""
