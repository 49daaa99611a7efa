"""Schema registry: Confluent's HTTP API, with its records in the compacted topic `_schemas`.

    command.py      `ottla registry`: options, and the process
    serving.py      puts the parts together, and runs them until the process gets a signal to stop
    api.py          the table of paths: which method of which handler answers, and who may ask
    reading.py      answers from memory; writing.py: registers, deletes, configures
    judging.py      parses schemas and compares them with earlier versions, in threads
    request_bodies.py  bodies of requests; errors.py: codes of errors
    state.py        a machine: what the records of the topic say so far
    records.py      keys and values of the topic, as Confluent's and Karapace's registries write them
    metadata.py     metadata and rule sets: parsed, merged, hashed
    topic.py        reads and writes the topic
    election.py     one instance of several is the primary; the others forward to it (forwarding.py)
    access.py       users, and what they may do
    subjects.py     names with contexts, and a sorted set of them
    schemas/        Avro, JSON Schema and Protobuf: parsing, canonical texts, compatibility

Everything is read from memory. A write is a record of the topic; it is answered when that record has been read back.
"""
