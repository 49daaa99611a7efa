"""REST proxy: Confluent's HTTP API, versions 2 and 3, for those who have no client of Kafka.

    command.py      `ottla rest`: options, and the process
    serving.py      puts the parts together, and runs them until the process is told to stop
    api.py          the table of paths; what requests and answers have in common
    logins.py       users of the proxy, by basic authentication
    backend.py      a login at the brokers, with all that uses it
    propagation.py  logins of requests, each with a backend
    errors.py       codes of errors
    bodies.py       JSON of strangers, within limits and in slices of time
    formats.py      embedded formats: binary, json
    schemas/        those with a schema: Avro, JSON Schema, Protobuf, by a schema registry
    times.py        times in requests
    admin.py        questions to a cluster that both versions ask
    client/         the client of the cluster
    v2/             topics, produce, consumer instances
    v3/             administration, and produce by streams

A record is answered with its offset when all in-sync replicas have it (acks=all).
"""
