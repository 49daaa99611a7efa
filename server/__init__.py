"""The broker: everything is wired here, from the command line to the network.

cli/                    the `ottla` command
launch/                 processes: signals, `ottla cluster`, workers and their supervisor
serving.py              a broker from start to end, in any trio program
broker.py               puts the parts of a broker together; coordinator_factory.py: its coordinators
ports.py                the broker as a protocol, for the modules below broker.py
environment.py          disks, clocks, threads and peers of a broker
imitation.py            lets a test's broker pass for another release or service
serving_state.py        is a broker serving, and is it to stop
standard_streams.py     failed writes to stdout and stderr
network/                listeners, connections, TLS, limits
dispatch/               finds the handler of a request, gives it a context, checks rights
api/                    handlers of Kafka's requests
cluster/                a member of a cluster, the active controller, the coordination tree
coordinators/           the coordinators of this broker, and their internal topics
peers/                  connections to other brokers
security/               SASL, certificates, the authorizer, tokens, quotas
config/                 settings: declared, in force, changed; the log
admin/                  HTTP: health, metrics, the console, telemetry of clients
registry/               `ottla registry`: schemas
rest/                   `ottla rest`: produce and consume over HTTP
testing/                stand-ins in memory for tests
"""
